"""The overlays of a search: how the old version of a component is put into the new image.  Pure."""

import hashlib
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from runbook_lib.images.compare import Component, version_numbers

#: The exit status of a run whose overlay could not be installed.
INVALID = 86
#: The first line that a container prints: without it none was started, and the exit status is not the test's own.
STARTED = "runbook-started:"
#: The components that can be swapped.
_TABLE: tuple[Mapping[str, Any], ...] = tuple(
    tomllib.loads(files("runbook_lib.bisect").joinpath("overlays.toml").read_text("utf-8"))["overlay"]
)
_REPORT = re.compile(r"runbook-overlay: ([\w.-]{1,60}) (\S{1,80})\s*")
_REFUSAL = re.compile(r"runbook-invalid: (.{1,400})")
#: A package's version, if Python imports it from the overlay and not from the image.
_MODULE_VERSION = """
import importlib.metadata, sys, {module}
prefix = sys.argv[1]
if not {module}.__file__.startswith(prefix + "/"):
    sys.exit({module}.__file__ + " is not in the overlay")
print([package.version for package in importlib.metadata.distributions(path=[prefix])][0])
"""


@dataclass(frozen=True)
class Overlay:
    """A component with its old version, and the requirement by which pip installs that.

    ``report`` is Python that prints the version in use, given the overlay's folder; ``module`` is the name that Python
    imports, empty for a library of the loader.  ``release``: the numbers that the container must report first, empty if
    any will do.  ``variables``: what its build needs, as ``NAME=value``.
    """

    name: str
    old: str
    new: str
    requirement: str
    report: str
    release: str = ""
    module: str = ""
    variables: tuple[str, ...] = ()

    def dockerfile_lines(self) -> list[str]:
        """Return the instructions that put the old version into an image built on the new one."""
        target = f"/opt/restored/{self.name}"
        env = shlex.join(["env", "-u", "PIP_CONSTRAINT", *self.variables])
        install = f"{env} python3 -m pip install --no-deps --no-build-isolation --target {target}"
        run, variable = f"RUN {install} {shlex.quote(self.requirement)}", "PYTHONPATH"
        if not self.module:
            run += f" && find {target} -name '*.so*' -exec ln -st {target} {{}} +"
            variable = "LD_LIBRARY_PATH"
        return [run, f"ENV {variable}={target}${{{variable}:+:${variable}}}"]


def plan_overlays(changes: Iterable[Component], named: Mapping[str, str]) -> tuple[dict[str, Overlay], list[str]]:
    """Return overlays by name for the changes between two images, and what cannot be swapped, with reasons.

    ``named`` are further components with their old versions, which the images do not name: those of the table, and
    packages whose module has the package's name.
    """
    components = {component.name: component for component in changes}
    cuda = components.get("CUDA", Component("CUDA", "", ""))
    known = {row["name"] for row in _TABLE}
    packages = [
        {"name": name, "wheel": {"any": f"{name}=={{version}}"}, "module": name.replace("-", "_")}
        for name in named if name not in known
    ]  # fmt: skip
    found: dict[Component, Overlay | str] = {}
    for row in (*_TABLE, *packages):
        component = components.pop(row.get("component", ""), None)
        if row["name"] in named:
            component = Component(row["name"], named[row["name"]], component.new if component else "")
        if component and component.old != component.new:
            found[component] = _overlay(row, component, cuda)
    found |= {it: "it cannot be swapped" for it in components.values() if it.old != it.new}
    reasons = {it: reason for it, reason in found.items() if isinstance(reason, str)}
    suspects = [f"{it.name} {it.old or '?'} → {it.new or '?'}: {reason}" for it, reason in reasons.items()]
    return {it.name: it for it in found.values() if isinstance(it, Overlay)}, suspects


def _overlay(row: Mapping[str, Any], component: Component, cuda: Component) -> Overlay | str:
    """Return the overlay that a row of the table describes, or why the component cannot be swapped."""
    if not component.old:
        return "the old image does not name its version"
    major = _first(cuda.new, 1)
    if row.get("same_cuda") and _first(cuda.old, 1) != major:
        return "its library is different for each major version of CUDA"
    release, new = (_first(version, row.get("numbers", 0)) for version in (component.old, component.new))
    if release and release == new:
        return "in the container the old version would report the same as the new one"
    wheel = row["wheel"].get(major) or row["wheel"].get("any")
    if wheel is None:
        return f"no wheel is known for CUDA {cuda.new or 'of this image'}"
    values = {"version": component.old, "release": _first(component.old), "minor": _first(component.old, 2)}
    module = row.get("module", "")
    report = row.get("report", _MODULE_VERSION).replace("{cuda}", major).replace("{module}", module)
    requirement = re.sub(r"\{(version|release|minor)\}", lambda match: values[match[1]], wheel)
    return Overlay(
        row["name"], component.old, component.new, requirement, report, release, module,
        tuple(row.get("variables", ())),
    )  # fmt: skip


def _first(version: str, count: int | None = None) -> str:
    """Return the first numbers of a version with dots between them, by default all."""
    return ".".join(map(str, version_numbers(version)[:count]))


def script(overlay: Overlay | None, folder: Path) -> str:
    """Return the shell text that installs an overlay in the image that it runs in, and keeps it below ``folder``.

    It says first that it was started.
    """
    lines = [f'echo "{STARTED} ${{SLURM_JOB_NODELIST:-$(hostname)}}"']
    if overlay:
        name = f"{overlay.name}-{hashlib.sha256(overlay.requirement.encode()).hexdigest()[:8]}"
        lines += [
            files(__package__).joinpath("overlays.sh").read_text("utf-8"),
            shlex.join(["restore", str(folder / "overlays"), name, overlay.requirement, *overlay.variables]),
            shlex.join(["report", overlay.name, overlay.report, overlay.release]),
        ]
    return "\n".join(lines) + "\n"


def invalidity(overlay: Overlay, output: Iterable[str]) -> str:
    """Return why a run does not count, from the lines that it printed; empty if the overlay took effect."""
    reported = ""
    for line in output:
        if match := _REFUSAL.match(line):
            return match[1]
        if (match := _REPORT.match(line)) and match[1] == overlay.name:
            reported = match[2]
    expected = rf"{re.escape(overlay.release)}(?!\d)" if overlay.release else r"\S"
    if re.match(expected, reported):
        return ""
    return f"{overlay.name} reports {reported or 'no version'} in the container, not {overlay.old}"
