"""The form of a notebook in JupyterLab: plain ipywidgets made from its parameters, its plan and the open questions.

*Preview* and *Apply* run the notebook headlessly in a separate process, so that a run from the form leaves the same
record as a command, and no cell runs out of order.
"""

import html
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext, suppress
from pathlib import Path

from IPython.display import display as show_widget

from runbook_lib import notebooks
from runbook_lib.errors import NoSuchBranch, RunbookError
from runbook_lib.notebook import cards, child, fields, form_views, session
from runbook_lib.notebook.child import FollowedRun, Run
from runbook_lib.notebook.form_target import FormTarget
from runbook_lib.notebook.form_widgets import OTHER, FormWidgets, as_problem, set_visible
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.record.journal import fingerprint
from runbook_lib.system import startup
from runbook_lib.text.notebook_file import NotebookSource
from runbook_lib.world import repository

#: Seconds between two reads of a run's record.
_INTERVAL = 0.2
#: Consecutive failed reads after which a run that has ended is reported without its record.
_MAX_FAILED_READS = 10
_SUCCESS = ("done", "waiting", "previewed")
_PREVIEW_FIRST = "Preview first: Apply does exactly what was shown."
_TYPE = "Type {} to confirm: published changes cannot be undone."
_TYPE_PRACTICE = "Type {} to confirm, as in a real bump. In practice nothing leaves this machine."
_FALLBACK = "Run this notebook in JupyterLab to show its form here."


def show(notebook: str, namespace: Mapping[str, object], on_progress: Callable[[], None] = lambda: None) -> None:
    """Show the parameters of a notebook as a form, with values from ``namespace``.

    ``on_progress`` is called when a run ends, and while one applies, when it begins and when a step ends.
    """
    startup.skip_httpx_command()
    form = Form(session.notebook(notebook), namespace, on_progress)
    bundle = form.root._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    show_widget({**data, "text/plain": _FALLBACK}, raw=True)
    form.begin()


class Form(FormWidgets):
    """A form with the actions of its buttons.  Slow work is done in threads."""

    def __init__(
        self, notebook: Path, namespace: Mapping[str, object], on_progress: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(NotebookSource.read(notebook), namespace)
        self.notebook, self._on_progress = notebook, on_progress
        #: The preview whose plan the user has seen, for the values and answers as they are.
        self._plan: Run | None = None
        self._repository = MEGATRON_LM
        self._running: FollowedRun | None = None
        self._lock = threading.Lock()
        self._query_problems: dict[str, str] = {}
        self._is_prepared = False
        self.problems: dict[str, str] = {}
        self.preview.on_click(lambda _: self._start(apply=False))
        self.apply.on_click(lambda _: self._start(apply=True))
        self.cancel.on_click(lambda _: self._cancel())
        self.confirmation.observe(lambda _: self._refresh(), names="value")
        self._refresh()

    @property
    def busy(self) -> bool:
        """True while the form follows a run."""
        return self._running is not None

    def target(self) -> FormTarget:
        """Return the bump described by the current values."""
        return FormTarget(self.values(), self.notebook, self._repository)

    # -- choices and decisions -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """In the background, prepare the form, query the choices, and follow this bump's run if one is in progress."""

        def work() -> None:
            self.prepare()
            next(iter(self.inputs.values())).focus()
            self._in_background(self._attach)
            self._offer_choices(keep=True)

        self._in_background(work)

    def prepare(self) -> None:
        """Open the checkout, choose the tag of the bump in flight unless one is chosen, and check the values."""
        with suppress(RunbookError):  # a problem with the checkout is shown below its field
            if not self.values()["tag"] and (tag := self.target().tag_in_flight()):
                self.offer("tag", [(tag, tag)], value=tag)
        self._is_prepared = True
        self.changed("")

    def _attach(self) -> None:
        target = self.target()
        run = child.find_run(target.archive(), target.folder())
        with self._lock:
            if run is None or self._running is not None:
                return
            self._running = run
        self._refresh()
        self._follow(run, target, apply=True)

    def _offer_choices(self, *, keep: bool) -> None:
        """Offer tags, decisions and CI runs for the current values, unless they change in the meantime."""
        from runbook_lib.notebook import choices  # it imports the clients, which nobody should wait for to see a form

        target, tags = self.target(), list[tuple[str, str]]()
        tag = str(target.values["tag"])
        try:
            pinned = choices.pinned_tags(target.checkout(), target.bump(tag=False))
            tags, note = choices.tags(target.place().services, self._repository, pinned)
            self._offer("tag", tags, note, target)
        except NoSuchBranch as error:
            self._add_problem("base", str(error), target)
            return
        except RunbookError as error:
            self._offer("tag", [(tag, tag)] if tag else [], str(error), target)
        with suppress(RunbookError):  # the run itself reports why the registry cannot be queried
            if tag not in [value for _, value in tags] and (
                problem := choices.tag_problem(target.place().services, target.bump())
            ):
                self._add_problem("tag", problem, target)
        with suppress(RunbookError):
            offered = self._cards()
            if target == self.target():
                self.cards.offer(offered, keep=keep)
        try:
            if "run_id" in target.values and (bump := target.bump()).tag:
                place = target.place()
                forge = place.services.forge(place.checkout.repository(), required=False)
                with closing(forge) if forge else nullcontext():
                    self._offer("run_id", *choices.runs(place.checkout, bump, forge), target)
        except RunbookError as error:
            self._offer("run_id", [], str(error), target)

    def _add_problem(self, name: str, problem: str, target: FormTarget) -> None:
        if target == self.target():
            self._query_problems[name] = problem
            self.changed("query")

    def _offer(self, name: str, choices: list[tuple[str, str]], note: str, target: FormTarget) -> None:
        if target == self.target():
            self.offer(name, choices, note)

    def _cards(self) -> tuple[cards.Card, ...]:  # those that this notebook can apply; raises RunbookError
        target = self.target()
        if "decisions" not in target.values:
            return ()
        return cards.read(
            target.folder(), target.decisions(), offers=self.notebook.stem == notebooks.BROKEN_TESTS
        )  # fmt: skip

    # -- changes of the fields -----------------------------------------------------------------------------------

    def changed(self, name: str) -> None:
        values = self.values()
        if name in values:  # Apply does exactly what was shown
            self._plan = None
            for part in self.parts.values():
                part.value = ""
            self._query_problems.pop(name, None)
        problems = {field: fields.problem(field, value, self._repository) for field, value in values.items()}
        if name in ("", "repo") and not problems["repo"]:
            self._query_problems = {}
            try:
                self._repository = repository.choose(self.target().checkout())
            except RunbookError as error:
                self._query_problems["repo"] = str(error)
        found = [self._query_problems, problems, {"decisions": self.cards.problem}]
        self.problems = {field: problem for each in found for field, problem in each.items() if problem}
        for field, message in self.messages.items():
            if field in self.problems:
                message.value = as_problem(self.problems[field])
            elif "✗" in message.value:
                message.value = ""
        if any(fields.seldom(field, self.notebook.stem) for field in self.problems):
            self._more.value = True  # unfold, because a problem must be visible
        if name in ("tag", "repo", "base", "image_type"):
            self.cards.offer([], keep=False)  # earlier decisions concerned another image
            if not self.problems:
                self._in_background(lambda: self._offer_choices(keep=False))
        self._refresh()

    def _refresh(self) -> None:
        """Enable and disable the buttons, and show why Apply is disabled."""
        plan, target, word = self._plan, self.target(), ""
        blocked = self.busy or bool(self.problems) or not self._is_prepared
        typed = str(self.confirmation.value).strip()
        if plan and target.publishes and not self.busy and any(effect["publish"] for effect in plan["planned"]):
            word = target.confirmation()
        warning = "" if plan else _PREVIEW_FIRST
        if word != typed and word:
            warning = (_TYPE_PRACTICE if target.practice else _TYPE).format(word)
            warning += f" {typed!r} is not {word}." if typed and not word.startswith(typed) else ""
        self.preview.disabled, self.apply.disabled = blocked, blocked or bool(warning)
        is_shown = bool(warning) and self.applies and not blocked
        self.parts["warning"].value = f"<em>{html.escape(warning)}</em>" if is_shown else ""
        set_visible(self.confirmation, visible=bool(word))
        if not word and self.confirmation.value:
            self.confirmation.value = ""
        set_visible(self.other_tag, visible=self.inputs["tag"].value == OTHER)
        if "mode" in self.inputs:  # the practice environment always publishes, to its own forge
            set_visible(self.inputs["mode"], visible=not target.practice)

    # -- runs ----------------------------------------------------------------------------------------------------

    def _start(self, *, apply: bool) -> None:
        with self._lock:  # a double click, or the notebook open in two tabs
            if self._running is not None:
                return
            self._refresh()
            if (self.apply if apply else self.preview).disabled:
                return  # a field changed just before the click
            target = self.target()
            parameters = dict(target.values)
            if "mode" in parameters:
                parameters["mode"] = target.mode if apply else "preview"
            try:
                if not apply:
                    if not target.values["tag"] and not self.cards.saved:
                        target.decisions().unlink(missing_ok=True)  # of another change of quarantined tests
                    self.cards.save(target.decisions)
                if not target.values["tag"] and self.cards.saved:  # then a run reads only a named file
                    parameters["decisions"] = str(target.decisions())
                child.require_no_other_run(target.archive(), practice=target.practice)
                env = {**os.environ, "RUNBOOK_AUDIT": str(target.archive())}
                shown = fingerprint(self._plan) if apply and self._plan else ""
                run = child.start(self.notebook, parameters, target.folder(), shown=shown, env=env)
            except RunbookError as error:
                self._show_error(str(error))
                return
            self._running = run
        for part in self.parts.values():
            part.value = ""
        self.cancel.focus()
        self._refresh()
        self._in_background(lambda: self._follow(run, target, apply=apply))

    def _cancel(self) -> None:
        if self._running:
            self._running.cancel()
        else:
            self.parts["warning"].value = "There is no run to cancel."

    def _follow(self, followed: FollowedRun, target: FormTarget, *, apply: bool) -> None:
        try:
            run = self._watch(followed, self._on_progress if apply else lambda: None)
            self._finish(run, followed, target, apply=apply)
        finally:
            followed.close()
            self._running = None
            self._refresh()
        self._on_progress()
        self._offer_choices(keep=True)

    def _watch(self, followed: FollowedRun, on_progress: Callable[[], None]) -> Run | None:
        """Show the progress of a run until it ends, and return its record."""
        started, run, failed_reads = time.monotonic(), None, 0
        while True:
            has_ended = followed.has_ended(run)
            try:
                run, failed_reads = followed.read(), 0
            except OSError:  # the archive may be readable again in a moment
                failed_reads += 1
            seconds = time.monotonic() - started
            self.parts["progress"].value = form_views.progress(run, followed.output(), seconds)
            steps = form_views.steps(run).html if run else ""
            if steps != self.parts["steps"].value:
                self.parts["steps"].value = steps
                on_progress()
            if has_ended and (failed_reads == 0 or failed_reads >= _MAX_FAILED_READS):
                return run
            time.sleep(_INTERVAL)

    def _finish(self, run: Run | None, followed: FollowedRun, target: FormTarget, *, apply: bool) -> None:
        """Show the plan of a preview, the result of a run, or its error."""
        part, is_current = self.parts, target == self.target() and self.cards.answers == self.cards.saved
        succeeded = run is not None and run["state"] in _SUCCESS
        with suppress(RunbookError):  # before the result, because it refers to the decisions
            self.cards.offer(self._cards(), keep=not (apply and succeeded))
        count = len(self.cards.open)
        if succeeded:
            self._plan = None
        if run is None:
            self._show_error(followed.failure())
        else:
            folder = target.folder() / str(run["id"])
            if succeeded and self.applies and not apply:
                if is_current and (target.values["tag"] or run["planned"]):  # otherwise there is nothing to apply
                    self._plan = run
                part["plan"].value = form_views.plan(
                    run, publish=target.publishes, practice=target.practice, open_cards=count
                )
            else:
                part["result"].value = form_views.result(run, folder, self.values(), open_cards=count)
            if succeeded and not apply:
                unfold = self.notebook.stem != notebooks.BUMP
                part["cells"].value = form_views.cells(folder, unfold=unfold)
        part["steps"].value = part["progress"].value = ""
        if succeeded and count:
            self.cards.open[0].focus()
        else:  # the page follows the focus, but not to what has it already
            self.cancel.blur()
            self.cancel.focus()

    def _show_error(self, sentence: str) -> None:
        self.parts["error"].value = f'<div role="alert">{as_problem(sentence)}</div>'
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
