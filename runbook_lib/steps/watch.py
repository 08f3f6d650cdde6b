"""``runbook watch``: propose a tag newer than the pinned one, once, as a draft pull request or an issue."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from typing import Any, Literal

from runbook_lib import notebooks
from runbook_lib.bump import Bump
from runbook_lib.clients.github.client import GitHub, once
from runbook_lib.clients.github.models import Issue
from runbook_lib.clients.registry.client import Registry
from runbook_lib.errors import CannotTell, RunbookError, Unreachable
from runbook_lib.git.checkout import Checkout
from runbook_lib.git.linked_work_tree import linked_work_tree
from runbook_lib.images import driver_check, families
from runbook_lib.images.reference import ImageRef
from runbook_lib.pins import check, watch_rules
from runbook_lib.pins.pins_file import SCHEMA
from runbook_lib.pins.repositories import Repository
from runbook_lib.pins.sites import PinnedImage
from runbook_lib.pins.watch_rules import WatchRules
from runbook_lib.runner import execute
from runbook_lib.system import provenance
from runbook_lib.text.user_file import load_schema
from runbook_lib.workflow import bump_branch, bump_plan, markdown_texts, pull_request, repository
from runbook_lib.workflow.proposal import Proposal, find_pull, head_of, propose
from runbook_lib.workflow.pull_request_body import compose_body, marked, name_of, named_in

#: The label of the issues about new tags.
LABEL = "base-image"
State = Literal["up to date", "waiting", "open", "new", "needs a person"]
_EXIT: Mapping[State, int] = {"up to date": 0, "waiting": 0, "open": 0, "new": 1, "needs a person": 1}


@dataclass(frozen=True)
class WatchOptions:
    """``cool_down`` overrides the rules' own; ``today`` is the day for which holds are judged."""

    today: date
    image_type: str = "dev"
    base: str = "main"
    remote: str = "origin"
    pins: str = ""
    audit: str = ""
    cool_down: int | None = None
    publish: bool = False


@dataclass(frozen=True)
class PassedTag:
    """A newer tag that is not proposed now, and when it will be tried again, if known."""

    tag: str
    reason: str
    until: str = ""
    needs_person: bool = False


@dataclass(frozen=True)
class WatchResult:
    """The pinned tag, the newer ``tag`` that is proposed, and the state of that proposal.

    *new*: not proposed yet, because this run did not publish.  ``text`` is the text of the pull request or issue.
    ``image`` is the short name of the image; empty if the repository pins only one.
    """

    repository: str
    base: str
    image_type: str
    current: str
    state: State
    sentence: str
    tag: str = ""
    url: str = ""
    drivers: str = ""
    text: str = ""
    passed: tuple[PassedTag, ...] = ()
    image: str = ""

    @property
    def exit_status(self) -> int:
        """0 if up to date, proposed or waiting; 1 if a person is needed."""
        return _EXIT[self.state]


@dataclass(frozen=True)
class WatchReport:
    """The result for each image, and a sentence for each image that could not be compared."""

    results: tuple[WatchResult, ...]
    problems: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """0 if up to date, proposed or waiting; 1 if a person is needed; 2 if an image could not be compared."""
        if self.problems:
            return 2
        return max(result.exit_status for result in self.results)


def watch(checkout: Checkout, options: WatchOptions) -> WatchReport:
    """Compare the pins of the base branch with the registry, and propose the newest tag that is not on hold.

    Compares the pins of each image.  Changes nothing without ``publish``.  Raises RunbookError if the registry or the
    forge does not respond, and that affects all pins.
    """
    known = repository.choose(checkout, options.pins)
    rules = _rules(checkout, known)
    if options.cool_down is not None:
        rules = replace(rules, cool_down=options.cool_down)
    moved = [site for site in known.sites.pins if site.lockstep and site.image_type == options.image_type]
    images = tuple(dict.fromkeys(map(known.sites.image_of, moved))) or known.sites.images[:1]
    results: list[WatchResult] = []
    problems: list[str] = []
    for image in images:
        try:
            results.append(_watch_image(checkout, known, image, rules, options))
        except RunbookError as error:
            if len(images) == 1:
                raise
            problems.append(f"{image.short}: {error}")
    return WatchReport(tuple(results), tuple(problems))


def _watch_image(
    checkout: Checkout, known: Repository, pinned: PinnedImage, rules: WatchRules, options: WatchOptions
) -> WatchResult:
    bump, sites = _bump(options, known), known.sites.only(pinned)
    branch = bump_branch.find(checkout, bump)
    verdicts = check.check_pins(checkout.read(sites.pin_paths, branch.base_commit), sites)
    named = [each.image for each in verdicts if each.role == f"lockstep {bump.image_type}" and each.image]
    tags = {ImageRef.parse(image).tag or "" for image in named}
    if not tags:
        raise CannotTell(f"{bump.base} has no readable {bump.image_type} pin, so nothing can be compared.")
    current = ", ".join(sorted(tags))
    result = WatchResult(
        checkout.repository(), bump.base, bump.image_type, current, "up to date", "", image=pinned.short
    )
    if len(tags) > 1:
        sentence = f"The pins on {bump.base} do not agree ({current}). Fix them first: `runbook check` lists them."
        return replace(result, state="needs a person", sentence=sentence)
    image = replace(ImageRef.parse(pinned.name), tag=current)
    with Registry.connect(image) as registry:
        try:
            tags_of_image = registry.tags()
        except Unreachable as error:
            raise CannotTell(f"{error} The newest tag is unknown, so nothing was proposed.") from error
    newer = families.newer_releases(pinned.family, pinned.family.read(current), tags_of_image)
    if not newer:
        return replace(result, sentence=f"{current} is the newest release of {image.name}.")
    github = pull_request.connect_github(result.repository, bump)
    passed: list[PassedTag] = []
    for tag in newer:
        wanted = _bump(options, known, ":".join(filter(None, [pinned.short, str(tag)])))
        obstacle = _obstacle(checkout, github, image.with_tag(tag), wanted, rules, options.today)
        proposed = obstacle or _propose(checkout, github, wanted, rules, options)
        if not isinstance(proposed, PassedTag):
            return replace(result, **{**proposed, "tag": str(tag), "passed": tuple(passed)})
        passed.append(proposed)
    sentence = f"{current} stays: " + " ".join(f"{each.tag}: {each.reason}" for each in passed)
    state: State = "needs a person" if any(each.needs_person for each in passed) else "waiting"
    return replace(result, state=state, sentence=sentence, passed=tuple(passed))


def _bump(options: WatchOptions, known: Repository, tag: str = "") -> Bump:
    return Bump.parse(
        tag=tag, image_type=options.image_type, base=options.base, remote=options.remote,
        apply=options.publish, publish=options.publish, repository=known,
    )  # fmt: skip


def _rules(checkout: Checkout, known: Repository) -> WatchRules:
    """Return the rules in the pins file, or for built-in pins those in the watch file."""
    if known.origin:
        return known.watch
    text = checkout.read([watch_rules.FILE], "HEAD" if checkout.bare else None)[watch_rules.FILE]
    return watch_rules.parse(text or "", load_schema("runbook_lib.pins", SCHEMA))


def _obstacle(
    checkout: Checkout, github: GitHub | None, image: ImageRef, bump: Bump, rules: WatchRules, today: date
) -> PassedTag | None:
    """Return why a tag must not be proposed today: a hold, the cool-down, or the fate of its earlier pull request."""
    tag = str(bump.tag)
    if hold := watch_rules.active(rules.holds, tag, today):
        return PassedTag(tag, hold.sentence, str(hold.until or ""))
    if rules.cool_down:
        with Registry.connect(image) as registry:
            described = registry.image(tag)
        if described is None or described.built is None:
            advice = "Set a hold for it, or cool-down 0."
            raise CannotTell(f"{image} does not say when it was built, so its cool-down cannot be judged. {advice}")
        end = described.built + timedelta(days=rules.cool_down)
        if today < end:
            reason = f"It was built on {described.built}, and the {rules.cool_down}-day cool-down ends on {end}."
            return PassedTag(tag, reason, str(end))
    return _past(checkout, github, bump) if github else None


def _past(checkout: Checkout, github: GitHub, bump: Bump) -> PassedTag | None:
    """Return the reason that an earlier pull request for the tag gives against another one."""
    last = next(iter(github.pulls(head=head_of(checkout, bump), base=bump.base, state="all")), None)
    if last is None or last.state == "open":
        return None
    if last.merged:
        reason = f"#{last.number} was merged, but {bump.base} no longer has the tag. Set a hold that says why."
        return PassedTag(str(bump.tag), reason, needs_person=True)
    return PassedTag(str(bump.tag), f"#{last.number} was closed without a merge. Reopen it to try again.")


def _propose(
    checkout: Checkout, github: GitHub | None, bump: Bump, rules: WatchRules, options: WatchOptions
) -> dict[str, Any] | PassedTag:
    """Return the result's fields for a proposed tag, or the reason if the tag cannot be used yet."""
    branch = bump_branch.find(checkout, bump)
    planned = bump_plan.plan_bump(branch)
    if planned.check.status == "failed":
        return PassedTag(str(bump.tag), planned.check.detail)
    if planned.check.status == "skipped":
        raise CannotTell(f"{bump.tag} could not be verified: {planned.check.detail}")
    drivers = os.environ.get(driver_check.VARIABLE, "")
    verdict = driver_check.check(planned.image, drivers)
    rows = driver_check.rows(planned.image, drivers) if drivers.strip() else []
    section = marked(markdown_texts.render("watch", drivers=rows, verdict=verdict.detail), bump, "watch")
    proposal = propose(branch, planned, github)
    if rules.report == "issue":
        fields = _issue(github, proposal, section, publish=options.publish)
    else:
        fields = _pull_request(github, proposal, section, options)
    fields["drivers"] = verdict.detail
    if verdict.status == "failed":
        fields |= {"state": "needs a person", "sentence": f"{fields['sentence']} {verdict.detail}"}
    return fields


def _pull_request(github: GitHub | None, proposal: Proposal, section: str, options: WatchOptions) -> dict[str, Any]:
    bump, pull = proposal.bump, proposal.pull
    if pull and not proposal.mine:
        return _fields("open", f"#{pull.number} by {pull.author} is open for {bump.tag}.", pull.url, pull.body)
    text = compose_body(proposal.body, section, "watch")
    on, off = bump.labels
    is_complete = pull and not proposal.remaining.edits and on <= pull.labels and not off & pull.labels
    if pull and is_complete and text == pull.body:
        return _fields("open", f"#{pull.number} is open for {bump.tag} and up to date.", pull.url, text)
    if not options.publish or github is None:
        action = f"update #{pull.number}" if pull else "open a draft pull request"
        return _fields("new", f"Would {action}: {bump.title!r} into {bump.base}. Add --publish.", "", text)
    if not is_complete:
        _run_notebook(proposal, options)
        pull = find_pull(github, bump, proposal.head)
    if pull is None:
        raise CannotTell(f"The pull request for {bump.tag} was opened, but GitHub does not list it yet. Run again.")
    body = compose_body(compose_body(pull.body, proposal.part), section, "watch")
    if body != pull.body:
        github.update_pull(pull.number, body)
    return _fields("open", f"#{pull.number} is open for {bump.tag}: continue with the bump notebook.", pull.url, body)


def _run_notebook(proposal: Proposal, options: WatchOptions) -> None:
    """Run 03-open-pr with its record, in its own work tree."""
    bump, branch = proposal.bump, proposal.branch
    with linked_work_tree(branch.checkout, branch.base_commit, bump.branch) as tree:
        parameters: Mapping[str, Any] = {
            "tag": bump.target, "repo": str(tree.path), "image_type": bump.image_type,
            "base": bump.base, "remote": bump.remote, "pins": options.pins, "audit": options.audit, "apply": True,
            "publish": True,
        }  # fmt: skip
        result = execute.execute(provenance.ROOT / "runbooks" / f"{notebooks.OPEN_PR}.ipynb", parameters)
    if not result.ok:
        raise RunbookError(f"{result.lines()[0]} Record: {result.record}")


def _issue(github: GitHub | None, proposal: Proposal, section: str, *, publish: bool) -> dict[str, Any]:
    bump = proposal.bump
    title = f"Base image {bump.tag} is available for {bump.base}"
    body = compose_body(f"{proposal.part}\n", section, "watch")
    issue = _find_issue(github, bump) if github else None
    updated = compose_body(compose_body(issue.body, proposal.part), section, "watch") if issue else ""
    if issue and issue.state != "open":
        return _fields("waiting", f"Issue #{issue.number} for {bump.tag} is closed.", issue.url, issue.body)
    if issue and updated == issue.body:
        return _fields("open", f"Issue #{issue.number} is open for {bump.tag} and up to date.", issue.url, body)
    if not publish or github is None:
        return _fields("new", f"Would file or update the issue {title!r}. Add --publish.", "", body)
    if issue:
        github.update_issue(issue, updated)
    else:
        issue = once(
            partial(_find_issue, github, bump),
            partial(github.file_issue, title, body, [LABEL]),
            github.withdraw_issue,
        )
    return _fields("open", f"Issue #{issue.number} is open for {bump.tag}.", issue.url, body)


def _find_issue(github: GitHub, bump: Bump) -> Issue | None:
    """Return the issue about a tag, filed by an app or by an account with write access."""
    for issue in github.list_issues(label=LABEL):
        is_ours = named_in(issue.body) == name_of(bump)
        if is_ours and (issue.author.endswith("[bot]") or github.may_write(issue.author)):
            return issue
    return None


def _fields(state: str, sentence: str, url: str, text: str) -> dict[str, Any]:
    return {"state": state, "sentence": sentence, "url": url, "text": text}


def as_lines(result: WatchResult) -> Iterator[str]:
    """Yield the result as lines for a terminal."""
    pins = " of ".join(filter(None, (result.image_type, result.image)))
    yield f"{result.repository} {result.base} ({pins}): {result.state}. {result.sentence}"
    if result.url:
        yield result.url
    for each in result.passed:
        if each.reason not in result.sentence:
            yield f"{each.tag}: {each.reason}"
    if result.drivers:
        yield f"Drivers: {result.drivers}"
    if result.state == "new":
        yield f"\n{result.text}"
