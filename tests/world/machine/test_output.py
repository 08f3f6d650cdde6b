"""What every command prints is without secrets, and steers no terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bumping import git
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.cli import check as checking
from runbook_lib.cli.__main__ import main
from runbook_lib.text.sanitize import visible
from runbook_lib.world.machine import output

SECRET = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", SECRET),
        ("check", ".", "--ref", SECRET),
        ("check", ".", "--pins", SECRET),
        ("check", ".", "--tag", f"{SECRET}\x1b]0;title\a"),
        ("check", "--image-type", f"{SECRET}\x1b[2J"),  # click tells what it does not know
        (SECRET,),
        ("golden", "diff", SECRET, SECRET),
        ("image", "diff", SECRET, SECRET),
        ("image", "list", f"registry.invalid/{SECRET}/x y z", SECRET),
        ("image", "driver", "26.04-py3", "--driver", SECRET),
        ("pins", "find", f"{SECRET}\x9b31m"),
        ("audit", "verify", SECRET),
        ("practice", SECRET),
    ],
    ids=lambda arguments: " ".join(arguments[:2])[:20],
)
def test_no_command_prints_a_secret(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "-q", str(tmp_path / "clone"))
    monkeypatch.chdir(tmp_path / "clone")
    assert main(arguments)
    shown = "".join(capsys.readouterr())
    assert shown
    assert "a1B2a1B2" not in shown
    assert shown == visible(shown)


def printing(monkeypatch: pytest.MonkeyPatch, *texts: str, error: bool = False) -> None:
    """Let ``runbook check`` print this, each text by a call of its own."""

    def check(**_: object) -> int:
        for text in texts:
            print(text, end="", file=sys.stderr if error else sys.stdout)
        return 0

    monkeypatch.setattr(checking.check, "callback", check)


@pytest.mark.parametrize("error", [False, True])
@pytest.mark.parametrize(
    "texts",
    [
        (SECRET,),
        (SECRET[:10], SECRET[10:]),
        (f"\x1b[1m{SECRET[:10]}\x1b[0m{SECRET[10:]}",),
        ("https://user:hunter2-hunter2@forge.example/",),
        ("-----BEGIN RSA PRIVATE KEY-----\n" + "hunter2" * 9 + "\n-----END RSA PRIVATE KEY-----\n",),
        ("my own hunter2-of-the-environment",),
    ],
)
def test_a_secret_in_several_parts(
    texts: tuple[str, ...], error: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-of-the-environment")
    printing(monkeypatch, *texts, error=error)
    assert main(["check"]) == 0
    shown = "".join(capsys.readouterr())
    assert "***" in shown
    assert "hunter2" not in shown
    assert "a1B2" not in shown


def test_json_stays_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        "one": "-----BEGIN RSA PRIVATE KEY-----", "two": [SECRET, 1.5, None, True], SECRET: "\u202e\x1b[0m",
        "three": "-----END RSA PRIVATE KEY-----", "four": f"https://ada:{SECRET}@forge.example/",
    }  # fmt: skip
    printing(monkeypatch, json.dumps(document, indent=2), "\n")
    main(["check", "--json"])
    shown = capsys.readouterr().out
    assert json.loads(shown)["two"] == ["***", 1.5, None, True]
    assert json.loads(shown)["four"] == "https://***@forge.example/"
    assert "a1B2" not in shown
    assert shown == visible(shown)


@given(st.dictionaries(st.text(), st.recursive(st.text() | st.floats(allow_nan=False), st.lists)))
def test_any_json_keeps_its_meaning(document: dict[str, object]) -> None:
    shown = output.safe(json.dumps(document))
    assert json.loads(shown).keys() or not document


@given(st.text())
def test_any_text_steers_no_terminal(text: str) -> None:
    shown = output.safe(text)
    assert shown == visible(shown)


def test_a_traceback_is_without_secrets() -> None:
    program = (
        "from runbook_lib.cli import __main__, check as checking\n"
        "def check(**_): raise LookupError('the key ' + __import__('os').environ['MY_TOKEN'] + chr(27))\n"
        "checking.check.callback = check\n"
        "__main__.main(['check'])\n"
    )
    env = dict(os.environ) | {"MY_TOKEN": "hunter2-hunter2"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 1
    assert "LookupError: the key ***" in done.stderr
    assert "hunter2" not in done.stderr
    assert "\x1b" not in done.stderr
