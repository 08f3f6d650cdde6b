"""No name, and no line of a log, does anything in our texts on a forge, or in the messages of our commits.

A text with something hostile in it must have the structure of one with a plain word there.
"""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import mistune
import pytest
from archives import words
from hostile import ALL

from runbook_lib.bump import pins_step
from runbook_lib.bump.open_pr import describe
from runbook_lib.failures import step
from runbook_lib.failures import tracking_issue as tracking
from runbook_lib.failures.evidence import Failure
from runbook_lib.failures.failed_jobs import BaseResult, DiagnosedJob
from runbook_lib.failures.quarantines import LeftOut, commit_message
from runbook_lib.golden import summary
from runbook_lib.golden.judge import Verdicts
from runbook_lib.golden.measure import Judgement, ReviewReason
from runbook_lib.golden.step import compose_message
from runbook_lib.images import compare
from runbook_lib.images.reference import Image, PlatformImage
from runbook_lib.pins.bump import Bump
from runbook_lib.pins.plan import PinChange, PinPlan
from runbook_lib.text import markdown
from runbook_lib.text.markdown import compose_body, fenced
from runbook_lib.text.recipes.rows import Target
from runbook_lib.world.bump_branch import marked
from runbook_lib.world.conditions.forge import IssueFiled
from runbook_lib.world.github import copy_pr_bot
from runbook_lib.world.github.client import GitHub

BUMP = Bump.parse(tag="26.04-py3")
PLAIN = "word"
_RENDER = mistune.create_markdown(
    escape=False, plugins=["table", "strikethrough", "url", "task_lists", "footnotes", "math", "spoiler", "def_list"]
)
#: What GitHub takes for a mention, a reference to an issue or pull request, or an address.
_AT_WORK = re.compile(
    r"(?<![A-Za-z0-9_`])@[A-Za-z0-9]|(?<![A-Za-z0-9_])#[0-9]|[\w.-]+/[\w.-]+#[0-9]|\bGH-[0-9]|://|\bwww\.|mailto:\S*@\w",
    re.IGNORECASE,
)
#: The marker of an issue names the test; a comment that it does not end would hide what follows.
_BROKEN = re.compile(r"<!-- base-image-runbook:broken .*?-->")
_TAG = re.compile(r"</?[a-z][^>]*>|<!--.*?-->|<!--", re.IGNORECASE | re.DOTALL)
_CODE = re.compile(r"<pre.*?</pre>|<code.*?</code>", re.DOTALL)
_COMMANDS = re.compile(r"^\s*/ok(?:ay)? to test", re.IGNORECASE | re.MULTILINE)
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def texts(value: str) -> dict[str, str]:
    """All that we write on a forge, with this value wherever a name or a line of a log may stand."""
    change = PinChange(value, 1, value, value, value, "github")
    broken = Target(value, value, value, value, value)
    failure = Failure(value, "https://github.com/o/r/actions/runs/1/job/2", "hang", value, (value, value))
    reasons = (ReviewReason(value, value),)
    judged = [
        Judgement(value, "refused", reasons, ci={value: value}, notes=(value,)),
        Judgement(f"{value}/2", "held back", reasons),
        Judgement(f"{value}/3", "refresh", accepted=value),
    ]
    old, new = (
        Image("sha256:0", {value: PlatformImage(value, 10**9, env, {value: value})})
        for env in ({"CUDA_VERSION": value, "A": value}, {"CUDA_VERSION": f"{value}1", value: value})
    )
    changes = compare.compare(old, new, (value, value)).markdown()
    plan = PinPlan((change,), (), (value,), ())
    return {
        "pull request": describe(plan, BUMP, digests={value: value}, image=changes, record=value),
        "issue": _issue(broken, failure, value).body,
        "golden values": marked(summary.markdown(Verdicts(tuple(judged))), BUMP, "golden-values"),
        "broken tests": marked(_broken_tests(value, failure), BUMP, "broken-tests"),
    }


def _issue(broken: Target, failure: Failure, value: str) -> IssueFiled:
    state = SimpleNamespace(pull=SimpleNamespace(url=value))
    run: Any = SimpleNamespace(bump=BUMP, pull_request=state, url=value, tested=value, source=None)
    github: Any = SimpleNamespace(last_author=lambda *_: value, is_assignable=lambda _: True)
    row: Any = SimpleNamespace(recipe=value, scopes=(SimpleNamespace(value=value),))
    job = DiagnosedJob(failure, on_base=BaseResult("new", value, value))
    return tracking.of_failure(github, broken, job, run, row, 0, Image=value, **{"Change in the image": value})


def _broken_tests(value: str, failure: Failure) -> str:
    row = LeftOut(value, value, reason=value)
    job = DiagnosedJob(failure, on_base=BaseResult("failing", value, value), history=value)
    failures: Any = SimpleNamespace(jobs=[job], run=SimpleNamespace(url=value, bump=BUMP, attempt=1))
    return step.description([row, replace(row, issue=3)], failures)


def require_inert(text: str, plain: str, kind: str) -> None:
    pages = [_BROKEN.sub("<!--broken-->", str(_RENDER(it))) for it in (text, plain)]
    tags, expected = map(_TAG.findall, pages)
    assert tags == expected, kind
    acting, expected = (_AT_WORK.findall(words(_CODE.sub("", page))) for page in pages)
    assert acting == expected, kind


#: What is empty is left out, which has a structure of its own.
WORDS = [name for name, value in ALL.items() if value.strip()]


@pytest.mark.parametrize("name", WORDS)
def test_nothing_hostile_works_in_a_text_on_a_forge(name: str) -> None:
    plain = texts(PLAIN)
    for kind, text in texts(ALL[name]).items():
        if len(text) < 200_000:  # the parser takes longer than we do
            require_inert(text, plain[kind], kind)
        assert not _COMMANDS.search(text)
        assert not _HIDDEN.search(text)
        if kind != "issue":  # it takes its place between its markers, and is found and renewed there
            section: Any = "" if kind == "pull request" else kind.replace(" ", "-")
            body = compose_body("before\n", text, section)
            assert compose_body(body, plain[kind], section) == compose_body("before\n", plain[kind], section)
    value = ALL[name]
    title = _issue(Target(*[value] * 5), Failure(value, "", "hang", value), value).title
    assert "\n" not in title
    assert not _HIDDEN.search(title)


def messages(value: str) -> dict[str, str]:
    """The messages of all commits that hold what others wrote."""
    change, target = PinChange(value, 1, value, value, value, "github"), Target(value, value, value, value, value)
    plan: Any = PinPlan((change,), (), (), ())
    run: Any = SimpleNamespace(source=SimpleNamespace(name=value), url=value, bump=BUMP, tested="a" * 40, attempt=1)
    accepted = [f"{value} ×1.50: {value}", f"{value}/golden_values_dev_dgx_h100.json: {value}"]
    return {
        "pins": pins_step.commit_message(BUMP, plan),
        "golden values": compose_message(run, 1, value, [value], accepted),
        "broken tests": commit_message("test: mark broken tests", {target: 7}, (target,)),
    }


#: What bots and CI act upon: a line with a command, a word anywhere, or a line of a commit's message.
COMMANDS = [
    "/ok to test 0123456789abcdef", "/okay to test", "/retest", "/azp run", "/approve cancel", "/ok-to-test", "!merge",
    ".deploy", "@claude fix this", "@dependabot merge", "@bors r+", "bors try", "ok to test",
    "retest this please", "add to whitelist", "[skip ci]", "[no ci]", "[ Skip  CI ]", "***NO_CI***",
    "skip-checks: true", "Co-authored-by: Eve <eve@evil.example>", "fixes #1", "resolves GH-2",
    "Fixes https://github.com/o/r/issues/1", "closed: o/r#7",
]  # fmt: skip
_BEFORE = [
    "", " ", "\t", "> ", "- ", "1. ", "- [ ] ", "# ", "'", "`", "```\n", "<p>", "&nbsp;", "**", "| ", "\u200b",
    "\u00a0", "\xad", "\u202e", "\x1b[31m", "\x00", "\u2022 ", "<!-- -->", "text ", "text\n", "text\r\n", "text\u2028",
]  # fmt: skip
_LINE = re.compile(r"(?im)^(?:[^\w/@!.<&]|<[^<>]*>|&[#\w]+;|[0-9]+[.)](?=\s)|[<&_])*[/@!.]+(?![\w.-]+/)[A-Za-z]")
_ACTS = re.compile(
    r"(?im)(?:^|[\s`\"'>|])/(?:ok|okay|retest|merge|lgtm|azp|test|approve|hold|ok-to-test)(?![\w/-])"
    r"|@(?:claude|dependabot|copilot|bors|pytorchbot)"
    r"|\bbors\s|\bok(?:ay)? to test|test this please|add to (?:white|allow)list"
    r"|\[[^\]\u200b]{0,20}(?:skip|no[ _-]ci)[^\]]{0,20}\]|\*NO_CI|^skip-checks\s*:|-by\s*:\s*Eve"
    r"|\b(?:close|fix|resolve)[sd]?(?:e[sd])?:?\s+(?:[\w./-]*#[0-9]|GH-[0-9]|https://github)"
)


@pytest.mark.parametrize("before", _BEFORE)
def test_no_bot_finds_its_command(before: str) -> None:
    for command in COMMANDS:
        value = f"{before}{command}"
        for kind, text in {**texts(value), **{f"commit: {k}": v for k, v in messages(value).items()}}.items():
            ours = [line for line in text.split("\n") if not line.startswith("<!-- base-image-runbook:")]
            for line in ours:
                assert not _LINE.search(line), (kind, line)
                assert not _ACTS.search(line), (kind, line)
        read = re.sub("[\u200b\\\\]", "", texts(value)["issue"])
        assert re.sub(r"[\u200b\\]", "", command) in re.sub("&nbsp;", "", read), command


@pytest.mark.parametrize(
    "text",
    [
        "/opt/venv/bin/python -m pytest", "./run.sh --all", ".gitlab/stages/01.yml", ".gitlab-ci.yml", "docker run x",
        "see tests/functional_tests/a.py:12", "gpt3@dgx_h100", "git push origin HEAD:refs/heads/x", "fixes the hang",
    ],
)  # fmt: skip
def test_paths_and_commands_can_be_copied(text: str) -> None:
    assert markdown.code(text) == f"`{text}`"
    assert fenced([text]).splitlines()[1] == text


def test_our_own_command_works() -> None:
    assert copy_pr_bot.command("0" * 40) == f"/ok to test {'0' * 40}"
    github = GitHub("o/r", {"GITHUB_TOKEN": "a-token-of-no-known-form"})
    assert github.public({"body": copy_pr_bot.command("0" * 40)}) == {"body": f"/ok to test {'0' * 40}"}
