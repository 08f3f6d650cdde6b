"""Comments: the text before a reference on its line, in the languages of the files that name images."""

import re
from pathlib import PurePosixPath

# Languages in which // begins a comment, and those among them in which # does not.
_SLASHES = frozenset({
    ".js", ".ts", ".go", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".java", ".rs", ".groovy", ".jenkinsfile",
    ".jsonc", ".json", ".json5", ".hcl", ".tf", ".tofu", ".tfvars", ".nomad",
})  # fmt: skip
_BOTH = frozenset({".hcl", ".tf", ".tofu", ".tfvars", ".nomad"})
_BATCH = frozenset({".bat", ".cmd"})
_REMARK = re.compile(r"\s*@?(?:rem\s|::)", re.IGNORECASE)
_WITH_SEMICOLON = frozenset({".ini", ".cfg", ".conf", ".container"})
# Lines that are comments to the shell but are read by a job scheduler.
_DIRECTIVE = re.compile(r"\s*#(?:SBATCH|PBS|BSUB|COBALT|PJM|FLUX:|\$)[ \t]")
# A sign within quotes does not begin a comment.
_HASH = re.compile(r"(?:[^#\"']|\"[^\"]*\"|'[^']*'|(?<=\S)#)*\s#")


def is_comment(path: str, before: str, *, only_at_start: bool) -> bool:
    """Return True if the text ``before`` a reference begins a comment; ``only_at_start``: of the line, with #."""
    name = PurePosixPath(path).name.lower()
    suffix = PurePosixPath(name).suffix
    if (suffix in _SLASHES or name.startswith("jenkinsfile")) and _has_slashes(before):
        return True
    if suffix in _SLASHES - _BOTH or name.startswith("jenkinsfile"):
        return False
    if suffix in _BATCH:
        return bool(_REMARK.match(before))
    stripped = before.lstrip()
    if stripped.startswith("#") or (suffix in _WITH_SEMICOLON and stripped.startswith(";")):
        return not _DIRECTIVE.match(before)
    return not only_at_start and bool(_HASH.match(before))


def _has_slashes(before: str) -> bool:
    is_line = re.match(r"\s*(?://|/?\*)", before) or re.search(r"\s//\s", before)
    return bool(is_line) or before.rfind(" /*") > before.rfind("*/")
