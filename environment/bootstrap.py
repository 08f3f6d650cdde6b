"""Builds the locked environment for environment/run, which calls this when there is none, or an outdated one.

Standard library only.  Several starts at once, and one that is killed, leave a whole environment or none:
the lock is held until the last installing process has ended, and the file that says "installed" is written last.
"""

import ast
import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parent
ROOT = ENVIRONMENT.parent
VENV = ENVIRONMENT / ".venv"
PYTHON = VENV / "bin" / "python"
INSTALLED = VENV / "installed"
#: Settings of pip and uv that would have them install something else, or somewhere else.  Those of the network stay.
DIVERTING = (
    "BUILD_CONSTRAINT", "CONSTRAINT", "DRY_RUN", "EDITABLE", "EXCLUDE", "GROUP", "OVERRIDE", "PREFIX", "PYTHON",
    "REQUIREMENT", "REQUIREMENTS_FROM_SCRIPT", "ROOT", "TARGET",
)  # fmt: skip
SOURCES = (ENVIRONMENT / "uv.txt", ENVIRONMENT / "requirements.txt", ROOT / "pyproject.toml")


class Failed(Exception):
    """A step of the installation failed; its own words are on standard error already."""


def main() -> int:
    """Exit status: 0 when the environment is whole, 125 when it could not be built, 130 after Ctrl-C."""
    try:
        # Nobody else may change what is installed, whatever the umask.
        os.umask(os.umask(0o022) | 0o022)
        with open(ENVIRONMENT / ".lock", "a", opener=_private) as lock:
            _acquire(lock.fileno())
            if not _is_current():
                _build(lock.fileno())
    except Failed as failure:
        _say(
            f"{failure} The reason is above. If it is the network: a proxy is taken from HTTPS_PROXY, a mirror of the "
            "package index and its certificate from pip's settings (pip config set global.index-url …, global.cert …). "
            "Nothing half-built is left in use: run the same command again."
        )
        return 125
    except OSError as error:
        _say(f"The environment could not be built in {ENVIRONMENT}: {error}.")
        return 125
    except KeyboardInterrupt:
        _say("Interrupted. Nothing half-built is left in use: run the same command again.")
        return 130
    return 0


def _private(path: str, flags: int) -> int:
    # Who can read the file could keep it locked for ever.
    handle = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    found = os.fstat(handle)
    if found.st_uid == os.geteuid() and found.st_nlink == 1:
        os.fchmod(handle, 0o600)
    return handle


def _acquire(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("Another command is building the environment: waiting for it.")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _is_current() -> bool:
    return PYTHON.exists() and INSTALLED.exists() and INSTALLED.read_bytes() == _content()


def _content() -> bytes:
    # environment/run compares the same, in the same order.
    return os.fsencode(ROOT) + b"\n" + b"".join(path.read_bytes() for path in SOURCES)


def _build(lock: int) -> None:
    started = time.monotonic()
    version = ".".join(map(str, sys.version_info[:3]))
    # An interrupted installation, or one for another place, cannot be trusted; a whole one is only brought up to date.
    whole = PYTHON.exists() and INSTALLED.exists() and INSTALLED.read_bytes().startswith(os.fsencode(ROOT) + b"\n")
    if whole:
        _say("What is locked has changed: bringing the environment up to date.")
        INSTALLED.unlink()
    else:
        _say(f"First use: building the locked environment in {VENV} with Python {version}.")
        if VENV.exists():
            shutil.rmtree(VENV)
        _step("Python's venv module failed.", lock, sys.executable, "-I", "-m", "venv", VENV)
    pip = (PYTHON, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq")
    # Else uv takes the settings of each folder above the checkout, and others may write there.
    uv = (VENV / "bin" / "uv", "--project", "/", "pip")
    _say("1 of 3: fetching uv, the installer.")
    requirements = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", SOURCES[0])
    _step("uv could not be installed.", lock, *pip, "install", *requirements)
    _say("2 of 3: installing the packages, each checked against its hash (some 260 MB to fetch the first time).")
    options = ("--quiet", "--python", PYTHON)
    # Only wheels: a source distribution would be built by code that nothing has locked.
    hashed = ("--require-hashes", "--no-build")
    _step("The packages could not be installed.", lock, *uv, "sync", *options, *hashed, SOURCES[1])
    # Older Pythons put it into every virtual environment; nothing here needs it.
    _step("What is not locked could not be removed.", lock, *uv, "uninstall", *options, "setuptools")
    _say("3 of 3: installing the library of this checkout.")
    offline = ("--offline", "--no-deps", "--no-build-isolation", "--editable", ROOT)
    _step("The library could not be installed.", lock, *uv, "install", *options, *offline)
    with contextlib.suppress(FileNotFoundError):  # uv lets everybody lock the environment
        (VENV / ".lock").chmod(0o600)
    partial = INSTALLED.with_suffix(".partial")
    partial.write_bytes(_content())
    partial.replace(INSTALLED)
    _say(f"Ready after {time.monotonic() - started:.0f} seconds.")


def _step(failure: str, lock: int, *command: str | Path) -> None:
    # The child inherits the lock: were this process killed, the child would hold it until it has ended too.
    environ = _environ() if PYTHON.exists() else {**os.environ, "PYTHONSAFEPATH": "1"}
    if subprocess.run(command, env=environ, cwd=ROOT, pass_fds=(lock,), check=False).returncode != 0:
        raise Failed(failure)


@functools.cache
def _environ() -> dict[str, str]:
    """The environment for pip and uv; what is set up for pip (index, certificate) serves uv too."""
    diverting = {f"{tool}_{name}" for tool in ("PIP", "UV") for name in DIVERTING}
    environ = {name: value for name, value in os.environ.items() if name not in diverting}
    # Programs that pip and uv start do not import from the current folder either.
    environ |= {"PIP_USER": "0", "PYTHONSAFEPATH": "1"}
    if "PYTHONDONTWRITEBYTECODE" in os.environ:  # without bytecode from here every start would compile anew
        environ.setdefault("UV_COMPILE_BYTECODE", "1")
    listing = subprocess.run([PYTHON, "-I", "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    for line in listing.stdout.splitlines():
        key, _, value = line.partition("=")
        for pip, uv in (("index-url", "UV_DEFAULT_INDEX"), ("cert", "SSL_CERT_FILE")):
            if key.endswith("." + pip):
                environ.setdefault(uv, str(ast.literal_eval(value)))
    return environ


def _say(sentence: str) -> None:
    print(f"environment/run: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
