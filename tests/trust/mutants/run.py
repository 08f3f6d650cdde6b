"""Planted faults: each weakens one guarantee of SECURITY.md, and the test that is named for it must fail.

    environment/run python tests/trust/mutants/run.py [--sample N] [--seed SEED] [ID …]

The faults are in the TOML files beside this script.  Each is a replacement of text that occurs exactly once in the
library, in environment/ or in .dockerignore, wherever that is, so that a fault survives code being moved.  It is
applied in a scratch copy of the tracked files, with an environment of its own that imports the library from the copy.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
#: Where a fault may be planted.
SOURCES = ("runbook_lib", "environment", ".dockerignore")
#: Seconds for one test.  A fault that makes it hang is caught too, but should be planted so that it does not.
TIMEOUT = 600
_LIBRARY = "_base_image_runbook.pth"  # names the folder of the library that an environment imports
_VENV = Path("environment/.venv")
#: Not tracked, but needed by tests that are marked with the component that it belongs to.
_COMPONENTS = Path("environment/.components")
_SECTION = re.compile(r"^## Threats and defences$(.*?)^## ", re.MULTILINE | re.DOTALL)
#: What pytest exits with where tests ran and some failed.  Any other failure is no assertion: a syntax error, say.
_FAILED = 1


class MutantError(Exception):
    """A mutant that cannot be applied, or a copy in which its test cannot be run."""


@dataclass(frozen=True)
class Row:
    """A row of a table of SECURITY.md: the threat, and the test files named for it, below ``tests/``."""

    threat: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    """A planted fault.

    ``guarantee`` is a part of the threat of exactly one row of SECURITY.md.  ``test`` is a file or a node id below
    ``tests/``.  ``slow`` marks those whose test takes more than about 10 seconds.
    """

    id: str
    guarantee: str
    test: str
    before: str
    after: str
    slow: bool = False


@dataclass(frozen=True)
class Result:
    """What became of a mutant: ``caught`` or ``missed``, and the line in which pytest names the failure."""

    outcome: str
    detail: str
    seconds: float


def rows(page: str) -> tuple[Row, ...]:
    """Return the rows of the tables of threats and defences."""
    section = _SECTION.search(page)
    if section is None:
        raise MutantError('SECURITY.md has no section "Threats and defences".')
    table = re.findall(r"^\| (.+?) \| .+? \| (.+?) \|$", section[1], re.MULTILINE)
    return tuple(Row(threat, tuple(re.findall("`([^`]+)`", tests))) for threat, tests in table if threat != "threat")


def load(folder: Path = HERE) -> tuple[Mutant, ...]:
    """Return all mutants, in the order of the files and of the rows within."""
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        for group in tomllib.loads(path.read_text())["guarantee"]:
            mutants += [Mutant(guarantee=group["threat"], **mutant) for mutant in group["mutant"]]
    return tuple(mutants)


def sources(root: Path) -> tuple[Path, ...]:
    """Return the tracked files in which a fault may be planted."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *SOURCES], cwd=root, capture_output=True, check=True)
    files = (root / name for name in listed.stdout.decode().split("\0") if name)
    return tuple(path for path in files if path.is_file() and not path.is_symlink() and path.suffix != ".json")


def locate(mutant: Mutant, files: Sequence[Path]) -> Path:
    """Return the file with the text that the mutant replaces.  Raises MutantError unless it occurs exactly once."""
    places = [(path, count) for path in files if (count := path.read_text().count(mutant.before))]
    if not places:
        raise MutantError(f"{mutant.id} does not apply: its text is in no file. Rewrite the mutant for today's code.")
    if sum(count for _, count in places) > 1:
        names = ", ".join(path.name for path, _ in places)
        raise MutantError(f"{mutant.id} does not apply: its text occurs more than once, in {names}. Add lines to it.")
    if mutant.after == mutant.before:
        raise MutantError(f"{mutant.id} changes nothing.")
    return places[0][0]


class Scratch:
    """A copy of the repository's tracked files in which tests import the copy's library."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        self.root.mkdir()
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self._copy_files()
        self._copy_environment()
        if (ROOT / _COMPONENTS).is_dir():
            (self.root / _COMPONENTS).symlink_to((ROOT / _COMPONENTS).resolve())
        self._require_own_library()

    def _copy_files(self) -> None:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in listed.decode().split("\0"):
            if not name or not (ROOT / name).exists():
                continue
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)
        # Some tests ask git for the tracked files.
        git = ["git", "-C", str(self.root), "-c", "user.name=mutants", "-c", "user.email=mutants@example.org"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "--all"], check=True)
        subprocess.run([*git, "commit", "-q", "--no-verify", "--no-gpg-sign", "-m", "Copy"], check=True)

    def _copy_environment(self) -> None:
        """Make an environment of links to the installed packages, whose library is this copy's.

        PYTHONPATH would not do: environment/run and some tests unset it.
        """
        source, target = ROOT / _VENV, self.root / _VENV
        packages = Path(sysconfig.get_path("purelib", vars={"base": ""})).relative_to("/")
        (target / packages).mkdir(parents=True)
        (target / "bin").mkdir()
        for folder in ("etc", "include", "share"):
            (target / folder).symlink_to(source / folder)
        shutil.copy(source / "pyvenv.cfg", target / "pyvenv.cfg")
        for package in (source / packages).iterdir():
            if package.name != _LIBRARY:
                (target / packages / package.name).symlink_to(package)
        (target / packages / _LIBRARY).write_text(f"{self.root}\n")
        for command in (source / "bin").iterdir():
            _copy_command(command, target / "bin" / command.name, str(source), str(target))
        locked = [self.root / name for name in ("environment/uv.txt", "environment/requirements.txt", "pyproject.toml")]
        content = b"".join(path.read_bytes() for path in locked)
        (target / "installed").write_bytes(os.fsencode(self.root) + b"\n" + content)

    def _require_own_library(self) -> None:
        code = "import runbook_lib; print(runbook_lib.__file__)"
        done = self._python("-I", "-c", code, timeout=60)
        if Path(done.stdout.strip()).parents[:2][-1] != self.root:
            raise MutantError(f"The copy imports another library: {done.stdout}{done.stderr}")

    def _python(self, *arguments: str, timeout: float) -> "subprocess.CompletedProcess[str]":
        environ = {**os.environ, "TMPDIR": str(self._temporary), "VIRTUAL_ENV": str(self.root / _VENV)}
        environ["COLUMNS"] = "250"  # pytest cuts the reason of a failure at the end of a line
        environ["PATH"] = os.pathsep.join([str(self.root / _VENV / "bin"), environ["PATH"]])
        # A test within a test is no worker of the outer one.
        for name in [it for it in environ if it.startswith(("PYTEST_", "COVERAGE_")) or it == "PYTHONPATH"]:
            del environ[name]
        return subprocess.run(
            [str(self.root / _VENV / "bin/python"), *arguments],
            cwd=self.root, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=timeout, start_new_session=True,
        )  # fmt: skip

    def run(self, *tests: str) -> tuple[int, list[str]]:
        """Run tests of the copy; pytest's exit status and the lines that name what failed.  One test ends with that."""
        options = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=line", "-rfE"]
        options += ["-n0", "-x"] if len(tests) == 1 else []
        paths = [f"tests/{test}" for test in tests]
        try:
            done = self._python("-m", "pytest", *options, *paths, timeout=TIMEOUT * len(tests))
        except subprocess.TimeoutExpired:
            return _FAILED, [f"no end within {TIMEOUT} seconds"]
        lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return done.returncode, lines or (done.stdout + done.stderr).splitlines()[-1:]

    def require_sound(self, tests: Sequence[str]) -> None:
        """Raise MutantError where one of the tests fails without any fault."""
        status, lines = self.run(*tests)
        if status:
            raise MutantError("\n".join(["Without any fault these tests fail already:", *lines]))

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Apply a mutant, and take it back.  Raises MutantError where it does not apply."""
        path = locate(mutant, sources(self.root))
        text = path.read_text()
        _write(path, text.replace(mutant.before, mutant.after))
        try:
            yield
        finally:
            _write(path, text)

    def try_mutant(self, mutant: Mutant) -> Result:
        """Run the mutant's test with the fault planted.  Raises MutantError where its tests cannot even be run."""
        begin = time.monotonic()
        with self.planted(mutant):
            status, lines = self.run(mutant.test)
        seconds = time.monotonic() - begin
        detail = lines[0] if lines else ""
        if status not in (0, _FAILED):
            raise MutantError(f"{mutant.id}: {mutant.test} could not be run (pytest's exit status {status}): {detail}")
        return Result("caught" if status else "missed", detail, seconds)


def _copy_command(source: Path, target: Path, old: str, new: str) -> None:
    """Copy a command of an environment: a link as it is, a script with the new place in its first line."""
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
        return
    with source.open("rb") as file:
        is_script = file.read(2) == b"#!"
    if is_script:
        target.write_text(source.read_text().replace(old, new))
        target.chmod(0o755)
    else:
        target.symlink_to(source)


def _write(path: Path, text: str) -> None:
    """Write a source file, and remove what was compiled of it: Python compares times by the second only."""
    path.write_text(text)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Make a copy of the repository, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="runbook-mutants-", ignore_cleanup_errors=True) as folder:
        yield Scratch(Path(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Try mutants; exit status 0 where each was caught, 1 where not, 2 where a test fails without a fault."""
    parser = argparse.ArgumentParser(description="Plant faults in a copy and run the test that must fail for each.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="the mutants to try; all when none is named")
    parser.add_argument("--sample", type=int, metavar="N", help="try only N of them, drawn by the seed")
    parser.add_argument("--seed", default="", help="what decides the sample, such as a commit")
    parser.add_argument("--no-slow", action="store_true", help="leave out those whose test takes long")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests without a fault first")
    options = parser.parse_args(arguments)
    mutants = load()
    if unknown := set(options.ids) - {mutant.id for mutant in mutants}:
        parser.error(f"no mutant is called {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in mutants if not options.ids or mutant.id in options.ids]
    chosen = [mutant for mutant in chosen if not (options.no_slow and mutant.slow)]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    with scratch() as copy:
        try:
            if not options.no_baseline:
                copy.require_sound(sorted({mutant.test for mutant in chosen}))
        except MutantError as error:
            print(error, file=sys.stderr)
            return 2
        return _report(copy, chosen)


def _report(copy: Scratch, mutants: Sequence[Mutant]) -> int:
    outcomes: dict[str, list[str]] = {"caught": [], "missed": [], "does not apply": []}
    for mutant in mutants:
        try:
            result = copy.try_mutant(mutant)
            outcome, detail = result.outcome, f"{result.seconds:.1f} s  {result.detail}"
        except MutantError as error:
            outcome, detail = "does not apply", str(error)
        outcomes[outcome].append(mutant.id)
        print(f"{outcome:14}  {mutant.id:40}  {mutant.test}\n                {detail}", flush=True)
    print(", ".join(f"{len(ids)} {outcome}" for outcome, ids in outcomes.items()))
    for outcome in ("missed", "does not apply"):
        if outcomes[outcome]:
            print(f"{outcome}: {' '.join(outcomes[outcome])}")
    return int(len(outcomes["caught"]) < len(mutants))


if __name__ == "__main__":
    sys.exit(main())
