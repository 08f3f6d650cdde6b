"""The form of a notebook in JupyterLab: plain ipywidgets made from its parameters and the open questions.

*Preview* and *Apply* run the notebook headlessly in a separate process, so that a run from the form leaves the same
record as a command, and no cell runs out of order.  The form shows what the cells of that run have shown.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import ipywidgets as widgets
from IPython.display import display as show_widget

from runbook_lib import display, notebooks
from runbook_lib.errors import RunbookError
from runbook_lib.notebook import cards, child, form_views, session
from runbook_lib.notebook.card_widgets import DecisionCards, set_visible
from runbook_lib.notebook.child import FollowedRun, Run
from runbook_lib.notebook.place import RunTarget
from runbook_lib.record.run_file import fingerprint
from runbook_lib.text.notebook_file import Parameter, read_parameters
from runbook_lib.world.machine import startup

#: Seconds between two reads of a run's record.
_INTERVAL = 0.2
_SUCCESS = ("done", "waiting", "previewed")
#: What a form shows of its runs.
_PARTS = ("note", "error", "progress", "result", "warning", "cells")
_FALLBACK = "Run this notebook in JupyterLab to show its form here."


def show(notebook: str, namespace: Mapping[str, object], on_progress: Callable[[], None] = lambda: None) -> None:
    """Show the parameters of a notebook as a form, with values from ``namespace``.

    ``on_progress`` is called when a step of a run begins or ends, and when a run ends.
    """
    startup.skip_httpx_command()
    form = Form(session.notebook(notebook), namespace, on_progress)
    show_widget({**form.root._repr_mimebundle_(), "text/plain": _FALLBACK}, raw=True)
    form.begin()


class Form:
    """The widgets, each with a label and within reach of the keyboard, and what its buttons do, in threads."""

    def __init__(
        self, notebook: Path, namespace: Mapping[str, object], on_progress: Callable[[], None] = lambda: None
    ) -> None:
        self.notebook, self._on_progress = notebook, on_progress
        parameters = read_parameters(notebook) or ()
        self.inputs = {it.name: _make_input(it, namespace.get(it.name, it.default)) for it in parameters}
        self.applies = "mode" in self.inputs
        #: The preview whose plan the user has seen, for the values and answers as they are.
        self._plan: Run | None = None
        self._running: FollowedRun | None = None
        self._lock = threading.Lock()
        self.cards = DecisionCards(lambda: self._changed("decisions"))
        self.preview = widgets.Button(description="Preview" if self.applies else "Run", button_style="primary")
        self.apply = widgets.Button(description="Apply", disabled=True, _dom_classes=["runbook-apply"])
        # Never disabled: disabling a focused button would throw a keyboard user out of the form.
        self.cancel = widgets.Button(description="Cancel", _dom_classes=["runbook-cancel"])
        self.confirmation = widgets.Text(description="Type to confirm")
        # The second is JupyterLab's style for text, tables and links, in any theme.
        self.parts = {name: widgets.HTML(_dom_classes=[f"runbook-{name}", "jp-RenderedHTMLCommon"]) for name in _PARTS}
        self.root = self._layout()
        for name, widget in self.inputs.items():
            widget.observe(lambda _, name=name: self._changed(name), names="value")
        self.preview.on_click(lambda _: self._start(apply=False))
        self.apply.on_click(lambda _: self._start(apply=True))
        self.cancel.on_click(lambda _: self._cancel())
        self.confirmation.observe(lambda _: self._refresh(), names="value")
        self._refresh()

    def _layout(self) -> Any:
        style = widgets.HTML(f"<style>{files(__package__).joinpath('form.css').read_text('utf-8')}</style>")
        part = self.parts
        rows = [*self.inputs.values(), part["note"], self.cards.root, widgets.HBox([self.preview, self.cancel])]
        rows += [part["error"], part["progress"], part["result"], part["warning"], self.confirmation]
        rows += [*([self.apply] if self.applies else []), part["cells"], style]
        return widgets.VBox(rows, _dom_classes=["runbook-form"])

    @property
    def busy(self) -> bool:
        """True while the form follows a run."""
        return self._running is not None

    def target(self) -> RunTarget:
        """Return the bump that the current values describe."""
        return RunTarget({name: widget.value for name, widget in self.inputs.items()})

    def begin(self) -> None:
        """In the background, choose the tag of the bump in flight, offer choices, and follow the bump's run."""

        def work() -> None:
            next(iter(self.inputs.values())).focus()
            if not self.inputs["tag"].value and (tag := self.target().tag_in_flight()):
                self.inputs["tag"].value = tag  # which offers the choices
            else:
                self._offer()
            target = self.target()
            run = child.find_run(target.folder())
            with self._lock:
                if run is None or self.busy:
                    return
                self._running = run
            self._refresh()
            self._follow(run, target, apply=True)

        self._in_background(work)

    def _offer(self) -> None:
        """Offer decisions and tags for the current values, unless they change in the meantime."""
        target = self.target()
        found = self._cards(target)
        if target == self.target():
            self.cards.offer(found, keep=False)
        names, note = target.tags()
        if target == self.target():
            self.inputs["tag"].options = names
            self.parts["note"].value = display.note(note).html

    def _cards(self, target: RunTarget) -> tuple[cards.Card, ...]:
        """Return the cards of the decisions that this notebook can apply.  Raises RunbookError."""
        folder = target.folder()  # an invalid value is named, whatever the notebook does
        if "decisions" not in target.values:
            return ()
        return cards.read(folder, target.decisions(), offers=self.notebook.stem == notebooks.BROKEN_TESTS)

    def _changed(self, name: str) -> None:
        """Forget the plan, which was made for other values, and offer what belongs to the new ones."""
        self._plan = None
        self._clear()
        if name in ("tag", "repo", "base", "image_type"):
            self.cards.offer([], keep=False)  # earlier decisions concerned another image
            self.parts["note"].value = ""  # and the newest tag may be that of another registry
            self._in_background(self._offer)
        self._refresh()

    def _clear(self) -> None:
        for name in _PARTS[1:]:
            self.parts[name].value = ""

    def _refresh(self) -> None:
        """Enable and disable the buttons, and tell what Apply needs and does."""
        target, plan = self.target(), self._plan
        published = plan is not None and any(each["publish"] for each in plan["planned"])
        word = target.confirmation if published and target.mode == "publish" else ""
        is_confirmed = str(self.confirmation.value).strip() == word
        problem = self.cards.problem
        self.preview.disabled = self.busy or bool(problem)
        self.apply.disabled = self.preview.disabled or plan is None or not is_confirmed
        told = display.note(problem).html if problem else form_views.about_apply(
            plan, publish=target.mode == "publish", practice=target.practice, open_cards=len(self.cards.open),
            word="" if is_confirmed else word,
        )  # fmt: skip
        self.parts["warning"].value = told if self.applies and not self.busy else ""
        set_visible(self.confirmation, bool(word))
        if not word and self.confirmation.value:
            self.confirmation.value = ""
        if self.applies:  # the practice environment always publishes, to its own forge
            set_visible(self.inputs["mode"], not target.practice)

    def _start(self, *, apply: bool) -> None:
        with self._lock:  # a double click
            self._refresh()
            if self.busy or (self.apply if apply else self.preview).disabled:
                return  # a field changed just before the click
            target, plan = self.target(), self._plan
            self._plan = None
            self._clear()
            try:
                parameters = self._parameters(target, apply=apply)
                shown = fingerprint(plan) if apply and plan else ""
                self._running = run = child.start(self.notebook, parameters, target.folder(), shown=shown)
            except RunbookError as error:
                self._show_error(str(error))
                return
        self.cancel.focus()
        self._refresh()
        self._in_background(lambda: self._follow(run, target, apply=apply))

    def _parameters(self, target: RunTarget, *, apply: bool) -> dict[str, object]:
        """Return the parameters of a run; a preview writes the decisions first.  Raises RunbookError."""
        parameters: dict[str, object] = dict(target.values)
        if self.applies:
            parameters["mode"] = target.mode if apply else "preview"
        has_bump = bool(target.values["tag"] or target.values.get("decisions"))
        if not apply and not has_bump and not self.cards.saved:
            target.decisions().unlink(missing_ok=True)  # of another change of quarantined tests
        if not apply:
            self.cards.save(target.decisions)
        if not has_bump and self.cards.saved:  # then a run reads only a named file
            parameters["decisions"] = str(target.decisions())
        return parameters

    def _cancel(self) -> None:
        if self._running:
            self._running.cancel()
        else:
            self.parts["warning"].value = "There is no run to cancel."

    def _follow(self, followed: FollowedRun, target: RunTarget, *, apply: bool) -> None:
        try:
            run = self._watch(followed)
            self._finish(run, followed, target, apply=apply)
        finally:
            followed.close()
            self._running = None
            self._refresh()
        self._on_progress()

    def _watch(self, followed: FollowedRun) -> Run | None:
        """Show the progress of a run until it ends, and return its record."""
        started, run, steps = time.monotonic(), None, ""
        while True:
            has_ended = followed.has_ended(run)
            with suppress(OSError):  # the archive may be readable again in a moment
                run = followed.read()
            before, steps = steps, form_views.steps(run)
            seconds = time.monotonic() - started
            self.parts["progress"].value = steps + form_views.progress(followed.last_line(), seconds)
            if steps != before:
                self._on_progress()
            if has_ended:
                return run
            time.sleep(_INTERVAL)

    def _finish(self, run: Run | None, followed: FollowedRun, target: RunTarget, *, apply: bool) -> None:
        """Show what the run has shown, and its outcome or error; keep the plan of a preview."""
        succeeded = run is not None and run["state"] in _SUCCESS
        is_current = target == self.target() and self.cards.answers == self.cards.saved
        self.cards.offer(self._cards(target), keep=not (apply and succeeded))
        self.parts["progress"].value = ""
        if run is None:
            self._show_error(followed.failure())
        else:
            folder = target.folder() / str(run["id"])
            if succeeded and not apply and is_current and (target.values["tag"] or run["planned"]):
                self._plan = run
            open_cards = len(self.cards.open)
            self.parts["result"].value = form_views.result(run, folder, target.values, open_cards=open_cards)
            self.parts["cells"].value = form_views.cells(folder, unfold=self.notebook.stem != notebooks.BUMP)
        if succeeded and self.cards.open:
            self.cards.open[0].focus()
        else:  # the page follows the focus, but not to what has it already
            self.cancel.blur()
            self.cancel.focus()

    def _show_error(self, sentence: str) -> None:
        problem = f'<strong class="runbook-problem">✗ {display.linked(sentence)}</strong>'
        self.parts["error"].value = f'<div role="alert">{problem}</div>'
        self._refresh()

    def _in_background(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except RunbookError as error:
                self._show_error(str(error))
            finally:
                fault = sys.exc_info()[1]
                if fault is not None:  # the thread's exception hook writes the traceback to the log
                    self._show_error(
                        f"The form itself failed: {type(fault).__name__}: {fault}. The kernel's log has the "
                        "traceback. Run this cell again. A run that was started continues, and the start page shows it."
                    )

        threading.Thread(target=run, daemon=True, name="form").start()


def _make_input(parameter: Parameter, value: object) -> Any:
    """Return the input of a parameter: a list for a fixed choice, else a text; tags are suggested."""
    label = form_views.label(parameter.name)
    if isinstance(parameter.default, bool):
        return widgets.Checkbox(value=bool(value), description=f"{label}: {parameter.help}")
    common: dict[str, Any] = {"description": label, "tooltip": parameter.help}
    choices = form_views.choices(parameter.name)
    if str(value) in choices:
        return widgets.Dropdown(options=[(shown, each) for each, shown in choices.items()], value=str(value), **common)
    kind = widgets.Combobox if parameter.name == "tag" else widgets.Text
    return kind(value=str(value), placeholder=parameter.help, continuous_update=False, **common)
