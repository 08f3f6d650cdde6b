"""A repository's rules for contributors, a branch in a fork and signed commits, and the CI that it starts for them.

The filters of branches and paths in the triggers are left to the reader: GitHub alone knows how it matches them.
"""

from dataclasses import replace
from pathlib import PurePosixPath

from runbook_lib import display
from runbook_lib.errors import CannotTell
from runbook_lib.model import Awaited, Check, Next, Plan, Question
from runbook_lib.pins.bump import Bump
from runbook_lib.text import yaml_spans
from runbook_lib.text.lists import join_first
from runbook_lib.world.bump_branch import BumpBranch, head_of
from runbook_lib.world.conditions.commits import Pushed
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.ports import World

#: The exceptions from the policy.
UPSTREAM, UNSIGNED = "push-upstream", "unsigned-commits"
_FOLDER = ".github/workflows"
_PULL_REQUEST = ("pull_request", "pull_request_target")
NAMES = _FORK, _SIGNED = "the branch is pushed to a fork", "commits are signed"


def document(checkout: Checkout, bump: Bump) -> str:
    """Return the document with the policy; empty without one, and for a copy of the repository under another name."""
    repository = bump.repository
    return repository.ci.policy if checkout.repository().lower() == repository.name.lower() else ""


def goes_upstream(checkout: Checkout, bump: Bump) -> bool:
    """Return whether the bump's branch is pushed to the repository itself, and not to a fork."""
    owner = checkout.repository().partition("/")[0]
    return head_of(checkout, bump).partition(":")[0].lower() == owner.lower()


def checks(branch: BumpBranch) -> list[Check]:
    """Check the settings of this clone before a bump starts; the exceptions and the warnings are for later."""
    checkout, bump = branch.checkout, branch.bump
    if not (asking := document(checkout, bump)):
        return []
    problem = _upstream(checkout, bump)
    fork = Check.of(_FORK, not problem, problem or f"{bump.remote} is a fork.", "skipped")
    signs = checkout.git("config", "--type=bool", "--default=false", "--get", "commit.gpgSign") == "true"
    detail = "commit.gpgSign is set."
    if not signs:
        detail = (
            f"{asking} asks for signed commits, by which copy-pr-bot verifies their author, and commit.gpgSign is not "
            "set here. Set it with user.signingKey, before the first commit of the bump."
        )
    return [fork, Check.of(_SIGNED, signs, detail, "skipped")]


def _upstream(checkout: Checkout, bump: Bump) -> str:
    """Return why the branch must not be pushed where it goes without a person's decision; empty if it may be."""
    asking = document(checkout, bump)
    if not asking or not goes_upstream(checkout, bump):
        return ""
    return f"{bump.remote} is {checkout.repository()} itself, and {asking} asks for branches in a fork."


def with_fork(plan: Plan[World], checkout: Checkout, bump: Bump) -> Plan[World]:
    """Return a plan that pushes upstream only by a person's decision, where the repository asks for forks."""
    first = next((number for number, each in enumerate(plan.conditions) if isinstance(each, Pushed)), None)
    if first is None or not (problem := _upstream(checkout, bump)):
        return plan
    if allowed := bump.allowed(UPSTREAM):
        return replace(plan, evidence=replace(plan.evidence, decided=(*plan.evidence.decided, allowed)))
    action = f"Name the remote of your fork, or {bump.decisions.advice('allow', UPSTREAM)}."
    waits = Check(_FORK, "waiting", f"waiting for a fork: {problem}", Next.again(action, remote="fork"))
    question = Question("allow", UPSTREAM, problem)
    conditions = (*plan.conditions[:first], Awaited("choose a fork to push to", waits), *plan.conditions[first:])
    return replace(plan, conditions=conditions, questions=(*plan.questions, question))


def unsigned(branch: BumpBranch, head: str) -> tuple[str, ...]:
    """Return the commits from the base to ``head`` that have no signature, whatever it is worth: GitHub judges it."""
    raw = branch.checkout.git("rev-list", "--header", "--end-of-options", head, f"^{branch.base_commit}", "--")
    entries = [entry.lstrip("\n") for entry in raw.split("\0")]
    return tuple(entry[:10] for entry in entries if entry and "\ngpgsig" not in entry.partition("\n\n")[0])


def signatures(branch: BumpBranch, head: str, commits: int) -> tuple[bool, str, Next, tuple[str, ...]]:
    """Return whether the commits are signed or a person does without, with evidence, advice and the exception."""
    bump, missing = branch.bump, unsigned(branch, head)
    if not missing:
        return True, f"{display.count(commits, 'commit')}, each signed.", Next(), ()
    advice = bump.decisions.advice("allow", UNSIGNED)
    sign = f"git rebase --gpg-sign --force-rebase {branch.base_commit[:10]}"
    action = f"Sign them (`{sign}` on the branch, which makes other commits, to be confirmed), or {advice}."
    evidence = f"{len(missing)} of {display.count(commits, 'commit')} unsigned: {join_first(missing, 4)}."
    allowed = bool(bump.allowed(UNSIGNED, evidence))
    return allowed, evidence, Next(action), (UNSIGNED,) if allowed else ()


def describe_triggers(branch: BumpBranch) -> str:
    """Return a sentence about the CI that may start once this bump is pushed and its pull request opened."""
    checkout = branch.checkout
    on_push: list[str] = []
    on_pull_request: list[str] = []
    unknown = ""
    for file in checkout.list_files(branch.start, _FOLDER):
        if not file.endswith((".yml", ".yaml")):
            continue
        try:
            events = _events(checkout.read([file], branch.start)[file] or "")
        except CannotTell as error:
            unknown = f" Whether {file} starts is unknown, because it cannot be read: {error}"
            continue
        name = PurePosixPath(file).name
        on_push += [name] if "push" in events else []
        on_pull_request += [name] if events.intersection(_PULL_REQUEST) else []
    is_fork = not goes_upstream(checkout, branch.bump)
    pull_requests = "a pull request, once a maintainer approves it" if is_fork else "a pull request"
    started = {pull_requests: on_pull_request, **({} if is_fork else {"a push": on_push})}
    parts = [f"for {event}: {', '.join(names)}" for event, names in started.items() if names]
    if not parts:
        return f"No CI starts by itself: no workflow in {_FOLDER} has a trigger for {' or '.join(started)}.{unknown}"
    return f"CI that starts by itself, unless the filters of a trigger exclude the change: {'; '.join(parts)}.{unknown}"


def _events(text: str) -> set[str]:
    """Return a workflow's events.  Raises CannotTell for a form that GitHub does not document."""
    workflow = yaml_spans.load(text)
    # YAML 1.1 parses a bare `on` as true.
    events = workflow.get("on", workflow.get(True)) if isinstance(workflow, dict) else None
    if isinstance(events, str):
        return {events}
    if not isinstance(events, list | dict):
        raise CannotTell("it has no events under `on`.")
    return set(map(str, events))
