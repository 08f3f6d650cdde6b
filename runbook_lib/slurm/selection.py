"""Which tests of the recipes are to run on a cluster, and whether each of them can.  Pure."""

import hashlib
import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import yaml

from runbook_lib.errors import CannotTell, Refused, RunbookError
from runbook_lib.golden import coverage, values
from runbook_lib.recipes import rows
from runbook_lib.recipes.device_connections import Connections, architecture, choose
from runbook_lib.recipes.parallelism import Parallelism
from runbook_lib.recipes.workloads import TIME_LIMIT, Workload, read
from runbook_lib.slurm.batch_files import Site, launch

#: The tests that CI runs on a bump's pull request, and whose golden values it moves.
BUMP = "bump"


@dataclass(frozen=True)
class Chosen:
    """A test with what it needs; ``held`` says why it cannot run, and is empty where it can."""

    test: Workload
    connections: Connections
    spread: Parallelism | None = None
    held: str = ""


def known(texts: Mapping[str, str | None]) -> tuple[tuple[Workload, ...], Mapping[str, tuple[str, ...]]]:
    """All tests of these recipes, by path; and by path what in a recipe cannot be understood, as sentences.

    A recipe that cannot be read has no tests.
    """
    found: list[Workload] = []
    odd: dict[str, tuple[str, ...]] = {}
    for path, text in texts.items():
        if not path.endswith((".yaml", ".yml")):
            continue
        try:
            found += (it for it in read(path, text or "") if it.gpus and it.script.strip())
            odd[path] = rows.problems(rows.rows(path, text or ""))
        except RunbookError as error:
            odd[path] = (f"{error} Its tests are left out.",)
    return tuple(found), odd


def pick(tests: Sequence[Workload], asked: str, platform: str, environment: str) -> tuple[Workload, ...]:
    """The tests that ``asked`` names, in their order, on one platform (empty: on any) in one environment.

    ``asked`` are, divided by commas or blanks, ``bump``, scopes, and tests as ``case`` or ``model/case``.
    Raises Refused for a word that names none, and for tests that no platform or environment has.
    """
    here = [it for it in tests if it.environment == environment and platform in ("", "".join(it.platform.split()))]
    words = [it for it in re.split(r"[,\s]+", asked) if it]
    for word in words:
        if not any(_named(it, word) for it in here):
            raise Refused(_unknown(word, tests, here, platform, environment))
    return tuple(it for it in here if any(_named(it, word) for word in words))


def _named(test: Workload, word: str) -> bool:
    if word == BUMP:
        return any(scope in coverage.GITHUB for scope in test.scopes)
    return word in test.scopes or word in (test.case, f"{test.model}/{test.case}", test.name)


def _unknown(word: str, tests: Sequence[Workload], here: Sequence[Workload], platform: str, environment: str) -> str:
    if elsewhere := [it for it in tests if _named(it, word)]:
        where = sorted({f"{it.platform} ({it.environment})" for it in elsewhere})
        return f"{word} runs on {', '.join(where)}, and not on {platform or 'any platform'} ({environment})."
    names = {scope for it in here for scope in it.scopes} | {it.case for it in here}
    near = get_close_matches(word, names, 3)
    hint = f"Did you mean {' or '.join(near)}?" if near else "Give a scope such as nightly, a test case, or bump."
    return f"No recipe has the scope or the test {word!r}. {hint}"


def config_of(test: Workload) -> str:
    """The path of a test's settings."""
    return f"{values.FOLDER}/{test.model}/{test.case}/model_config.yaml"


def prepare(test: Workload, config: str | None, site: Site) -> Chosen:
    """What a test needs, and why it cannot run if so; ``config`` is the text of its settings, None without any."""
    if test.values.get("tag") == "legacy":
        return Chosen(test, Connections(None, ""), held="It tests an older release, whose checkout only CI prepares.")
    try:
        test.command(assets_dir="", artifacts_dir="", name="")
    except CannotTell as error:
        return Chosen(test, Connections(None, ""), held=str(error))
    if config is None:
        return Chosen(test, Connections(None, "It has no model_config.yaml: its own script sets what it needs."))
    spread: Parallelism | None = None
    try:
        spread = Parallelism.parse(config, config_of(test))
        connections = choose(architecture(test.platform), spread)
    except RunbookError as error:
        return Chosen(test, Connections(None, ""), spread, str(error))
    gpus = site.gpus_for(test)
    told = " ".join(spread.problems(test.nodes * gpus))
    if told and gpus == test.gpus:
        told += f" Its recipe asks for {test.gpus} GPUs a node; CI's runners give all they have: see least-gpus."
    return Chosen(test, connections, spread, told)


def own(train: str, nodes: str, gpus: str, platform: str, environment: str) -> tuple[Workload, str]:
    """A training that a person names, ``<script> <arguments>``, as a test; and its settings, from the arguments.

    Raises Refused for sizes that are no numbers, and for a command line that no shell could read.
    """
    for name, text in (("nodes", nodes), ("gpus", gpus)):
        if not re.fullmatch(r"[1-9][0-9]{0,4}", text.strip()):
            raise Refused(f"{name}={text!r} is no number of {name}. Give one, such as 1.")
    try:
        script, *arguments = shlex.split(train)
    except ValueError as error:
        raise Refused(f"train={train!r} cannot be read as a command line: {error}.") from error
    settings: dict[str, object] = {}
    for word, following in itertools.pairwise([*arguments, "--"]):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            settings[name] = value if equals else True if following.startswith("--") else following
    command = launch(script, arguments).replace("{", "{{").replace("}", "}}")
    case = f"train-{hashlib.sha256(train.encode()).hexdigest()[:6]}"
    test = Workload(
        "what was given as train", "own", case, environment, platform, (), int(nodes), int(gpus), TIME_LIMIT,
        f"set -euo pipefail\n{command}",
    )  # fmt: skip
    return test, yaml.safe_dump({"MODEL_ARGS": settings})
