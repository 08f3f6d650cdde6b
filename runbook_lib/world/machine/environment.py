"""The environment variables of programs that are run for the user."""

import sys
from collections.abc import Mapping
from pathlib import Path

#: Set by a git hook that runs this program; they would bind every call of git to another repository's index.
GIT_BINDING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")
#: Set by such a hook, or for this program's own Python.
_FOREIGN = (*GIT_BINDING, "PYTHONNOUSERSITE", "PYTHONSAFEPATH")


def user_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that this program and git hooks add: Python, uv, git.

    A release of uv other than the image's would write uv.lock in a different format.
    """
    user = {name: value for name, value in env.items() if name not in _FOREIGN}
    prefix = Path(env.get("VIRTUAL_ENV") or "/")
    if prefix == Path(sys.prefix):
        user.pop("VIRTUAL_ENV", None)
        own_folders = (str(prefix / "bin"), str(prefix.parent / "bin"))
        user["PATH"] = ":".join(folder for folder in env.get("PATH", "").split(":") if folder not in own_folders)
    return user
