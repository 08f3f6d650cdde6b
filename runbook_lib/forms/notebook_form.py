"""The form of a notebook: its widgets, and the actions of its buttons.

*Preview* and *Apply* run the notebook headlessly in a separate process, so that a run from the form leaves the same
record as a command, and no cell runs out of order.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from runbook_lib import notebooks
from runbook_lib.errors import NoSuchBranch, RunbookError
from runbook_lib.forms import fields, html, widgets
from runbook_lib.forms.form_target import FormTarget, Values
from runbook_lib.notebook import child
from runbook_lib.notebook.child import FollowedRun
from runbook_lib.pins.repositories import MEGATRON_LM
from runbook_lib.records import cards
from runbook_lib.records.cards import Card
from runbook_lib.records.run_view import RunView
from runbook_lib.text.notebook_file import NotebookSource
from runbook_lib.world import repository

#: Seconds between two reads of a run's record.
_INTERVAL = 0.2
#: Consecutive failed reads after which a run that has ended is reported without its record.
_MAX_FAILED_READS = 10
#: Seconds from the last change of a field until its choices are queried.
_PAUSE = 0.4
_SUCCESS = ("done", "waiting", "previewed")
_STALE = "The values have changed since the plan was shown. Preview again: Apply does exactly what was shown."
_PREVIEW_FIRST = "Preview first: Apply does exactly what was shown."
_TYPE = "Type {} to confirm: published changes cannot be undone."
_TYPE_PRACTICE = "Type {} to confirm, as in a real bump. In practice nothing leaves this machine."
#: Parameters that give a notebook something to apply without a tag.
_WITHOUT_TAG = {notebooks.GOLDEN_VALUES: ("run_id",), notebooks.BROKEN_TESTS: ("decisions",)}
_NO_TAG = "Choose a tag, then preview. Without a tag there is nothing to apply."


@dataclass(frozen=True)
class ShownPlan:
    """A plan that the user has seen: the form's values, and the run that made the plan."""

    values: Values
    run: RunView
    answers: Mapping[str, Mapping[str, str]]

    @property
    def publishes(self) -> bool:
        """True if applying the plan may change something outside this machine."""
        return any(effect["publish"] for effect in self.run.planned)


class Form:
    """A form: its widgets, and the actions of its buttons.  Slow work is done in threads."""

    def __init__(
        self,
        notebook: Path,
        namespace: Mapping[str, object],
        *,
        applies: bool,
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        source = NotebookSource.read(notebook)
        self.notebook, self.applies, self._on_progress = notebook, applies, on_progress
        self.fields = fields.fields(source.parameters)
        self._total_steps = len(notebooks.STEPS) if notebook.stem == notebooks.BUMP else 0
        self._plan: ShownPlan | None = None
        self._repository = MEGATRON_LM
        self._running: FollowedRun | None = None
        self._lock = threading.Lock()
        #: The number of the latest query of choices, so that results of earlier queries are dropped.
        self._query = 0
        self._query_problems: dict[str, str] = {}
        self._is_prepared = False
        values = {field.name: namespace.get(field.name, field.default) for field in self.fields}
        self.view = widgets.Widgets(self.fields, values, applies=applies)
        self.root = self.view.root
        self.view.on_change(self._changed)
        self.view.preview.on_click(lambda _: self._start(apply=False))
        self.view.apply.on_click(lambda _: self._start(apply=True))
        self.view.cancel.on_click(lambda _: self._cancel())
        self.view.show_problems({}, {})
        self._refresh()

    @property
    def busy(self) -> bool:
        """True while the form follows a run."""
        return self._running is not None

    def target(self) -> FormTarget:
        """Return the bump described by the current values."""
        return FormTarget(self.view.values(), self.notebook, self._repository)

    # -- choices and decisions -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """In the background, prepare the form, query the choices, and follow this bump's run if one is in progress."""

        def work() -> None:
            self.prepare()
            self.view.focus()
            self._in_background(self._attach)
            self._offer_choices(self._query)

        self._in_background(work)

    def prepare(self) -> None:
        """Open the checkout, choose the tag of the bump in flight unless one is chosen, and check the values."""
        target = self.target()
        if target.values.get("tag") == "":
            with suppress(RunbookError):  # a problem with the checkout is shown below its field
                self.view.choose_tag(target.tag_in_flight())
        self._is_prepared = True
        self._changed("")

    def _attach(self) -> None:
        target = self.target()
        run = child.find_run(target.archive(), target.folder())
        with self._lock:
            if run is None or self._running is not None:
                return
            self._running = run
        self._refresh()
        self._follow(run, {}, apply=True)

    def _query_later(self, query: Callable[[int], None]) -> None:
        """Run a query after no field has changed for a moment."""
        number = self._query = self._query + 1

        def wait() -> None:
            time.sleep(_PAUSE)
            if number == self._query:
                query(number)

        self._in_background(wait)

    def _offer_choices(self, query: int, *, keep: bool = True) -> None:
        """Offer tags, runs and decisions, unless another query has started since."""
        from runbook_lib.forms import choices  # it imports the clients, which nobody should wait for to see a form

        target = self.target()
        try:
            pinned = choices.pinned_tags(target.checkout(), target.bump(tag=False))
            tags = choices.tags(target.place().services, self._repository, pinned)
            if query == self._query:
                self.view.offer("tag", tags)
        except NoSuchBranch as error:
            self._query_problems["base"] = str(error)
            self._changed("query")
            return
        except RunbookError as error:
            self.view.show_hint("tag", str(error))
        self._offer_decisions(query, keep=keep)

    def _check_tag(self, query: int) -> None:
        """Show a problem if the registry does not have the tag; the offered tags are not checked."""
        from runbook_lib.forms import choices

        target = self.target()
        bump = target.bump()
        if self.view.offers("tag", bump.target):
            return
        problem = choices.tag_problem(target.place().services, bump)
        if problem and query == self._query:
            self._query_problems["tag"] = problem
            self._changed("query")

    def _offer_decisions(self, query: int, *, keep: bool = True) -> None:
        with suppress(RunbookError):  # the run itself reports why the registry cannot be queried
            self._check_tag(query)
        with suppress(RunbookError):
            cards = self._cards()
            if query == self._query:
                self.view.cards.offer(cards, keep=keep)
        self._offer_runs(query)

    def _cards(self) -> tuple[Card, ...]:  # those that this notebook can apply; raises RunbookError
        target = self.target()
        if "decisions" not in target.values:
            return ()
        offers = self.notebook.stem == notebooks.BROKEN_TESTS
        return cards.read(target.folder(), target.decisions(), offers=offers)

    def _offer_runs(self, query: int) -> None:
        from runbook_lib.forms import choices

        target = self.target()
        if "run_id" not in target.values:
            return
        try:
            place, bump = target.place(), target.bump()
            if bump.tag is None:
                return
            checkout = place.checkout
            github = place.services.forge(checkout.repository(), required=bump.publish)
            with closing(github) if github else nullcontext():
                runs = choices.runs(checkout, bump, github)
            if query == self._query:
                self.view.offer("run_id", runs)
        except RunbookError as error:
            self.view.show_hint("run_id", str(error))

    # -- changes of the fields -----------------------------------------------------------------------------------

    def _changed(self, name: str) -> None:
        values = self.view.values()
        if name in values:
            self.view.clear_error()
            self._query_problems.pop(name, None)
        invalid, problems, advice = {}, {}, {}
        if incomplete := self.view.cards.problem:
            problems["decisions"] = incomplete
        for field, value in values.items():
            advice[field] = fields.advice(field, value)
            if problem := fields.problem(field, value, self._repository):
                invalid[field] = problem
        if name in ("", "repo") and "repo" not in invalid:
            self._query_problems = {}
            try:
                self._repository = repository.choose(self.target().checkout())
            except RunbookError as error:
                self._query_problems[name or "repo"] = str(error)
        problems |= self._query_problems | invalid
        self.view.show_problems(problems, advice)
        if name in ("tag", "repo", "base", "image_type"):
            self.view.cards.offer([], keep=False)  # earlier decisions concerned another image
            if not problems:
                query = self._offer_choices
                if name == "tag":
                    query = self._offer_decisions
                self._query_later(lambda number: query(number, keep=False))
        self._refresh()

    def _refresh(self) -> None:
        """Enable and disable the buttons, and show why Apply is disabled."""
        view, plan, target = self.view, self._plan, self.target()
        blocked = self.busy or bool(view.problems) or not self._is_prepared
        is_current = plan is not None and plan.values == target.values and plan.answers == view.cards.answers
        word = ""
        unconfirmed = False
        if plan is not None and is_current and target.publishes and plan.publishes and not self.busy:
            word = self._confirmation_word()
            unconfirmed = not word or view.typed != word
        view.request_confirmation(word)
        view.preview.disabled = blocked
        view.apply.disabled = blocked or not is_current or unconfirmed
        view.dim_plan(dim=plan is not None and not is_current)
        if blocked or not self.applies:
            view.show_warning("")
        elif plan is None:
            view.show_next_action(_PREVIEW_FIRST if self._has_subject(target.values) else _NO_TAG)
        elif not is_current:
            view.show_warning(_STALE)
        elif unconfirmed:
            request = (_TYPE_PRACTICE if target.practice else _TYPE).format(word)
            if view.typed and not word.startswith(view.typed):
                request += f" {view.typed!r} is not {word}."
            view.show_next_action(request)
        else:
            view.show_next_action("")

    def _has_subject(self, values: Mapping[str, str | bool]) -> bool:
        """Return True if there is something to apply: a bump, or the subject of one of these parameters."""
        names = _WITHOUT_TAG.get(self.notebook.stem, ())
        return any(values.get(name) for name in ("tag", *names)) or (
            "decisions" in names and bool(self.view.cards.saved)
        )

    def _confirmation_word(self) -> str:
        """Return the word to type to confirm: the tag, or without a tag the base branch."""
        with suppress(RunbookError):
            bump = self.target().bump()
            return str(bump.tag or bump.base)
        return ""

    # -- runs ----------------------------------------------------------------------------------------------------

    def _start(self, *, apply: bool) -> None:
        with self._lock:  # a double click, or the notebook open in two tabs
            if self._running is not None:
                return
            self._refresh()
            button = self.view.apply if apply else self.view.preview
            if button.disabled:
                return  # a field changed just before the click
            target, shown = self.target(), ""
            if apply and self._plan is not None:
                target = FormTarget(self._plan.values, self.notebook, self._repository)
                shown = self._plan.run.fingerprint
            parameters = dict(target.values)
            if "mode" in parameters:
                parameters["mode"] = target.mode if apply else "preview"
            try:
                folder = target.folder()
                if not apply:
                    if not target.values.get("tag") and not self.view.cards.saved:
                        target.decisions().unlink(missing_ok=True)  # of another change of quarantined tests
                    self.view.cards.save(target.decisions)
                if not target.values.get("tag") and self.view.cards.saved:  # then a run reads only a named file
                    parameters["decisions"] = str(target.decisions())
                child.require_no_other_run(target.archive(), practice=target.practice)
                env = {**os.environ, "RUNBOOK_AUDIT": str(target.archive())}
                run = child.start(self.notebook, parameters, folder, shown=shown, env=env)
            except RunbookError as error:
                self.view.show_error(str(error))
                self._refresh()
                return
            self._running = run
        self.view.clear()
        self.view.cancel.focus()
        self._refresh()
        self._in_background(lambda: self._follow(run, target.values, apply=apply))

    def _cancel(self) -> None:
        running = self._running
        if running is None:
            self.view.show_next_action("There is no run to cancel.")
            return
        try:
            running.cancel()
        except RunbookError as error:
            self.view.show_error(str(error))

    def _follow(self, followed: FollowedRun, values: Values, *, apply: bool) -> None:
        try:
            run = self._watch(followed, self._on_progress if apply else None)
            self._finish(run, followed.failure(), values, apply=apply)
        finally:
            followed.close()
            self._running = None
            self._refresh()
        if self._on_progress is not None:
            self._on_progress()
        self._offer_runs(self._query)

    def _watch(self, followed: FollowedRun, on_progress: Callable[[], None] | None) -> RunView | None:
        """Show the progress of a run until it ends, and return its record."""
        started, run, failed_reads, shown = time.monotonic(), None, 0, ""
        while True:
            has_ended = followed.has_ended(run)
            try:
                run, failed_reads = followed.read(), 0
            except OSError:  # the archive may be readable again in a moment
                failed_reads += 1
            progress = html.progress(run, followed.output(), time.monotonic() - started, self._total_steps)
            label = html.progress_label(run, self._total_steps)
            self.view.show_progress(progress, label)
            if on_progress is not None and run is not None and label != shown:
                on_progress()
                shown = label
            if has_ended and (failed_reads == 0 or failed_reads >= _MAX_FAILED_READS):
                return run
            time.sleep(_INTERVAL)

    def _finish(self, run: RunView | None, failure: str, values: Values, *, apply: bool) -> None:
        """Show the plan of a preview, the result of a run, or its error."""
        view, target = self.view, self.target()
        succeeded = run is not None and run.state in _SUCCESS
        with suppress(RunbookError):  # before the result, because it refers to the decisions
            view.cards.offer(self._cards(), keep=not (apply and succeeded))
        open_cards = len(view.cards.open)
        if succeeded:
            self._plan = None
        if run is None:
            view.show_error(failure)
        elif succeeded and self.applies and not apply:
            self._plan = ShownPlan(values, run, dict(view.cards.saved)) if self._has_subject(values) else None
            view.show_plan(html.plan(run, publish=target.publishes, practice=target.practice, open_cards=open_cards))
        else:
            if run.state == html.FAILED:
                view.show_error(run.sentence)
            outputs = run.plan_html() if succeeded and not self.applies else ""
            view.show_result(html.result(run, open_cards=open_cards) + outputs)
        if succeeded and open_cards:
            view.cards.open[0].focus()
        else:
            view.show_end()

    def _in_background(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except RunbookError as error:
                self.view.show_error(str(error))
            finally:
                fault = sys.exc_info()[1]
                if fault is not None:  # the thread's exception hook writes the traceback to the log
                    self.view.show_error(
                        f"The form itself failed: {type(fault).__name__}: {fault}. The kernel's log has the "
                        "traceback. Run this cell again. A run that was started continues, and the start page shows it."
                    )

        threading.Thread(target=run, daemon=True, name="form").start()
