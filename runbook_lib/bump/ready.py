"""The last step of a bump: whether it is ready to merge, from every requirement read again, and what is missing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from runbook_lib import display, notebooks
from runbook_lib.bump import branch_history, gitlab_tests, policy, sync_survey
from runbook_lib.bump.people import Head, left_to_people
from runbook_lib.errors import RunbookError
from runbook_lib.failures import quarantines
from runbook_lib.golden import comparison
from runbook_lib.golden.ci_runs import failed
from runbook_lib.model import Evidence, Next, Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import join_first
from runbook_lib.world.bump_branch import BumpBranch, read_state
from runbook_lib.world.github.ci_status import platform_of
from runbook_lib.world.github.copy_pr_bot import commands
from runbook_lib.world.ports import Forge, World

NAME = notebooks.READY

State = Literal["met", "missing", "unknown", "inapplicable"]
#: A step of this run, as the record has it (``Recorder.steps``).
RecordedStep = Mapping[str, Any]

#: The requirements in words, by kind.
NAMES = {
    "hold": "no hold by a person",
    "authorization": "authorization of the head commit",
    "ci": "a green CI run of the head commit",
    "commits": "commits that are the runbook's own or confirmed",
    "signatures": "signed commits",
    "pins": "pins that agree on that commit",
    "values": "golden values without open decisions",
    "issues": "an open issue for every broken test",
    "downstream": "the downstream tests that a label asks for",
    "second ci": "a green pipeline on GitLab",
    "push": "a push of the local commits",
}
#: The exception for a pipeline that was not looked at.
UNSEEN = "second-ci-unseen"
_MARKS = {"met": "✓ met", "missing": "✗ missing", "unknown": "? unknown", "inapplicable": "– does not apply"}
_LIFT = "Fix the cause, or bump to another image. To lift the hold, remove line {line} of {file}."
_START = "Start one with internal-ci"
#: The links of a bump's record to the runs of the checked commit.
_LINKS: Mapping[str, str] = {"ci": "CI run", "second ci": "GitLab pipeline"}
#: The questions that leave a requirement open.
_ASKED: Mapping[str, str] = {"values": "accept", "issues": "broken"}


@dataclass(frozen=True)
class Requirement:
    """A requirement for the merge: unknown if it could not be looked at, inapplicable if the repository has none.

    It rests on the people's ``decisions``: accepted dangers, or the exception for what is unknown.  ``running``: CI
    will decide it without a person.  ``url`` leads to the run or pipeline of the checked commit.
    """

    kind: str
    state: State
    evidence: str
    next: Next = field(default_factory=Next)
    decisions: tuple[str, ...] = ()
    running: bool = False
    url: str = ""

    @property
    def name(self) -> str:
        """The requirement in words."""
        return NAMES[self.kind]

    @property
    def blocks(self) -> bool:
        """False if it is met, or unknown and a person does without it."""
        return self.state == "missing" or (self.state == "unknown" and not self.decisions)


@dataclass(frozen=True)
class ReadyFacts:
    """The requirements for the merge of head commit ``commit``, and ``people``: what is left to them once all are met.

    ``problem`` is the reason why nothing was checked, and ``steps`` are the last results of this run's steps.
    """

    requirements: tuple[Requirement, ...] = ()
    people: tuple[str, ...] = ()
    problem: str = ""
    commit: str = ""
    steps: tuple[RecordedStep, ...] = ()


def look(world: World, bump: Bump) -> ReadyFacts:
    """Read every requirement again.  Changes nothing."""
    steps = {step["name"]: step for step in world.journal.steps if step["name"] != NAME}
    found = check(BumpBranch.look(world, bump), world.github, world.records)
    return replace(found, steps=tuple(steps.values()))


def plan(facts: ReadyFacts, bump: Bump) -> Plan[World]:
    """Return the outcome of the bump: its plan, ready to merge, or everything that is missing."""
    if facts.problem:
        return _without_requirements(facts, bump)
    found = tuple(_reopened(each, facts.steps) for each in facts.requirements)
    rows = (
        {"before the merge": each.name, "outcome": _MARKS[each.state], "found": each.evidence, "next": each.next}
        for each in found
    )
    shown = (_table(facts.steps), display.table(rows) + display.notes(facts.people, title="Left to people"))
    links: dict[str, str | None] = dict.fromkeys(_LINKS.values())  # steps may have linked runs of earlier commits
    links |= {_LINKS[each.kind]: each.url for each in found if each.kind in _LINKS and each.url}
    as_json = [{**asdict(each), "name": each.name, "blocks": each.blocks} for each in found]
    inputs: dict[str, object] = {"requirements": as_json, "checked_commit": facts.commit}
    if missing := [each for each in found if each.blocks]:
        return Plan(Outcome(""), shown, waiting=_not_ready(missing, facts.steps), evidence=Evidence(inputs, links))
    limit = ""
    if any(each.kind == "ci" and each.state == "inapplicable" for each in found):
        limit = ", except for CI, which is not followed here"
    else:
        inputs["ready_commit"] = facts.commit
    unseen = (each.name for each in found if each.state == "unknown")
    limit += "".join(f", except for {name}, which nobody has seen" for name in unseen)
    used = [bump.allowed(name, each.evidence) for each in found for name in each.decisions]
    sentence = f"Ready to merge{limit}: every requirement was checked and is met."
    evidence = Evidence(inputs, links, decided=tuple(filter(None, used)))
    return Plan(Outcome(sentence, Next(" ".join(facts.people))), shown, evidence=evidence)


def _reopened(requirement: Requirement, steps: Iterable[RecordedStep]) -> Requirement:
    """Return a requirement as missing if a question of this run leaves it open.

    The branch meets it, because nothing is committed before it is decided.
    """
    asked = [question for step in steps for question in step["decisions"]]
    subjects = [str(each["subject"]) for each in asked if each["kind"] == _ASKED.get(requirement.kind)]
    if not subjects:
        return requirement
    sentence = f"{join_first(subjects, 4)} {display.be(len(subjects))} to be decided."
    return replace(requirement, state="missing", evidence=sentence)


def _without_requirements(facts: ReadyFacts, bump: Bump) -> Plan[World]:
    """Return the outcome of a preview, or of a bump that has no pull request: that of its steps."""
    shown = (_table(facts.steps), display.note(facts.problem))
    if bump.tag is None:
        return Plan(Outcome("Without a tag nothing is planned.", Next.again(tag="26.04-py3")), shown)
    planned = dict.fromkeys(str(each["sentence"]) for step in facts.steps for each in step["planned"])
    for each in bump.decisions.of("hold"):
        planned[f"end with “do not merge”: {each.subject}: {each.reason}"] = None
    waiting = next((step for step in facts.steps if step["state"] == "waiting"), None)
    last = waiting or facts.steps[-1]
    sentence, action = last["outcome"]["sentence"], _next(last)
    if waiting:
        sentence = f"{waiting['name']}: {sentence}"
    if not bump.apply and (planned or not waiting):
        nothing = "nothing to change; a run that publishes checks whether it is ready"
        would = f"would {'; '.join(planned)}" if planned else nothing
        now = f" Now {sentence}" if waiting else ""
        sentence, action = f"Preview: {would}.{now}", Next.again("Run it:", mode="publish")
    outcome = Outcome(sentence, action)
    return Plan(outcome, shown, waiting=outcome if waiting else None, only_reads=True)


def _table(steps: Sequence[RecordedStep]) -> display.View:
    """Show the steps and their results."""
    return display.table(
        {
            "step": each["name"],
            "outcome": display.mark(each["state"], each["warnings"]),
            "result": each["outcome"]["sentence"],
        }
        for each in steps
    )


def _not_ready(missing: Sequence[Requirement], steps: Sequence[RecordedStep]) -> Outcome:
    """Return a sentence about the missing requirements, and the next action."""
    if held := "; ".join(each.evidence for each in missing if each.kind == "hold"):
        return Outcome(f"{held[0].lower()}{held[1:]}", missing[0].next)
    names = f"not ready to merge; missing: {', '.join(each.name for each in missing)}"
    if len(missing) == 1:  # there is room for the details of a single one; otherwise the table has them
        names += f" ({missing[0].evidence.rstrip('.')})"
    last = [step for step in steps if step["name"] in notebooks.CI_ROUND]
    if count := sum(each["kind"] != "reenable" for step in last for each in step["decisions"]):
        return Outcome(names, Next.run(notebooks.REVIEW, f"Make {display.count(count, 'decision')}:"))
    actions = [_next(step) for step in last if step["state"] == "waiting" and _next(step)]
    # Later steps resolve what CI is waiting for.  All that a person does, and the last notebook:
    actions = actions[1:] or actions or [missing[0].next]
    because = dict.fromkeys(action.because for action in actions if action.because)
    return Outcome(names, replace(actions[-1], because=" ".join(because)), all(each.running for each in missing))


def _next(step: RecordedStep) -> Next:
    return Next(**step["outcome"]["next"])


def check(branch: BumpBranch, github: Forge | None, records: Path | None = None) -> ReadyFacts:
    """Check the CI run of the head commit, its pins, golden values, issues and GitLab.  Changes nothing.

    ``records`` is the bump's folder in the archive.
    """
    bump = branch.bump
    if bump.tag is None or github is None or not bump.apply:
        return ReadyFacts(problem="Readiness to merge is not checked in a preview.")
    state = read_state(branch, github)
    pull = state.pull
    if pull is None:
        return ReadyFacts(problem=state.problem or "There is no pull request, so there is nothing to merge.")
    review = branch_history.review_pull(branch, pull, records, mine=state.is_mine)
    if review is None:
        unseen = f"#{pull.number} is at {pull.head_sha[:10]}, which cannot be fetched, so nothing was looked at."
        return ReadyFacts((Requirement("commits", "unknown", unseen, Next.again()),), commit=pull.head_sha)
    head = Head(branch, state, pull, github, review)
    requirements: list[Requirement] = []
    holds = bump.decisions.of("hold")
    for each in holds:
        lift = _LIFT.format(line=each.line, file=bump.decisions.file)
        requirements.append(Requirement("hold", "missing", f"Do not merge: {each.subject}: {each.reason}", Next(lift)))
    for kind, (step, check_requirement) in _CHECKS.items():
        if reason := bump.repository.inapplicable(step):
            requirements.append(Requirement(kind, "inapplicable", reason))
            continue
        try:
            requirements += check_requirement(head)
        except RunbookError as error:  # one unavailable answer must not hide the others
            requirements.append(Requirement(kind, "unknown", str(error), Next.again()))
    people: list[str] = []
    if not holds:
        accepted = ["; ".join(each.decisions) for each in requirements if each.kind == "values" and each.decisions]
        people += (f"Reviewers: a person accepted {dangers}. Read its plot before the merge." for dangers in accepted)
        people += left_to_people(head)
    return ReadyFacts(tuple(requirements), tuple(people), commit=pull.head_sha)


def _met(kind: str, ok: bool, evidence: str, action: Next, decisions: tuple[str, ...] = ()) -> Requirement:
    """Return a requirement that was looked at; the action is for one that is missing."""
    return Requirement(kind, "met" if ok else "missing", evidence, Next() if ok else action, decisions)


def _check_ci(head: Head) -> Iterator[Requirement]:
    pull, status = head.pull, head.ci
    authors = ", ".join(comment.author for comment in commands(head.state.comments, pull.head_sha))
    if not authors and status.run:
        authors = "copy-pr-bot"
    detail = f"{pull.head_sha[:10]}, by {authors or 'nobody'}."
    yield _met("authorization", bool(authors), detail, Next.run(notebooks.RUN_CI))
    if status.state == "failed":
        red = {f"{job.name.partition(' - ')[0]} on {platform_of(job)}" for job in failed(status.jobs)}
        soft = set[str]()
        for test in quarantines.quarantined_since_fork(head.branch, pull.head_sha):
            if head.branch.bump.image_type in test.soft:
                soft |= {f"{test.test} on {platform}" for platform in test.platforms.split(", ")}
        if red and red <= soft:
            yield Requirement("ci", "met", f"Red but explained: {', '.join(sorted(red))} may fail (soft).")
            return
    passed = status.state == "passed"
    detail = f"{status.text.rstrip('.')}."
    if passed:
        moved = f", which has since moved by {head.state.behind} commits." if head.state.behind else " as it is."
        detail += f" It tested the merge with {pull.base_ref}{moved}"
    running = status.run is not None and not status.is_over
    url = status.run.url if status.run else ""
    yield Requirement("ci", "met" if passed else "missing", detail, status.next, running=running, url=url)


def _check_commits(head: Head) -> Iterator[Requirement]:
    review = head.review
    if review.foreign:
        yield Requirement("commits", "missing", f"{review.waiting.sentence}.", review.waiting.next)
    else:
        yield Requirement("commits", "met", f"{display.count(review.commits, 'commit')}.")


def _check_signatures(head: Head) -> Iterator[Requirement]:
    """Yield the requirement where the repository asks for signed commits."""
    if policy.document(head.branch.checkout, head.branch.bump):
        found = policy.signatures(head.branch, head.pull.head_sha, head.review.commits)
        yield _met("signatures", *found)


def _check_pins(head: Head) -> Iterator[Requirement]:
    bump = head.branch.bump
    survey = sync_survey.survey(
        head.branch.checkout, [head.pull.head_sha], expected=bump.tag, image_type=bump.image_type,
        repository=bump.repository, of_bump=True,
    )  # fmt: skip
    states: dict[str, State] = {"in sync": "met", "out of sync": "missing"}
    action = Next() if survey.outcome == "in sync" else Next.run(notebooks.SYNC_CHECK)
    yield Requirement("pins", states.get(survey.outcome, "unknown"), survey.summary, action)


def _check_values(head: Head) -> Iterator[Requirement]:
    verdicts = comparison.judge_branch(head.branch)
    files = [file.file for file in verdicts.stopped]
    # A group's files may have been committed by hand: a person must decide on the group anyway.
    files += [group.id for group in verdicts.groups if not group.accepted]
    action = Next.run(notebooks.GOLDEN_VALUES, "Decide on them.")
    detail = f"The branch changes {display.count(len(verdicts.judgements), 'golden file')}; none is held back."
    if files:
        detail = f"{join_first(files, 4)} {display.be(len(files))} held back."
    yield _met("values", not files, detail, action, tuple(verdicts.accepted_dangers))


def _check_issues(head: Head) -> Iterator[Requirement]:
    tests = quarantines.quarantined_since_fork(head.branch, head.pull.head_sha)
    problems = []
    for test in tests:
        if not test.issue:
            problems.append(f"{test.test} has no issue")
        elif not (issue := head.github.issue(test.issue)).is_open:
            problems.append(f"#{issue.number} for {test.test} is {'a pull request' if issue.is_pull else issue.state}")
    marked = f"{head.pull.head_sha[:10]} marks {display.count(len(tests), 'test')}"
    action = Next("File one, and name it in the comment above the row.")
    yield _met("issues", not problems, f"{'; '.join(problems) or marked}.", action)


def _check_downstream(head: Head) -> Iterator[Requirement]:
    """Yield a requirement for each suite of another project whose label the pull request has."""
    for label, name in head.state.bump.repository.ci.downstream.items():
        if label not in head.pull.labels:
            continue
        job = next((job for job in head.ci.jobs if job.name == name and job.conclusion != "skipped"), None)
        if job is None:
            evidence = f"The label {label!r} is set, but the run of {head.pull.head_sha[:10]} has no job {name}."
            action = Next("Start CI again, which reads the label at its start, or remove the label.")
            yield Requirement("downstream", "unknown", evidence, action, running=not head.ci.is_over)
            continue
        evidence, running = f"{name}: {job.conclusion or job.status}.", job.status != "completed"
        action = Next.again() if running else Next(f"Read {job.url}, and fix it, or remove the label {label!r}.")
        met: State = "met" if job.conclusion == "success" else "missing"
        yield Requirement("downstream", met, evidence, action, running=running, url=job.url)


def _check_gitlab(head: Head) -> Iterator[Requirement]:
    branch, short = head.branch, head.pull.head_sha[:10]
    try:
        gitlab = branch.services.second_ci()
        if gitlab is None:
            yield _unseen(branch.bump, "GITLAB_URL is not set, so nobody looked for the pipeline.", "Set it")
            return
        pipelines = gitlab.pipelines(head.pull.head_sha)
    except RunbookError as error:
        yield _unseen(branch.bump, str(error), "Run bump again")
        return
    if gitlab_tests.applies(branch.bump) and not (pipelines := gitlab_tests.testing(gitlab, pipelines)):
        action = Next.run("internal-ci", "Only pipelines with tests run them in the LTS image:", tests="mr")
        yield Requirement("second ci", "missing", f"No pipeline for {short} runs the lts tests.", action)
    elif not pipelines:
        yield _unseen(branch.bump, f"{short} has no pipeline.", _START)
    else:
        found = pipelines[0]
        detail = f"Pipeline {found.id} for {short}: {found.status}. {found.url}"
        if found.status == "skipped":
            yield _unseen(branch.bump, detail, _START, found.url)
        else:
            action = Next.run(notebooks.GOLDEN_VALUES) if found.status == "failed" else Next.again()
            passed = _met("second ci", found.status == "success", detail, action)
            yield replace(passed, url=found.url)


def _unseen(bump: Bump, detail: str, action: str, url: str = "") -> Requirement:
    """Return the requirement for a pipeline whose tests nobody saw; a person may do without it."""
    decisions = (UNSEEN,) if bump.allowed(UNSEEN, detail) else ()
    advice = f"{action}, or do without it: {bump.decisions.advice('allow', UNSEEN)}."
    return Requirement("second ci", "unknown", detail, Next() if decisions else Next(advice), decisions, url=url)


def _check_pushed(head: Head) -> Iterator[Requirement]:
    branch, pull = head.branch, head.pull
    detail = f"{branch.start[:10]} here, {pull.head_sha[:10]} on #{pull.number}."
    action = Next.run(notebooks.BROKEN_TESTS, "Push it:")
    if not head.state.is_mine:
        ref = f"refs/pull/{pull.number}/head:{branch.bump.branch}"
        action = Next(f"Fetch it, so that its values are compared: git fetch {branch.base_remote} {ref}")
    yield _met("push", branch.start == pull.head_sha, detail, action)


#: Each requirement with the step that may not apply to a repository, and its check.
_CHECKS: Mapping[str, tuple[str, Callable[[Head], Iterable[Requirement]]]] = {
    "ci": (notebooks.RUN_CI, _check_ci),
    "commits": ("", _check_commits),
    "signatures": ("", _check_signatures),
    "pins": ("", _check_pins),
    "values": (notebooks.GOLDEN_VALUES, _check_values),
    "issues": (notebooks.BROKEN_TESTS, _check_issues),
    "downstream": (notebooks.RUN_CI, _check_downstream),
    "second ci": (notebooks.GITLAB_PIN, _check_gitlab),
    "push": ("", _check_pushed),
}
