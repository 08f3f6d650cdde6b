"""Credentials for a registry: the NGC key, or those stored by ``docker login`` and similar programs.

Nothing is read before a registry asks for credentials; they go into a header and nowhere else.
Source of the forms: Docker's documentation of ``docker login`` and of credential helpers, containers-auth.json(5).
"""

import base64
import contextlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_HELPER_SECONDS = 15
_HUB = ("docker.io", "registry-1.docker.io")


@dataclass(frozen=True)
class Credential:
    """A user name and a secret, which is never printed; ``source`` is their origin, for messages.

    Without a secret, there is none; ``problem`` is a sentence if there is one that cannot be used.
    """

    user: str = ""
    secret: str = field(default="", repr=False)
    source: str = ""
    problem: str = ""

    @property
    def header(self) -> dict[str, str]:
        """The Authorization header; none without a secret."""
        if not self.secret:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()}


def ngc(key: str) -> Credential:
    """Return NGC's credentials: the key as the password of this user."""
    return Credential("$oauthtoken", key, "NGC_API_KEY")


def docker(host: str, repository: str, env: Mapping[str, str]) -> Credential:
    """Return the credential for a repository in the files of Docker, Podman and Skopeo: the first one."""
    problems = []
    for path in _files(env):
        result = _in_file(path, host, repository, env)
        if result.secret:
            return result
        problems.append(result.problem)
    return Credential(problem=" ".join(filter(None, problems)))


def _files(env: Mapping[str, str]) -> Iterator[Path]:
    home = env.get("HOME", "")
    if env.get("REGISTRY_AUTH_FILE"):
        yield Path(env["REGISTRY_AUTH_FILE"])
    if env.get("DOCKER_CONFIG"):
        yield Path(env["DOCKER_CONFIG"], "config.json")
    elif home:
        yield Path(home, ".docker/config.json")
    if env.get("XDG_RUNTIME_DIR"):
        yield Path(env["XDG_RUNTIME_DIR"], "containers/auth.json")
    if home:
        yield Path(home, ".config/containers/auth.json")


def _in_file(path: Path, host: str, repository: str, env: Mapping[str, str]) -> Credential:
    try:
        document = _object(json.loads(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return Credential()
    except OSError as error:
        return Credential(problem=f"{path} could not be read: {error.strerror}.")
    except (ValueError, RecursionError):
        return Credential(problem=f"{path} is not JSON, so its credentials were not used.")
    names = list(_names(host, repository))
    helpers, entries = _object(document.get("credHelpers")), _object(document.get("auths"))
    for name in names:
        if isinstance(helper := helpers.get(name), str):
            return _from_helper(helper, name, env)
        if isinstance(entry := entries.get(name), dict) and (entry.get("auth") or entry.get("identitytoken")):
            return _from_entry(entry, path)
    store = document.get("credsStore")
    if isinstance(store, str) and store:
        known = next((name for name in names if name in entries), names[-1])
        return _from_helper(store, known, env)
    return Credential()


def _object(document: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return document if isinstance(document, dict) else {}


def _names(host: str, repository: str) -> Iterator[str]:
    """Yield the names of a repository's registry in such files, the most specific first, the plain host last."""
    if host in _HUB:
        yield from ("https://index.docker.io/v1/", "index.docker.io", "docker.io")
        return
    parts = repository.split("/")
    yield from ("/".join([host, *parts[:end]]) for end in range(len(parts), 0, -1))
    yield from (f"https://{host}", f"https://{host}/", f"https://{host}/v1/", f"https://{host}/v2/")
    yield host


def _from_entry(entry: Mapping[str, Any], path: Path) -> Credential:
    try:
        user, colon, secret = base64.b64decode(str(entry.get("auth") or ""), validate=True).decode().partition(":")
    except ValueError:
        return Credential(problem=f"The credentials in {path} for this registry cannot be read. Log in again.")
    if entry.get("identitytoken") or not colon:
        return Credential(problem=f"{path} contains an identity token for this registry, which is not supported.")
    return Credential(user, secret.rstrip("\0"), str(path))


def _from_helper(helper: str, name: str, env: Mapping[str, str]) -> Credential:
    """Ask ``docker-credential-<helper>``, as Docker does: the registry on its input, JSON on its output."""
    program = f"docker-credential-{helper}"
    if not _HELPER.fullmatch(helper):
        return Credential(problem=f"{program!r} is not the name of a credential helper.")
    try:
        process = subprocess.run(
            [program, "get"], input=name.encode(), capture_output=True, timeout=_HELPER_SECONDS, env=dict(env)
        )
    except FileNotFoundError:
        return Credential(problem=f"The credential helper {program} is not on PATH.")
    except OSError as error:
        return Credential(problem=f"The credential helper {program} could not be started: {error.strerror}.")
    except subprocess.TimeoutExpired:
        return Credential(problem=f"The credential helper {program} did not answer within {_HELPER_SECONDS} s.")
    if process.returncode:
        # Its message for an unknown registry; other output may contain a secret.
        absent = b"credentials not found" in process.stdout + process.stderr
        problem = f"The credential helper {program} failed (status {process.returncode})."
        return Credential(problem="" if absent else problem)
    answer: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        answer = _object(json.loads(process.stdout))
    user, secret = answer.get("Username", ""), answer.get("Secret")
    if not (isinstance(user, str) and isinstance(secret, str) and secret) or user == "<token>":
        return Credential(problem=f"The credential helper {program} gave no user name and password.")
    return Credential(user, secret, program)
