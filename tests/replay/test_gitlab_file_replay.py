"""GitLab's files of the real repository, before and after a bump's edit.

gitlab-ci-local reads them, and checks them against GitLab's schema, without any network.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from runbook_lib.compute.internal_gitlab import builds
from runbook_lib.images.families import NGC
from runbook_lib.images.reference import ImageType
from runbook_lib.pins import plan as pins
from runbook_lib.pins import repositories
from runbook_lib.world.git.checkout import Checkout

MEGATRON_LM = repositories.MEGATRON_LM.sites

pytestmark = [pytest.mark.replay, pytest.mark.component("gitlab-ci-local")]
ROOT = Path(__file__).resolve().parents[2]
READER = ROOT / "environment/.components/gitlab-ci-local/node_modules/gitlab-ci-local/src/index.js"
ENTRY = ".gitlab-ci.yml"
_ELSEWHERE = re.compile(r"(?m)^([ ]*- )(?:template|project): .*\n(?:[ ]+(?:ref|file): .*\n)*")
_SECRETS = """\
.secret-analyzer:
  script: ["true"]
secret_detection:
  extends: .secret-analyzer
"""
#: npm compiles nothing here (and asks no other server), so JavaScript's own expressions stand in for the module re2.
_WITHOUT_RE2 = """\
const Module = require("module");
const name = process.argv[1].replace(/gitlab-ci-local.src.index.js$/, "re2/re2.js");
Module._cache[name] = Object.assign(new Module(name), { filename: name, loaded: true, exports: RegExp });
"""


class NotValid(Exception):
    """What the reader says of files that GitLab would refuse."""


def jobs(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """The names of the jobs of a project with these files, in a folder to be made.  Raises NotValid."""
    folder.mkdir()
    (folder / "without-re2.cjs").write_text(_WITHOUT_RE2)
    place = folder / "project"
    stages = [path for path in texts if path.startswith(".gitlab/stages/")]
    entry = {ENTRY: json.dumps({"include": [{"local": path} for path in stages]})}
    # What comes from GitLab itself and from other projects is not here: a file stands in for it with what
    # Megatron-LM's files build upon, as GitLab's documentation of secret detection names it.
    elsewhere = {".gitlab/elsewhere.yml": _SECRETS}
    for path, text in (entry | elsewhere | dict(texts)).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(_ELSEWHERE.sub(r"\1local: .gitlab/elsewhere.yml\n", text))
    git = ["git", "-C", str(place)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "remote", "add", "origin", "https://gitlab.example.com/ADLR/megatron-lm.git"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "One"], check=True)
    command = ["node", "--require", str(folder / "without-re2.cjs"), str(READER), "--list-json"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise NotValid(re.sub(r"\x1b\[[0-9;]*m", "", done.stderr + done.stdout))
    begin = re.search(r"(?m)^\[$", done.stdout)  # after its warnings
    assert begin is not None, done.stdout
    return [it["name"] for it in json.loads(done.stdout[begin.start() :])]


@pytest.mark.parametrize(
    ("start", "image_type", "tag"),
    [
        ("44ab057fef^", "dev", "25.09-py3"),  # layout 1
        ("82049aa847^", "dev", "25.11-py3"),  # layout 2
        ("f5b2ec0130^", "dev", "26.02-py3"),  # layout 3
        ("64bee49c96^", "dev", "26.06-py3"),  # layout 4
        ("d98e8a64dd", "dev", "26.07-py3"),
        ("d98e8a64dd", "lts", "26.02-py3"),
    ],
)
def test_the_edited_file_is_valid_and_has_the_jobs_that_prove_the_pin(
    megatron_lm: Path, tmp_path: Path, start: str, image_type: ImageType, tag: str
) -> None:
    checkout = Checkout.open(megatron_lm)
    listed = checkout.git("ls-tree", "-r", "--name-only", start, "--", ".gitlab", ".gitlab-ci.yml").splitlines()
    texts = {path: text or "" for path, text in checkout.read(listed, start).items() if path.endswith(".yml")}
    known = checkout.read(MEGATRON_LM.paths, start)
    target, allow = NGC.read(tag), frozenset({"older-tag"})
    plan = pins.plan(known, MEGATRON_LM, target, image_type, allow=allow, digest_of_target=str).part("gitlab")
    assert plan.edits
    edited = texts | {it.path: it.after for it in plan.edits}
    before, after = jobs(tmp_path / "before", texts), jobs(tmp_path / "after", edited)
    assert len(before) == len(after) > 20
    expected = {it.name.replace(", ", ",") for it in builds(known | edited, MEGATRON_LM, image_type)}
    assert expected <= set(after)
    assert set(after) - set(before) <= expected  # nothing else has another name than before
