"""Build the locked environment for environment/run, which calls this if it is missing or outdated.

Uses only the standard library.  Concurrent or killed builds leave a complete environment or none: the lock is held
until the last installing process has ended, and the file ``installed`` is written last.
"""

import ast
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
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
UV, PACKAGES = ENVIRONMENT / "uv.txt", ENVIRONMENT / "requirements.txt"


def main() -> int:
    """Return 0 if the environment is complete, 125 if it could not be built, 130 after Ctrl-C."""
    try:
        with open(ENVIRONMENT / ".lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _say("Waiting for another command that is building the environment.")
                fcntl.flock(lock, fcntl.LOCK_EX)
            # environment/run compares the same, in the same order.
            sources = b"".join(path.read_bytes() for path in (UV, PACKAGES, ROOT / "pyproject.toml"))
            content = os.fsencode(ROOT) + b"\n" + sources
            if not (PYTHON.exists() and INSTALLED.exists() and INSTALLED.read_bytes() == content):
                _build(lock.fileno())
                INSTALLED.with_suffix(".partial").write_bytes(content)
                INSTALLED.with_suffix(".partial").replace(INSTALLED)
    except subprocess.CalledProcessError as error:
        _say(
            "The environment could not be installed. The reason is shown above, from this command: "
            f"{shlex.join(map(str, error.cmd))}. For network problems: set a proxy with HTTPS_PROXY, and another "
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


def _build(lock: int) -> None:
    started = time.monotonic()
    _say(f"Building the locked environment in {VENV} with Python {'.'.join(map(str, sys.version_info[:3]))}.")
    if VENV.exists():
        shutil.rmtree(VENV)
    _run(lock, os.environ, sys.executable, "-I", "-m", "venv", VENV)
    env = _environ()
    pip = (PYTHON, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq")
    # Otherwise uv reads settings from each folder above the checkout.
    uv, options = (VENV / "bin" / "uv", "--project", "/", "pip"), ("--quiet", "--python", PYTHON)
    _say("1 of 3: downloading uv, the installer.")
    requirements = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", UV)
    _run(lock, env, *pip, "install", *requirements)
    _say("2 of 3: installing the packages, verified by hash (about 240 MB to download the first time).")
    # Only wheels: building a source distribution would run code that is not locked.
    hashed = ("--require-hashes", "--no-build")
    _run(lock, env, *uv, "sync", *options, *hashed, PACKAGES)
    # Older Pythons install it in every virtual environment, but nothing here needs it.
    _run(lock, env, *uv, "uninstall", *options, "setuptools")
    _say("3 of 3: installing this checkout's library.")
    offline = ("--offline", "--no-deps", "--no-build-isolation", "--editable", ROOT)
    _run(lock, env, *uv, "install", *options, *offline)
    _say(f"Ready after {time.monotonic() - started:.0f} seconds.")


def _run(lock: int, env: Mapping[str, str], *command: str | Path) -> None:
    # The child inherits the lock, so that it is held until the child has ended even if this process is killed.
    env = {**env, "PYTHONSAFEPATH": "1"}  # nothing may be imported from the current folder, either
    subprocess.run(command, env=env, cwd=ROOT, pass_fds=(lock,), check=True)


def _environ() -> dict[str, str]:
    """Return the environment for pip and uv; pip's index and certificate are used for uv, too."""
    diverting = {f"{tool}_{name}" for tool in ("PIP", "UV") for name in DIVERTING}
    environ = {name: value for name, value in os.environ.items() if name not in diverting} | {"PIP_USER": "0"}
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
