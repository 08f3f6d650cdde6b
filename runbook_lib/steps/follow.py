"""``runbook follow``: a comment, edited in place, that shows what a bump is waiting for; and the comment commands."""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial

from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.models import Comment, Pull
from runbook_lib.errors import Refused, RunbookError
from runbook_lib.git.checkout import Checkout
from runbook_lib.pins import repositories, watch_rules
from runbook_lib.records import archive, statement
from runbook_lib.system.clock import now
from runbook_lib.system.notify import Event, notify
from runbook_lib.workflow import bump_branch, holds, markdown_texts, readiness, repository
from runbook_lib.workflow.events import CommandName, CommentCommand, ForgeEvent

_HEAD = re.compile(r"bump/(?P<base>.{1,200})/(?P<type>dev|lts)-(?P<tag>[^/]{1,128})")
_STATE = re.compile(r"<!-- base-image-runbook:state (?P<state>[a-z ]{1,40}) -->")
_UNTIL = re.compile(r" until (?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})\Z")
_EVENTS: Mapping[str, Event] = {"waits for a person": "waiting", "ready to merge": "ready", "held": "waiting"}

#: Carries out a command on a bump and returns a sentence about the result; the text is the reason given.
CommandAction = Callable[[Bump, str], str]


@dataclass(frozen=True)
class FollowResult:
    """The pull request's number (0 if the event concerns no bump) and state, and a sentence about what was done."""

    number: int
    state: str
    sentence: str
    text: str = ""
    warning: str = ""


def follow(
    checkout: Checkout, github: GitHub, event: ForgeEvent | None, actions: Mapping[CommandName, CommandAction], *,
    pins: str = "", remote: str = "origin", publish: bool = False,
) -> FollowResult:  # fmt: skip
    """Carry out the event's command, if it has one, and update the status comment.

    Changes nothing without ``publish``, for a pull request that is not a bump, or for a command from somebody without
    write access.
    """
    known = repository.choose(checkout, pins)
    pull = None
    if event and event.number:
        pull = github.pull(event.number)
    elif event:
        pull = next(iter(github.pulls(head=event.head)), None)
    bump = _bump_of(pull, known, remote) if pull else None
    if event is None or pull is None or bump is None:
        return FollowResult(0, "", "The event does not concern a bump, or contains no command: nothing was done.")
    command = event.command
    if command and not github.may_write(command.author):
        return FollowResult(0, "", f"{command.author} does not have write access to the repository: nothing was done.")
    comment = holds.status_comment(github, pull.number)
    hold = holds.read(comment.body) if comment else None
    if hold and not hold.concerns(str(bump.tag), now().date()):
        hold = None
    answer = ""
    if command:
        if command.name == "hold":
            hold = _hold(command, bump)
        elif command.name == "refresh":
            hold = None
        answer = _carry_out(command, bump, pull, actions, publish=publish)
        pull = github.pull(pull.number)
    elif comment is None and pull.state != "open":
        return FollowResult(pull.number, pull.state, f"#{pull.number} is {pull.state}: nothing was done.")
    return _update(checkout, github, pull, bump, comment, hold, answer, publish=publish)


def _bump_of(pull: Pull, known: repositories.Repository, remote: str) -> Bump | None:
    """Return the bump that the branch of a pull request is named after."""
    match = _HEAD.fullmatch(pull.head_ref)
    if match is None or match["base"] != pull.base_ref:
        return None
    try:
        # Nothing is applied here; readiness checks everything only if apply is set.
        return Bump.parse(
            tag=match["tag"], image_type=match["type"], base=match["base"], remote=remote, apply=True,
            repository=known,
        )  # fmt: skip
    except RunbookError:
        return None


def _hold(command: CommentCommand, bump: Bump) -> watch_rules.Hold:
    """Return the hold that a command sets, with its end if the text names a day: ``no driver yet until 2026-06-15``."""
    text, until = command.text, None
    if match := _UNTIL.search(text):
        try:
            until = date.fromisoformat(match["day"])
            text = text[: match.start()]
        except ValueError:
            pass  # not a calendar date, so part of the reason
    return watch_rules.Hold(str(bump.tag), f"{text} ({command.author})", until)


def _carry_out(
    command: CommentCommand, bump: Bump, pull: Pull, actions: Mapping[CommandName, CommandAction], *, publish: bool
) -> str:
    """Carry out a command, and return the reply."""
    sentence = f"Requested by {command.author}."
    if command.name == "revert" and not pull.merged:
        sentence = f"#{pull.number} is not merged, so there is nothing to revert."
    elif command.name == "refresh" and pull.state != "open":
        sentence = f"#{pull.number} is closed, so there is nothing to refresh."
    elif action := actions.get(command.name):
        reason = command.text or f"Requested by {command.author} in {command.url}"
        try:
            sentence = action(bump, reason) if publish else f"Would carry out {command.name}."
        except Refused as error:  # the reply reports it; any other error fails the job
            sentence = str(error)
    return f"{command.name}: {sentence}"


def _update(
    checkout: Checkout, github: GitHub, pull: Pull, bump: Bump, comment: Comment | None, hold: watch_rules.Hold | None,
    answer: str, *, publish: bool,
) -> FollowResult:  # fmt: skip
    ready = readiness.Readiness()
    identity = statement.Identity(checkout.repository(), bump.base, bump.image_type, bump.target, False)
    if pull.state == "open":
        records = archive.default().joinpath(*identity.parts)  # which may be on another machine
        ready = readiness.check(bump_branch.find(checkout, bump), github, records if records.is_dir() else None)
    state = _state(pull, ready, hold)
    text = markdown_texts.render(
        "status", bump=bump, state=state, hold=hold, problem=ready.problem, missing=ready.missing, answer=answer
    )
    text = f"{holds.STATUS}\n<!-- base-image-runbook:state {state} -->\n{holds.mark(hold) if hold else ''}\n{text}\n"
    before = _STATE.search(comment.body) if comment else None
    if not publish:
        return FollowResult(pull.number, state, f"Would post the status of #{pull.number}. Add --publish.", text)
    if comment is None:
        find, post = partial(holds.status_comment, github, pull.number), partial(github.comment, pull.number, text)
        once(find, post, github.remove_comment)
    elif comment.body != github.public(text):
        github.update_comment(comment, text)
    warning = ""
    event = _EVENTS.get(state)
    if event and (before is None or event != _EVENTS.get(before["state"])):
        sentence = f"{state}: {'; '.join(each.name for each in ready.missing)}".rstrip(": ")
        warning = notify(event, asdict(identity), sentence, links={"pull request": pull.url})
    return FollowResult(pull.number, state, f"#{pull.number}: {state}. {answer}".rstrip(), text, warning)


def _state(pull: Pull, ready: readiness.Readiness, hold: watch_rules.Hold | None) -> str:
    if pull.merged:
        return "merged"
    if pull.state != "open":
        return "closed"
    if hold:
        return "held"
    if ready.problem:
        return "unknown"
    if not ready.missing:
        return "ready to merge"
    return "waits for CI" if all(each.running for each in ready.missing) else "waits for a person"
