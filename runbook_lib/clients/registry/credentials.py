"""Credentials for a registry: the NGC key, or those stored by ``docker login`` and similar programs.

Nothing is read before a registry asks for credentials; they go into a header and nowhere else.
Only credentials that stand in a file are used, not those of a helper.
Source of the forms: Docker's documentation of ``docker login``, containers-auth.json(5).
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook_lib.errors import CannotTell

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
    names, problems = list(_names(host, repository)), []
    for path in _files(env):
        try:
            if found := _in_file(path, names):
                return found
        except CannotTell as error:
            problems.append(str(error))
    return Credential(problem=" ".join(problems))


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


def _names(host: str, repository: str) -> Iterator[str]:
    """Yield the names of a repository's registry in such files, the most specific first, the plain host last."""
    if host in _HUB:
        yield from ("https://index.docker.io/v1/", "index.docker.io", "docker.io")
        return
    parts = repository.split("/")
    yield from ("/".join([host, *parts[:end]]) for end in range(len(parts), 0, -1))
    yield from (f"https://{host}", f"https://{host}/", f"https://{host}/v1/", f"https://{host}/v2/", host)


def _in_file(path: Path, names: list[str]) -> Credential | None:
    """Return the credential in a file; None without any.  Raises CannotTell for one that cannot be used."""
    try:
        document = _object(json.loads(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise CannotTell(f"{path} could not be read for credentials: {reason}.") from error
    entries, helpers = _object(document.get("auths")), _object(document.get("credHelpers"))
    for name in names:
        if isinstance(entry := entries.get(name), dict) and (entry.get("auth") or entry.get("identitytoken")):
            return _from_entry(entry, path)
        if helper := helpers.get(name) or (document.get("credsStore") if name in entries else None):
            raise CannotTell(f"{path} leaves the credentials for {name} to the helper {str(helper)[:60]!r}: not asked.")
    return None


def _object(document: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return document if isinstance(document, dict) else {}


def _from_entry(entry: Mapping[str, Any], path: Path) -> Credential:
    try:
        user, colon, secret = base64.b64decode(str(entry.get("auth") or ""), validate=True).decode().partition(":")
    except ValueError as error:
        raise CannotTell(f"The credentials in {path} for this registry cannot be read.", "Log in again.") from error
    if entry.get("identitytoken") or not colon:
        raise CannotTell(f"{path} contains an identity token for this registry, which is not supported.")
    return Credential(user, secret.rstrip("\0"), str(path))
