"""Secrets of all usual kinds, in environment, remotes, answers, logs and names: after a bump none is to be found."""

import base64
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import seeded
from bumping import REPOSITORY, World, git, world, written
from forked import Forked
from registry_server import RegistryServer
from seeded import Search, secrets, shown
from small_runbooks import notebook
from token_rights import Token

from runbook_lib.errors import RunbookError
from runbook_lib.images.reference import ImageRef
from runbook_lib.notebook import papermill
from runbook_lib.practice import evidence
from runbook_lib.practice.store import ENGINEER
from runbook_lib.record.store import verify
from runbook_lib.world.git.checkout import Checkout
from runbook_lib.world.git.commits import create_commit
from runbook_lib.world.github.client import GitHub
from runbook_lib.world.gitlab.client import GitLab
from runbook_lib.world.machine import provenance
from runbook_lib.world.registry import OciRegistry

RUNBOOKS = provenance.ROOT / "runbooks"
TAG = "26.04-py3"

# -- a bump ----------------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """A world full of secrets: ``held`` are those of the environment, ``strange`` all others.

    ``put`` are the files in which this test itself put some.
    """

    home: Path
    world: World
    held: dict[str, str]
    strange: dict[str, str]
    patch: pytest.MonkeyPatch
    put: list[Path] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def checkout(self) -> Path:
        return self.home / "checkout"

    def any(self, number: int) -> str:
        """A text with one of the strange secrets."""
        name = list(self.strange)[number % len(self.strange)]
        return shown(self.strange[name], name, number // len(self.strange))

    def papermill(self, path: Path, status: int | None = None, **parameters: object) -> str:
        """Run the environment's command in a process of its own; return what it said."""
        given = ((name, value, "-p" if isinstance(value, bool) else "-r") for name, value in parameters.items())
        options = [it for name, value, how in given for it in (how, name, str(value))]
        env = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}  # ipykernel reads it
        run = Forked(self.home / "said", papermill.main, [str(path), *options], cwd=self.home, env=env)
        ended, told = run.ended(600)
        self.told.append(told)
        assert "Traceback (most recent call last)" not in told or "raise" in path.read_text(), told
        assert "Nothing was run" not in told, told
        assert status is None or ended == status, told
        return told

    def step(self, name: str, status: int | None = None, **parameters: object) -> str:
        given = {"tag": TAG, "repo": str(self.checkout)} | parameters
        return self.papermill(RUNBOOKS / f"{name}.ipynb", status, **given)

    def act(self, name: str, status: int | None = None, **parameters: object) -> str:
        """As ``step``, and publish."""
        return self.step(name, status, mode="publish", **parameters)


@contextmanager
def bench(home: Path, seed: object) -> Iterator[Bench]:
    """Everything below ``home``: what git, Jupyter and the system keep there too."""
    held, strange = secrets(f"held {seed}"), secrets(f"strange {seed}")
    with world(home) as at, closing(RegistryServer(listen=True)) as images, pytest.MonkeyPatch.context() as patch:
        at.listen = True
        made = Bench(home, at, held, strange, patch)
        for name in ("user", "tmp"):
            (home / name).mkdir()
        (home / "user" / ".gitconfig").write_text((Path(os.environ["HOME"]) / ".gitconfig").read_text())
        at.served.tokens[held["GitHub, personal"]] = Token(ENGINEER)
        for name, value in {
            "HOME": str(home / "user"), "TMPDIR": str(home / "tmp"), "PYTHONPATH": str(provenance.ROOT),
            "GITHUB_API_URL": at.served.url, "GITHUB_TOKEN": held["GitHub, personal"], "RUNBOOK_REGISTRY": images.url,
            "GITLAB_URL": f"{at.served.url}/gitlab", "GITLAB_TOKEN": held["GitLab, personal"],
            "GITLAB_PROJECT": REPOSITORY, "NGC_API_KEY": held["NVIDIA"],
            "RUNBOOK_AUDIT": str(home / "audit"),
            **{f"SEED_{number}_{end}": value for number, value in enumerate(held.values())
               for end in [("TOKEN", "KEY", "PASSWORD", "SECRET")[number % 4]]},
        }.items():  # fmt: skip
            patch.setenv(name, value)
        yield made


def leak_into_logs(made: Bench) -> None:
    """What CI's jobs print, and what they leave in their artifacts, tells secrets wherever it tells an error."""
    of, count = evidence._lines, iter(range(10**6))

    def told(names: list[str], **given: object) -> list[str]:
        # Of a private key only its first line: an excerpt may begin at any line of a log.
        lines = of(names, **given)
        return lines if names == ["progress"] else [f"{it} {made.any(next(count))}".partition("\n")[0] for it in lines]

    made.patch.setattr(evidence, "_lines", told)


def whole(made: Bench) -> None:
    """A bump from its first step to its quarantines, with CI whose logs tell all kinds of secrets."""
    leak_into_logs(made)
    made.act("bump")
    made.world.now[0] += 1000
    hang, memory = "gpt3_mcore_te_tp4_pp1_long@dgx_h100", "moe/gpt3_moe_mcore_tp2_ep4_memory"
    accept = f"hybrid/hybrid_mr_tp2_cp2/golden_values_dev_dgx_h100.json: known, {made.any(1)}"
    told = f"{hang}: it hangs with {made.any(0)}; {memory}: out of memory, see https://ada:{made.any(2)}@x.example/"
    made.step("investigate-ci", place="#10")
    file = written(made.checkout.parent / "decisions.yaml", accept=accept, broken=told, confirm="divergence")
    made.act("bump", decisions=file)


def remotes(made: Bench) -> None:
    """Credentials in addresses and settings of git; a push that is refused with words that repeat them."""
    token = made.strange["GitHub, personal"]
    basic = base64.b64encode(f"x-access-token:{made.strange['GitHub, app']}".encode()).decode()
    address = f"https://x-access-token:{token}@github.example/{REPOSITORY}.git"
    config = made.checkout / ".git" / "config"
    before = git(made.checkout, "remote", "get-url", "origin")
    settings = f"""
[url "{made.world.remote}"]
    insteadOf = {address}
[http "https://github.example/"]
    extraHeader = "AUTHORIZATION: basic {basic}"
[remote "broken"]
    url = http://ada:{made.strange["a password"]}@127.0.0.1:1/x.git
    fetch = +refs/heads/*:refs/remotes/broken/*
"""
    config.write_text(config.read_text().replace(f"url = {before}", f"url = {address}") + settings)
    made.put.append(config)
    hook = made.world.remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    said = "\n".join(made.any(number) for number in range(len(made.strange)))
    hook.write_text(f"#!/bin/sh\ncat >&2 <<'END'\nrefused: {address}\n{said}\nEND\nexit 1\n")
    hook.chmod(0o755)
    made.put.append(hook)
    assert "failed" in made.act("bump")
    hook.unlink()
    made.act("03-open-pr")
    made.act("03-open-pr", remote="broken")
    config.write_text(config.read_text().replace(f"url = {address}", f"url = https://{token}@127.0.0.1:1/x.git"))
    made.step("00-preflight")


def crash(made: Bench) -> None:
    """Cells that let secrets out in all ways, raise with them, and die with them as their last words."""
    folder = made.home / "own" / "runbooks"
    folder.mkdir(parents=True)
    made.put.append(folder)
    made.patch.setenv("SEED_TOKEN", made.held["GitLab, personal"])
    said, let_out = seeded.let_out(folder / "told.json", "crash")
    made.strange |= let_out
    texts = f"import os, sys; strange = {[made.any(number) for number in range(15)]!r}"
    cells = {
        "lets-out": [said, "step.raise_if_failed()", "step.show()"],
        "raises": [texts, "secret = strange[0]\nraise ValueError(f'{secret} {strange}')"],
        "told": [texts, "raise RunbookError(' '.join(strange) + os.environ['GITHUB_TOKEN'])"],
        "dies": [texts, "sys.__stderr__.write('\\n'.join(strange)); sys.__stderr__.flush(); os._exit(1)  # raise"],
    }
    for name, code in cells.items():
        made.papermill(notebook(folder / f"{name}.ipynb", *code), tag=TAG, repo=made.checkout)


def test_text_that_leaves_the_machine_is_searched_again(tmp_path: Path) -> None:
    """Whatever has forgotten to: the messages of commits, and what GitHub is sent."""
    strange = secrets("leaving")
    search = Search(strange.values())
    text = "\n".join(shown(secret, name, 0) for name, secret in strange.items())
    git(tmp_path, "init", "-q", "clone")
    checkout = Checkout.open(tmp_path / "clone")
    tree = git(checkout.path, "hash-object", "-t", "tree", "-w", "/dev/null")
    commit = create_commit(checkout, tree, [], f"One\n\n{text}")
    git(checkout.path, "update-ref", "refs/heads/main", commit)
    assert git(checkout.path, "log", "--format=%s", "main") == "One"
    assert not search.in_git(checkout.path)
    sent: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.content)
        return httpx.Response(201, json={})

    GitHub("o/r", {"GITHUB_TOKEN": "x"}, httpx.MockTransport(answer)).add_label(1, text)
    assert len(sent) == 1
    assert not search.found(sent[0])


@pytest.mark.parametrize("status", [400, 403, 422, 503])
def test_an_answer_that_repeats_the_token_is_searched_too(status: int) -> None:
    token = "no-form-tells-that-this-is-one"
    env = {"GITLAB_URL": "https://forge.example", "GITLAB_TOKEN": token, "GITLAB_PROJECT": "a/b"}
    image = ImageRef.parse("nvcr.io/nvidia/pytorch:26.04-py3")
    answer = httpx.MockTransport(lambda it: httpx.Response(status, json={"message": repr(it.headers.raw) + token}))
    asked: list[Callable[[], object]] = [
        lambda: GitHub("o/r", {"GITHUB_TOKEN": token}, answer).comment(1, "x"),
        lambda: GitLab(env, transport=answer).pipeline(1),
        lambda: OciRegistry(image, {"NGC_API_KEY": token}, transport=answer).tags(),
    ]
    for ask in asked:
        with pytest.raises(RunbookError) as told:
            ask()
        assert token not in str(told.value)


SCENARIOS: Mapping[str, Callable[[Bench], None]] = {"a whole bump": whole, "remotes": remotes, "a crash": crash}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_bump(tmp_path: Path, scenario: str) -> None:
    with bench(tmp_path, scenario) as made:
        SCENARIOS[scenario](made)
        sought = [*made.held.values(), *made.strange.values()]
        search = Search(sought)
        hits = search.below(tmp_path, made.put)
        for number, told in enumerate(made.told):
            hits[f"what command {number} said"] = search.found(told.encode())
        hits["git"] = set()
        for repository in (made.checkout, made.world.remote, made.world.fork):
            hits["git"] |= search.in_git(repository)
        found = {place: what for place, what in hits.items() if what}
        assert not found
        assert verify(tmp_path / "audit")[0] == []
        # It was there to be found.
        kept = b"".join(it.read_bytes() for it in (tmp_path / "audit").rglob("*") if it.is_file())
        assert b"***" in kept
