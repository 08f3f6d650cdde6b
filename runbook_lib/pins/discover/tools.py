"""The tool or the CI that reads a file, recognized by the file's path and content."""

import re
import tomllib
from importlib.resources import files
from pathlib import PurePosixPath

_TOOLS = tomllib.loads((files("runbook_lib.pins.discover") / "tools.toml").read_text("utf-8"))["tools"]
_FOREIGN = frozenset(
    {"node_modules", "bower_components", "vendor", "vendored", "third_party", "third-party", "3rdparty"}
)
_KUBERNETES = re.compile(r"(?m)^[ \t]*(?:apiVersion|kind):|\"(?:apiVersion|kind)\"[ \t]*:")


def tool_of(path: str, text: str) -> str:
    """Return the name of the tool that pulls or builds the images in a file; empty if none is known."""
    pure = PurePosixPath(path.lower())
    for tool in _TOOLS:
        if any(map(pure.match, tool["files"])):
            return str(tool["name"])
    if pure.suffix in (".yaml", ".yml", ".json"):
        keys = {key.strip(' \t":') for key in _KUBERNETES.findall(text)}
        if len(keys) == 2:
            return "Kubernetes"
    return ""


def is_foreign(path: str) -> bool:
    """Return True for a file in a folder with copies of other projects."""
    return not _FOREIGN.isdisjoint(path.lower().split("/")[:-1])
