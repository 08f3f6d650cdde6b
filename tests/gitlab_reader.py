"""GitLab's CI files, read and checked against GitLab's schema by gitlab-ci-local, without any network."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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
