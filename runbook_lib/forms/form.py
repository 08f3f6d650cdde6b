"""The form of a notebook where a person sits before it.  Headlessly nothing of it exists: no widget is made.

*Preview* and *Apply* run the notebook headlessly in a process of its own, so that what a person starts here leaves the
same record as a command, and no cell is ever run out of order.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook_lib import notebooks
from runbook_lib.bump import Bump
from runbook_lib.errors import NoSuchBranch, RunbookError
from runbook_lib.forms import choices, fields, html, widgets
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.practice import enter, environment
from runbook_lib.records import archive, run_view
from runbook_lib.records.run_view import RunView
from runbook_lib.records.statement import Identity
from runbook_lib.runner import background, session
from runbook_lib.runner.parameters import Source
from runbook_lib.steps.internal_ci.destination import destination
from runbook_lib.workflow import (
    forge,
    repository,  # fmt: skip
)

_POLL = 0.4  # seconds
#: Looks in a row that may fail before the end of a run is told without its record.
_UNREAD = 10
#: Seconds without another change until what was typed is looked up.
_PAUSE = 0.4
_WELL = ("done", "waiting", "previewed")
_STALE = "The values have changed since the plan was shown. Preview again: Apply does what was shown, and nothing else."
_FIRST = "Preview first: Apply does what was shown, and nothing else."
_TYPE = "Type {} to confirm: what leaves this machine cannot be called back."
_TYPE_PRACTICE = "Type {} to confirm, as in a real bump; here nothing leaves this machine."
_NO_TAG = "Choose a tag, then preview: without one there is nothing to apply."
_TOO_EARLY = "Cancelled before it had begun: nothing was done, and there is no record."


def headless() -> bool:
    """Whether no person sits before this notebook."""
    return not session.interactive()


def offer(notebook: str, namespace: Mapping[str, object], *, applies: bool = True) -> None:
    """Show the parameters of a notebook as a form, filled from ``namespace``; headlessly, do nothing.

    ``applies``: whether there is anything to apply; without, the form has *Run* alone.
    """
    if headless():
        return
    form = Form(session.notebook(notebook), namespace, applies=applies)
    widgets.show(form.root)
    form.begin()


@dataclass(frozen=True)
class Plan:
    """A plan that was shown: the values that it is for, and the run that made it."""

    values: Mapping[str, str | bool]
    run: RunView


class Form:
    """The form: its widgets, and what it does when they are used.  Slow work is done in threads of its own."""

    def __init__(self, notebook: Path, namespace: Mapping[str, object], *, applies: bool) -> None:
        source = Source.read(notebook)
        self.notebook, self.applies = notebook, applies
        self._namespace = namespace
        self.fields = fields.fields(source.parameters)
        #: Whether the notebook itself wants to be told the destination of a push.
        self._confirms = any(it.name == "confirm" for it in source.parameters)
        self._steps = list(notebooks.STEPS) if notebook.stem == notebooks.BUMP else []
        self._plan: Plan | None = None
        self._whose = MEGATRON_LM
        self._running: background.BackgroundRun | Mapping[str, Any] | None = None
        self._lock = threading.Lock()
        #: Counts the changes of what is looked up, so that an answer which comes too late is dropped.
        self._asked = 0
        self._unusable: dict[str, str] = {}
        values = {it.name: namespace.get(it.name, it.default) for it in self.fields}
        if not values.get("tag"):
            with suppress(RunbookError):  # what is wrong with the checkout is said below its field
                of = Checkout.open(enter(str(values.get("repo", "")))).repository()
                values["tag"] = choices.in_flight(self._archive(values), of, values)
        self.view = widgets.Widgets(self.fields, values, applies=applies)
        self.root = self.view.root
        self.view.on_change(self._changed)
        self.view.preview.on_click(lambda _: self._start(apply=False))
        self.view.apply.on_click(lambda _: self._start(apply=True))
        self.view.cancel.on_click(lambda _: self._cancel())
        self._changed("")

    # -- what it knows -------------------------------------------------------------------------------------------

    @property
    def practice(self) -> bool:
        """Whether it works in the practice world."""
        return not self.view.values().get("repo")

    @property
    def publishes(self) -> bool:
        """Whether Apply lets anything leave this machine; the practice world publishes to its own forge."""
        return self.practice or self.view.values().get("publish") is True

    def checkout(self) -> Checkout:
        """The checkout that the form names.  Raises RunbookError."""
        return Checkout.open(enter(str(self.view.values().get("repo", ""))))

    def bump(self) -> Bump:
        """The common parameters, checked.  Raises RunbookError."""
        values = self.view.values()
        given: Any = {name: values[name] for name in ("tag", "image_type", "base", "remote", "allow") if name in values}
        return Bump.parse(**given, repository=self._whose)

    def _archive(self, values: Mapping[str, object] | None = None) -> Path:
        named = str((self.view.values() if values is None else values).get("audit", ""))
        return Path(named).expanduser().absolute() if named else archive.default(self.notebook)

    def _folder(self) -> Path:
        """The bump's folder in the archive.  Raises RunbookError."""
        bump = self.bump()
        identity = Identity(
            self.checkout().repository(), bump.base, bump.image_type, str(bump.tag or ""), practice=self.practice
        )
        return self._archive().joinpath(*identity.parts)

    # -- filling in ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Fill in what takes a while, without keeping anybody waiting, and follow a run that is going on already."""
        self._aside(self._attach)
        self._aside(lambda: self._fill(self._asked))

    def _attach(self) -> None:
        own = self._folder()
        going = [it for it in background.active_runs(self._archive()) if self._archive().joinpath(*_parts(it)) == own]
        with self._lock:
            if not going or self._running is not None:
                return
            self._running = going[-1]
        self._refresh()
        self._follow(going[-1], {}, apply=True)

    def _later(self, work: Callable[[int], None]) -> None:
        """Look something up once nothing has been changed for a moment."""
        self._asked += 1
        mine = self._asked

        def wait() -> None:
            time.sleep(_PAUSE)
            if mine == self._asked:
                work(mine)

        self._aside(wait)

    def _fill(self, asked: int, *, keep: bool = True) -> None:
        """Offer tags, runs and decisions, as long as nothing else has been asked since."""
        try:
            checkout = self.checkout()
            found = choices.tags(self._whose, choices.current(checkout, self._base()))
            if asked == self._asked:
                self.view.offer("tag", found)
        except NoSuchBranch as error:
            self._unusable["base"] = str(error)
            self._changed("found")
            return
        except RunbookError as error:
            self.view.say("tag", str(error))
        self._refill(asked, keep=keep)

    def _base(self) -> Bump:
        values = self.view.values()
        given: Any = {name: values[name] for name in ("image_type", "base", "remote") if name in values}
        return Bump.parse(**given, repository=self._whose)

    def _offer_runs(self, asked: int) -> None:
        if "run_id" not in self.view.values():
            return
        try:
            checkout, bump = self.checkout(), self.bump()
            if bump.tag is not None:
                with forge.connect_github(checkout.repository(), bump) or nullcontext() as github:
                    found = choices.runs(checkout, bump, github)
                if asked == self._asked:
                    self.view.offer("run_id", found)
        except RunbookError as error:
            self.view.say("run_id", str(error))

    # -- what a person does --------------------------------------------------------------------------------------

    def _changed(self, name: str) -> None:
        values = self.view.values()
        problems = self.view.lacking()
        typed = {it: told for it, value in values.items() if (told := fields.problem(it, value, self._whose))}
        if name in ("", "repo", "pins") and not typed.keys() & {"repo", "pins"}:
            self._unusable = {}
            try:
                self._whose = repository.choose(self.checkout(), str(values.get("pins", "")))
            except RunbookError as error:
                self._unusable["pins" if name == "pins" else "repo"] = str(error)
        if name == "base":
            self._unusable.pop("base", None)
        problems |= self._unusable | typed
        self.view.show_problems(problems, {it: fields.advice(it, value) for it, value in values.items()})
        if name in ("tag", "repo", "pins", "base", "image_type"):
            self.view.pending([], keep=False)  # what was decided was for another image
            if not problems:
                fill = self._refill if name == "tag" else self._fill
                self._later(lambda asked: fill(asked, keep=False))
        self._refresh(problems)

    def _refill(self, asked: int, *, keep: bool = True) -> None:
        with suppress(RunbookError):
            found = choices.undecided(self._folder())
            if asked == self._asked:
                self.view.pending(*found, keep=keep)
        self._offer_runs(asked)

    def _refresh(self, problems: Mapping[str, str] | None = None) -> None:
        """Set what can be pressed, and say why the rest cannot."""
        view, plan = self.view, self._plan
        wrong = self.view.problems if problems is None else problems
        busy = self._running is not None
        current = plan is not None and plan.values == view.values()
        asks = bool(plan and current and self.publishes and any(it["publish"] for it in plan.run.planned))
        word = self._word() if asks else ""
        view.ask_for(word)
        view.preview.disabled = busy or bool(wrong)
        view.apply.disabled = busy or bool(wrong) or not current or (asks and not view.confirmed(word))
        if busy or wrong or not self.applies:
            view.warn("")
        elif plan is None:
            view.hint(_FIRST if view.values().get("tag") else _NO_TAG)
        elif not current:
            view.warn(_STALE)
        else:
            typed = f" {view.typed!r} is not {word}." if view.typed and not word.startswith(view.typed) else ""
            told = (_TYPE_PRACTICE if self.practice else _TYPE).format(word) + typed
            view.hint(told if view.apply.disabled else "")

    def _word(self) -> str:
        """What a person types to confirm: the tag, or the destination where the notebook asks for that."""
        with suppress(RunbookError):
            bump = self.bump()
            return destination(bump.branch) if self._confirms else str(bump.tag or "")
        return ""

    def _start(self, *, apply: bool) -> None:
        with self._lock:  # pressed twice, or in two tabs of one notebook
            if self._running is not None:
                return
            self._refresh()
            if (self.view.apply if apply else self.view.preview).disabled:
                return  # a click that was on its way while a field was changed
            values, shown = self.view.values(), ""
            if apply and self._plan is not None:
                values, shown = dict(self._plan.values), self._plan.run.fingerprint
            given = values if apply or "publish" not in values else {**values, "publish": False}
            if self.applies:
                given = {**given, "apply": apply}
            if self._confirms:
                given = {**given, "confirm": self.view.typed if apply else ""}
            try:
                background.require_no_other_run(self._archive(), practice=self.practice)
                world = environment(str(values.get("repo", "")))
                self._running = background.start(self.notebook, given, shown=shown, env=world)
            except RunbookError as error:
                self.view.fail(str(error))
                self._refresh()
                return
            running = self._running
        self.view.clear()
        self.view.cancel.focus()
        self._refresh()
        self._aside(lambda: self._follow(running, values, apply=apply))

    def _cancel(self) -> None:
        running = self._running
        if running is None:
            self.view.hint("Nothing is going on that could be cancelled.")
        try:
            if isinstance(running, background.BackgroundRun):
                running.cancel()
            elif running is not None:
                background.cancel(running)
        except RunbookError as error:
            self.view.fail(str(error))

    # -- following -----------------------------------------------------------------------------------------------

    def _follow(
        self, running: "background.BackgroundRun | Mapping[str, Any]", values: Mapping[str, str | bool], *, apply: bool
    ) -> None:
        own = running if isinstance(running, background.BackgroundRun) else None
        try:
            run = self._watch(running, own)
            self._finish(run, _last(own), values, apply=apply)
        finally:
            if own:
                own.close()
            self._running = None
            self._refresh()
        self._offer_runs(self._asked)

    def _watch(
        self, running: "background.BackgroundRun | Mapping[str, Any]", own: background.BackgroundRun | None
    ) -> RunView | None:
        """Show how far a run is until it has ended."""
        began, run, unread = time.monotonic(), None, 0
        folder = self._archive().joinpath(*_parts(running)) if isinstance(running, Mapping) else self._folder()
        while True:
            ended = own.has_exited if own else run is not None and run.is_closed
            try:
                if own:
                    run = run_view.find_run(folder, process=own.process)
                else:
                    run = run_view.find_run(folder, record=str(running["id"]))  # type: ignore[index]
                unread = 0
            except OSError:  # an archive that cannot be read now may be so in a moment
                unread += 1
            said, total = own.progress() if own else "", len(self._steps)
            shown = html.progress(run, said, time.monotonic() - began, total)
            self.view.progress(shown, html.progress_label(run, total))
            if ended and not 0 < unread < _UNREAD:
                return run
            time.sleep(_POLL)

    def _finish(self, run: RunView | None, said: str, values: Mapping[str, str | bool], *, apply: bool) -> None:
        """Show how a run ended: the plan that a preview made, or the outcome; what failed, as the error."""
        view = self.view
        with suppress(RunbookError):  # before the outcome, which speaks of what is listed
            done = apply and run is not None and run.state in _WELL
            view.pending(*choices.undecided(self._folder()), keep=not done)
        if run is None:
            view.fail(said)
        elif run.state not in _WELL:
            view.fail(run.sentence)
            view.result(html.result(run, self.notebook))
        elif apply or not self.applies:
            self._plan = None
            view.result(html.result(run, self.notebook), shown="" if self.applies else run.plan_html())
        else:
            self._plan = Plan(values, run) if values["tag"] else None
            view.plan(html.plan(run, publish=self.publishes, practice=self.practice))

    def _aside(self, work: Callable[[], None]) -> None:
        def told() -> None:
            try:
                work()
            except RunbookError as error:
                self.view.fail(str(error))
            finally:
                if (fault := sys.exc_info()[1]) is not None:  # the thread's own hook writes the traceback into the log
                    self.view.fail(
                        f"The form met a fault of its own: {type(fault).__name__}: {fault}. The log of the kernel has "
                        "more. Run this cell again; a run that was started goes on, and the start page shows it."
                    )

        threading.Thread(target=told, daemon=True, name="form").start()


def _parts(running: Mapping[str, Any]) -> tuple[str, ...]:
    """The folder of a run's bump in its archive."""
    return Identity.from_json(running["bump"]).parts


def _last(own: background.BackgroundRun | None) -> str:
    """What to say of a run that left no record."""
    if own is not None and own.is_cancelled:
        return _TOO_EARLY
    last = own.progress().strip().splitlines()[-1:] if own else []
    return last[0].removeprefix("papermill: ") if last else "It left no record and said nothing."
