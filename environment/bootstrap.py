"""Build the locked environment for environment/run, which calls this if it is missing or outdated.

Uses only the standard library.  Concurrent or killed builds leave a complete environment or none: the lock is held
until the last installing process has ended, and the file ``installed`` is written last.
"""

import ast
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
#: Settings that would make pip and uv install other packages, or elsewhere.  Network settings are kept.
DIVERTING = (
    "BUILD_CONSTRAINT", "CONSTRAINT", "DRY_RUN", "EDITABLE", "EXCLUDE", "GROUP", "OVERRIDE", "PREFIX", "PYTHON",
    "REQUIREMENT", "REQUIREMENTS_FROM_SCRIPT", "ROOT", "TARGET",
)  # fmt: skip
SOURCES = (ENVIRONMENT / "uv.txt", ENVIRONMENT / "requirements.txt", ROOT / "pyproject.toml")


class Failed(Exception):
    """A failed installation step, which has already printed the reason on standard error."""


def main() -> int:
    """Return 0 if the environment is complete, 125 if it could not be built, 130 after Ctrl-C."""
    try:
        with open(ENVIRONMENT / ".lock", "a") as lock:
            _acquire(lock.fileno())
            if not _is_current():
                _build(lock.fileno())
    except Failed as failure:
        _say(
            f"{failure} The reason is shown above. For network problems: set a proxy with HTTPS_PROXY, and another "
            "package index or its certificate with pip's settings (pip config set global.index-url …, global.cert …). "
            "No incomplete environment is used. Run the same command again."
        )
        return 125
    except OSError as error:
        _say(f"The environment could not be built in {ENVIRONMENT}: {error}.")
        return 125
    except KeyboardInterrupt:
        _say("Interrupted. No incomplete environment is used. Run the same command again.")
        return 130
    return 0


def _acquire(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("Waiting for another command that is building the environment.")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _is_current() -> bool:
    return PYTHON.exists() and INSTALLED.exists() and INSTALLED.read_bytes() == _content()


def _content() -> bytes:
    # environment/run compares the same, in the same order.
    return os.fsencode(ROOT) + b"\n" + b"".join(path.read_bytes() for path in SOURCES)


def _build(lock: int) -> None:
    started = time.monotonic()
    version = ".".join(map(str, sys.version_info[:3]))
    # An interrupted installation, or one for another location, cannot be trusted; a complete one is only updated.
    location = os.fsencode(ROOT) + b"\n"
    if PYTHON.exists() and INSTALLED.exists() and INSTALLED.read_bytes().startswith(location):
        _say("The lock file has changed: updating the environment.")
        INSTALLED.unlink()
    else:
        _say(f"First use: building the locked environment in {VENV} with Python {version}.")
        if VENV.exists():
            shutil.rmtree(VENV)
        _step("Python's venv module failed.", lock, sys.executable, "-I", "-m", "venv", VENV)
    pip = (PYTHON, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq")
    # Otherwise uv reads settings from each folder above the checkout.
    uv = (VENV / "bin" / "uv", "--project", "/", "pip")
    _say("1 of 3: downloading uv, the installer.")
    requirements = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", SOURCES[0])
    _step("uv could not be installed.", lock, *pip, "install", *requirements)
    _say("2 of 3: installing the packages, verified by hash (about 240 MB to download the first time).")
    options = ("--quiet", "--python", PYTHON)
    # Only wheels: building a source distribution would run code that is not locked.
    hashed = ("--require-hashes", "--no-build")
    _step("The packages could not be installed.", lock, *uv, "sync", *options, *hashed, SOURCES[1])
    # Older Pythons install it in every virtual environment, but nothing here needs it.
    _step("Packages that are not locked could not be removed.", lock, *uv, "uninstall", *options, "setuptools")
    _say("3 of 3: installing this checkout's library.")
    offline = ("--offline", "--no-deps", "--no-build-isolation", "--editable", ROOT)
    _step("The library could not be installed.", lock, *uv, "install", *options, *offline)
    partial = INSTALLED.with_suffix(".partial")
    partial.write_bytes(_content())
    partial.replace(INSTALLED)
    _say(f"Ready after {time.monotonic() - started:.0f} seconds.")


def _step(failure: str, lock: int, *command: str | Path) -> None:
    # The child inherits the lock, so that it is held until the child has ended even if this process is killed.
    environ = _environ() if PYTHON.exists() else {**os.environ, "PYTHONSAFEPATH": "1"}
    if subprocess.run(command, env=environ, cwd=ROOT, pass_fds=(lock,), check=False).returncode != 0:
        raise Failed(failure)


@functools.cache
def _environ() -> dict[str, str]:
    """Return the environment for pip and uv; pip's index and certificate are used for uv, too."""
    diverting = {f"{tool}_{name}" for tool in ("PIP", "UV") for name in DIVERTING}
    environ = {name: value for name, value in os.environ.items() if name not in diverting}
    # Programs started by pip and uv must not import from the current folder, either.
    environ |= {"PIP_USER": "0", "PYTHONSAFEPATH": "1"}
    if "PYTHONDONTWRITEBYTECODE" in os.environ:  # otherwise every start would compile again
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
