"""Step 8: what is left after the merge.  Reads, and changes nothing.

Both CIs on the base branch, what the pull request's run did not cover, the branches that still stand on an older
image, and the tests that are out of the way, with the state of their issues.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from runbook_lib import display, notebooks
from runbook_lib.bump import Bump
from runbook_lib.checks import Check
from runbook_lib.clients.github import issues
from runbook_lib.clients.github.ci_status import branch_of, choose
from runbook_lib.clients.github.client import GitHub
from runbook_lib.display import View
from runbook_lib.errors import CannotTell, RunbookError
from runbook_lib.git import blobs
from runbook_lib.git.checkout import Checkout
from runbook_lib.golden import ci_runs, coverage
from runbook_lib.golden.coverage import GITHUB
from runbook_lib.golden.file_names import FOLDER, GoldenFileName
from runbook_lib.images.families import is_older
from runbook_lib.images.reference import ImageRef, Tag
from runbook_lib.pins.check import check_pins
from runbook_lib.recipes import quarantine
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.quarantine import QuarantinedRow
from runbook_lib.records.step_record import StepRecord
from runbook_lib.runner.command_line import command
from runbook_lib.steps.after_merge import base_ci
from runbook_lib.steps.after_merge.base_ci import Lane
from runbook_lib.workflow import bump_plan, golden_comparison
from runbook_lib.workflow.bump_branch import BumpBranch
from runbook_lib.workflow.proposal import head_of

Rows = tuple[dict[str, object], ...]


@dataclass(frozen=True)
class After:
    """``merged`` is the commit that brought the image to the base branch, empty before the merge and without a tag."""

    branch: BumpBranch
    merged: str = ""
    lanes: tuple[Lane, ...] = ()
    uncovered: Rows = ()
    branches: Rows = ()
    quarantines: Rows = ()
    notes: tuple[str, ...] = ()

    def show(self) -> View:
        """All of it, as tables."""
        bump = self.branch.bump
        told = display.note(_where(self)) if bump.tag else display.note("No tag was given.")
        if self.merged:
            lanes = ({"CI": it.name, "state": it.state, "found": it.found, "next": it.next} for it in self.lanes)
            told += display.note(f"Both CIs on {bump.base}:") + display.table(lanes)
            if bump.repository.golden:
                told += display.note("What the pull request's run covered, and what not:")
                told += display.table(self.uncovered, empty="No golden file is of this image type.")
        told += display.note("Other branches, by their pins, as last fetched:") + display.table(
            self.branches, empty="There is none."
        )
        told += display.note(f"Tests out of CI's way on {bump.base}:") + display.table(self.quarantines, empty="None.")
        return told + display.notes(self.notes, title="Also")


def look(branch: BumpBranch, github: GitHub | None, refs: str = "") -> After:
    """Look everything up.  ``refs``: branches or patterns, apart by spaces or commas; without any, those of the
    repository (`dev core_r*`).

    Where GitHub or GitLab cannot be asked, that part says so.  Raises CannotTell for refs that name no branch.
    """
    bump, checkout = branch.bump, branch.checkout
    branches, notes = _branches(branch, refs)
    listed = checkout.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", branch.base_commit, "--", *_LISTED)
    files = [path for path in listed.split("\0") if path]
    texts = checkout.read([path for path in files if path.startswith(recipes.FOLDER) and path.endswith(_YAML)],
                          branch.base_commit)  # fmt: skip
    found, odd = quarantine.quarantined_rows(texts, checkout.repository())
    quarantines = _quarantines(found, bump, github)
    if not bump_plan.base_has_tag(branch):
        return After(branch, branches=branches, quarantines=quarantines, notes=(*branch.warnings, *notes, *odd))
    merged = base_ci.merged(branch)
    commits = base_ci.since(branch, merged)
    internal = base_ci.of_gitlab(commits)
    lanes = (
        base_ci.of_github(bump, github, commits),
        *((internal,) if not bump.repository.idle(notebooks.GITLAB_PIN) else ()),
    )
    uncovered: Rows = ()
    unsure: tuple[str, ...] = ()
    if bump.repository.golden:
        given, unsure = _given(branch, github, files, texts)
        uncovered = _uncovered(bump, files, texts, given, internal, known=not unsure)
    return After(branch, merged, lanes, uncovered, branches, quarantines, (*branch.warnings, *notes, *odd, *unsure))


_LISTED, _YAML = (FOLDER, recipes.FOLDER), (".yaml", ".yml")


def _command(notebook: str, bump: Bump, base: str = "", tag: str = "") -> str:
    # What it changes a person says there.
    to, on = tag or str(bump.tag), base or bump.base
    return command(notebook, bump, tag=to, base=on, refs=None, apply=None, publish=None)


# -- what the run of the pull request did not cover ------------------------------------------------------------------


def _given(
    branch: BumpBranch, github: GitHub | None, files: Sequence[str], texts: dict[str, str | None]
) -> tuple[set[str], tuple[str, ...]]:
    """The golden files that the pull request's run compared with, and why they are not known, if so.

    The jobs of GB200 have the names of those of H100; they come last, as they run for maintainers only.
    """
    bump = branch.bump
    if bump.image_type == "lts":
        return set(), ()
    try:
        closed = github.pulls(head_of(branch.checkout, bump), bump.base, "closed") if github else ()
        pull = next((it for it in closed if it.merged), None)
        run = choose(github.runs(branch_of(pull.number), pull.head_sha), pull.head_sha) if github and pull else None
        jobs = github.jobs(run.id) if github and run else ()
    except RunbookError as error:
        return set(), (f"What the pull request's run covered is not known. {error}",)
    if run is None:
        why = f"no merged pull request from {bump.branch} with a run was found"
        return set(), (f"What the pull request's run covered is not known: {why}.",)
    ran = Counter(
        (it.model, it.test_case)
        for job in jobs
        for it in ci_runs.functional_tests(job)
        if it.state in ("passed", "failed")
    )
    used = _used(texts)
    given: set[str] = set()
    for (model, case), times in ran.items():
        mine = {row.golden for row in used if (row.model, row.case) == (model, case) and row.scope in GITHUB}
        here = sorted((it for it in mine if _environment(it) == bump.image_type), key=lambda it: "gb200" in it)
        given |= set(here[:times])
    second = {name for path in files if (name := path.removeprefix(f"{FOLDER}/")).endswith("_2nd.json")}
    return given | {name for name in second if name.replace("_2nd.json", ".json") in given}, ()


def _environment(golden: str) -> str:
    name = GoldenFileName.of_path(golden)
    return name.environment if name else ""


def _used(texts: dict[str, str | None]) -> list[coverage.ScopedTest]:
    return [row for path, text in texts.items() for row in coverage.scoped_tests(path, text or "")[0]]


def _uncovered(
    bump: Bump, files: Sequence[str], texts: dict[str, str | None], given: set[str], gitlab: Lane, *, known: bool
) -> Rows:
    names = [
        path.removeprefix(f"{FOLDER}/") for path in files if path.startswith(FOLDER) and GoldenFileName.of_path(path)
    ]
    found = coverage.coverage(names, _used(texts), given, bump.image_type)
    if not known:
        found = [it for it in found if it.reason != "the run gave none"]
    rows = golden_comparison.coverage_rows(found)
    command = f"{_command(notebooks.GOLDEN_VALUES, bump)} -r source gitlab -r allow older-run -r run_id "
    for row in rows:
        if str(row["next"]).startswith(notebooks.GOLDEN_VALUES):
            row["next"] = f"{command}{gitlab.pipeline or 'PIPELINE'}, once that pipeline of {bump.base} has ended"
    return tuple(rows if known else rows[1:])


# -- other branches --------------------------------------------------------------------------------------------------


def _branches(branch: BumpBranch, refs: str) -> tuple[Rows, tuple[str, ...]]:
    """The pins of each branch as it was last fetched, and the command that bumps it where it stands on an older one."""
    bump, checkout, sites = branch.bump, branch.checkout, branch.bump.repository.sites
    places = _matching(checkout, bump, branch.base_remote, refs)
    if bump.base in places:
        places[bump.base] = branch.base_commit  # which is newer than what was fetched
    asked = [(full, path) for full in places.values() for path in sites.pin_paths]
    found = blobs.read_blobs(checkout.path, asked)
    rows: list[dict[str, object]] = []
    without = []
    for name, full in places.items():
        texts = {path: blob[1] if (blob := found[full, path]) else None for path in sites.pin_paths}
        if not sites.known(texts):
            without.append(name)
            continue
        role = f"lockstep {bump.image_type}"
        images = (ImageRef.parse(it.image) for it in check_pins(texts, sites) if it.role == role and it.image)
        tags = sorted({sites.family.read(image.tag or "") for image in images})
        rows.append({"branch": name, "image": ", ".join(map(str, tags)) or "–", **_standing(tags, bump, name)})
    note = (f"Without a known pin site, and so left out: {', '.join(without)}.",) if without else ()
    return tuple(rows), note


def _standing(tags: Sequence[Tag], bump: Bump, branch: str) -> dict[str, object]:
    """How the tags of a branch stand to the bump's."""
    if not tags:
        return {"state": "cannot tell", "next": f"runbook check --ref {branch}"}
    if bump.tag is None:
        torn = len(tags) > 1
        return {"state": "out of sync" if torn else "in sync", "next": f"runbook check --ref {branch}" * torn}
    if any(is_older(tag, bump.tag) for tag in tags):
        return {"state": "older", "next": _command(notebooks.BUMP, bump, branch)}
    newer = any(is_older(bump.tag, tag) for tag in tags)
    return {"state": "newer" if newer else "names it" if bump.tag in tags else "another edition or build", "next": ""}


def _matching(checkout: Checkout, bump: Bump, remote: str, refs: str) -> dict[str, str]:
    prefix = f"refs/remotes/{remote}/" if remote else "refs/heads/"
    known = {it.removeprefix(prefix): it for it in blobs.branches(checkout.path) if it.startswith(prefix)}
    chosen: dict[str, str] = {}
    for pattern in (refs or bump.repository.branches).replace(",", " ").split():
        short = pattern.removeprefix(f"{remote}/") if remote else pattern
        matched = [name for name in known if fnmatchcase(name, short)]
        if refs and not matched:
            raise CannotTell(f"No branch of {remote or 'this clone'} matches {pattern!r}. Fetch first, or correct it.")
        chosen |= {name: known[name] for name in matched if refs or name != bump.base}
    return chosen


# -- tests out of the way --------------------------------------------------------------------------------------------


def _quarantines(found: Sequence[QuarantinedRow], bump: Bump, github: GitHub | None) -> Rows:
    """Each row that is out of the way, with its issue's state: what can come back first, then what nobody tracks."""
    states = {number: _state(github, number) for number in sorted({it.issue for it in found if it.issue})}
    rows: list[dict[str, object]] = []
    for it in found:
        state = states[it.issue] if it.issue else "no issue"
        rows.append(
            {"test": it.test, "environments": ", ".join(it.row.environments), "platforms": ", ".join(it.row.platforms),
             "issue": f"#{it.issue}" if it.issue else "none named", "state": state, "row": it.place,
             "next": _next(it, state, bump)}
        )  # fmt: skip
    order = ("closed", "no issue")
    return tuple(sorted(rows, key=lambda row: order.index(str(row["state"])) if row["state"] in order else len(order)))


def _state(github: GitHub | None, number: int) -> str:
    if github is None:
        return "not looked up: no token"
    try:
        return issues.read(github, number).state
    except RunbookError as error:
        return f"cannot be read: {error}"


def _next(it: QuarantinedRow, state: str, bump: Bump) -> str:
    if state == "no issue":
        return "File an issue, and name it in the comment above the row."
    if state != "closed":
        return ""
    names = "; ".join(f"{it.test}@{platform}: #{it.issue} is closed" for platform in it.row.platforms)
    return (
        f'Re-enable it with the next bump: {_command(notebooks.BROKEN_TESTS, bump, tag="MONTH")} -r reenable "{names}"'
    )


# -- the outcome -----------------------------------------------------------------------------------------------------


def _where(found: After) -> str:
    bump = found.branch.bump
    if found.merged:
        return f"{bump.base} names {bump.tag} since {found.merged[:10]}."
    return f"{bump.base} does not name {bump.tag} yet: what is left is 07-sync-check, and the merge."


def conclude(step: StepRecord, found: After) -> View:
    """Tell the record what is left.  What people must do is told, and fails nothing."""
    branch, bump = found.branch, found.branch.bump
    step.warn(*found.notes)
    step.add_inputs(base_commit=branch.base_commit, merge_commit=found.merged or None)
    step.table("branches", found.branches)
    step.table("quarantines", found.quarantines)
    left = _left(found)
    if bump.tag is None:
        step.done(f"No tag was given: {left}.", "Run again with the tag of a bump, such as -r tag 26.04-py3.")
        return display.note(left)
    if not found.merged:
        step.done(_where(found), notebooks.SYNC_CHECK)
        return display.note(_where(found))
    step.table("not covered", found.uncovered)
    for lane in found.lanes:
        step.check(Check(f"CI of {bump.base} on {lane.name}", "passed" if lane.state == "passed" else "skipped",
                         f"{lane.state}: {lane.found}"))  # fmt: skip
        step.link(f"CI of {bump.base} on {lane.name}", lane.url)
    told = "; ".join(f"{lane.name}: {lane.state}" for lane in found.lanes)
    todo = [lane.next for lane in found.lanes if lane.state == "failed"]
    todo += [str(row["next"]) for row in found.branches if row["state"] == "older"]
    if waiting := [lane for lane in found.lanes if lane.state == "waiting"]:
        step.waiting(f"waiting for CI of {bump.base} on {waiting[0].name}: {waiting[0].found}", waiting[0].next)
    else:
        step.done(f"{_where(found)} {told}; {left}.", todo[0] if todo else "")
    return display.note(f"{_where(found)} {told}; {left}.")


def _left(found: After) -> str:
    bump = found.branch.bump
    older = sum(row["state"] == "older" for row in found.branches)
    states = Counter(str(row["state"]) for row in found.quarantines)
    told = [f"{display.count(len(found.quarantines), 'row')} of recipes out of the way"]
    told += [f"{states['closed']} of them with a closed issue"] if states["closed"] else []
    told += [f"{states['no issue']} without an issue"] if states["no issue"] else []
    branches = f"{older} of {len(found.branches)}" if bump.tag else str(len(found.branches))
    return f"{branches} other branches {'on an older image' if bump.tag else 'seen'}, {', '.join(told)}"
