"""The last step of a bump: whether it is ready to merge, from every requirement read again, and what is missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runbook_lib import display, notebooks
from runbook_lib.bump import readiness
from runbook_lib.bump.readiness import Readiness, Requirement
from runbook_lib.checks import Evidence, Next
from runbook_lib.model import Outcome, Plan
from runbook_lib.pins.bump import Bump
from runbook_lib.text.lists import join_first
from runbook_lib.world import bump_branch
from runbook_lib.world.outside import World

#: The links of a bump's record to the runs of the checked commit.
_LINKS: Mapping[str, str] = {"ci": "CI run", "second ci": "GitLab pipeline"}
#: The questions that leave a requirement open.
_ASKED: Mapping[str, str] = {"values": "accept", "issues": "broken"}
#: A step of this run, as the record has it (``Recorder.steps``).
RecordedStep = Mapping[str, Any]


@dataclass(frozen=True)
class ReadyFacts:
    """The requirements for the merge, and the last result of each step of this run."""

    readiness: Readiness
    steps: tuple[RecordedStep, ...]


@dataclass(frozen=True)
class Ready:
    """The step."""

    NAME: ClassVar[str] = notebooks.READY

    def look(self, world: World, bump: Bump) -> ReadyFacts:
        """Read every requirement again.  Changes nothing."""
        steps = {step["name"]: step for step in world.journal.steps if step["name"] != self.NAME}
        found = readiness.check(bump_branch.look(world, bump), world.github, world.records)
        return ReadyFacts(found, tuple(steps.values()))

    def plan(self, facts: ReadyFacts, bump: Bump) -> Plan[World]:
        """Return the outcome of the bump: its plan, ready to merge, or everything that is missing."""
        requirements = tuple(_reopened(each, facts.steps) for each in facts.readiness.requirements)
        found = replace(facts.readiness, requirements=requirements)
        shown = (_table(facts.steps), found.show())
        if found.problem:
            return _without_requirements(facts, bump, shown)
        links: dict[str, str | None] = dict.fromkeys(_LINKS.values())  # steps may have linked runs of earlier commits
        links |= {_LINKS[each.kind]: each.url for each in found.requirements if each.kind in _LINKS and each.url}
        as_json = [each.as_json() for each in found.requirements]
        inputs: dict[str, object] = {"requirements": as_json, "checked_commit": found.commit}
        if found.missing:
            waiting = _not_ready(found.missing, facts.steps)
            return Plan(Outcome(""), shown, waiting=waiting, evidence=Evidence(inputs, links))
        limit = ""
        if any(each.kind == "ci" and each.state == "inapplicable" for each in found.requirements):
            limit = ", except for CI, which is not followed here"
        else:
            inputs["ready_commit"] = found.commit
        used = (bump.allowed(name, each.evidence) for each in found.requirements for name in each.decisions)
        limit += "".join(f", except for {unseen.name}, which nobody has seen" for unseen in found.unseen)
        done = Outcome(
            f"Ready to merge{limit}: every requirement was checked and is met.", Next(" ".join(found.people))
        )
        return Plan(done, shown, evidence=Evidence(inputs, links, decided=tuple(filter(None, used))))


def _reopened(requirement: Requirement, steps: Iterable[RecordedStep]) -> Requirement:
    """Return a requirement as missing if a question of this run leaves it open.

    The branch meets it, because nothing is committed before it is decided.
    """
    asked = [question for step in steps for question in step["decisions"]]
    subjects = [str(each["subject"]) for each in asked if each["question"] == _ASKED.get(requirement.kind)]
    if not subjects:
        return requirement
    sentence = f"{join_first(subjects, 4)} {display.be(len(subjects))} to be decided."
    return replace(requirement, state="missing", evidence=sentence)


def _without_requirements(facts: ReadyFacts, bump: Bump, shown: tuple[display.View, ...]) -> Plan[World]:
    """Return the outcome of a preview, or of a bump that has no pull request: that of its steps."""
    planned = dict.fromkeys(str(each["sentence"]) for step in facts.steps for each in step["planned"])
    waiting = next((step for step in facts.steps if step["state"] == "waiting"), None)
    if bump.tag is None:
        return Plan(Outcome("Without a tag nothing is planned.", Next.again(tag="26.04-py3")), shown)
    for each in bump.decisions.of("hold"):
        planned[f"end with “do not merge”: {each.subject}: {each.reason}"] = None
    would = f"Preview: would {'; '.join(planned)}."
    publish = Next.again("Run it:", mode="publish")
    if waiting is not None:
        sentence, action = f"{waiting['name']}: {waiting['outcome']['sentence']}", _next(waiting)
        if planned and not bump.apply:
            sentence, action = f"{would} Now {sentence}", publish
        return Plan(Outcome(""), shown, waiting=Outcome(sentence, action), only_reads=True)
    last = facts.steps[-1]["outcome"]
    if bump.apply:
        return Plan(Outcome(last["sentence"], _next(facts.steps[-1])), shown)
    if planned:
        return Plan(Outcome(would, publish), shown)
    nothing = f"Preview: nothing to change; a run that publishes checks whether it is ready. {last['sentence']}"
    return Plan(Outcome(nothing, publish), shown)


def _table(steps: Iterable[RecordedStep]) -> display.View:
    """Show the steps and their results."""
    return display.table(
        {
            "step": step["name"],
            "outcome": display.mark(step["state"], step["warnings"]),
            "result": step["outcome"]["sentence"],
            "links": " ".join(step["links"].values()),
        }
        for step in steps
    )


def _not_ready(missing: Sequence[Requirement], steps: Sequence[RecordedStep]) -> Outcome:
    """Return a sentence about the missing requirements, and the next action."""
    if held := "; ".join(each.evidence for each in missing if each.kind == "hold"):
        return Outcome(f"{held[0].lower()}{held[1:]}", missing[0].next)
    names = f"not ready to merge; missing: {', '.join(each.name for each in missing)}"
    if len(missing) == 1:  # there is room for the details of a single one; otherwise the table has them
        names += f" ({missing[0].evidence.rstrip('.')})"
    last = [step for step in steps if step["name"] in notebooks.CI_ROUND]
    count = sum(each["question"] != "reenable" for step in last for each in step["decisions"])
    if count:
        action = Next.run(notebooks.REVIEW, f"Make {display.count(count, 'decision')}:")
        return Outcome(names, action)
    actions = [_next(step) for step in last if step["state"] == "waiting" and _next(step)]
    # Later steps resolve what CI is waiting for.
    return Outcome(names, _all(actions[1:] or actions or [missing[0].next]), all(each.running for each in missing))


def _next(step: RecordedStep) -> Next:
    return Next.from_json(step["outcome"]["next"])


def _all(actions: Sequence[Next]) -> Next:
    """Return several as one: all that a person does, and the last notebook."""
    because = dict.fromkeys(action.because for action in actions if action.because)
    return replace(actions[-1], because=" ".join(because))
