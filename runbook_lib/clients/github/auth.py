"""The URL of GitHub's API and the token for it, from the environment or else from the `gh` command."""

import re
import subprocess
from collections.abc import Mapping
from urllib.parse import urlsplit

from runbook_lib.clients.github.errors import LOGIN_ADVICE, RIGHTS
from runbook_lib.errors import RunbookError
from runbook_lib.transport import urls

API = "https://api.github.com"


def base_url(env: Mapping[str, str]) -> str:
    """Return GITHUB_API_URL, else GitHub's own.  Raises RunbookError for a URL that must not receive the token."""
    return urls.service_address("GITHUB_API_URL", env.get("GITHUB_API_URL") or API, API)


def token_for(env: Mapping[str, str], url: str) -> str:
    """Return GITHUB_TOKEN, else that of ``gh`` for this host.  Raises RunbookError if there is none."""
    token = (env.get("GITHUB_TOKEN") or _token_of_gh(url)).strip()
    if not token:
        raise RunbookError(f"There is no token for GitHub. {LOGIN_ADVICE} {RIGHTS}")
    if not re.fullmatch(r"[!-~]+", token):
        raise RunbookError("GITHUB_TOKEN contains spaces or other characters that no token has. Copy the token again.")
    return token


def _token_of_gh(url: str) -> str:
    # The token of one host must never go to another.
    host = urlsplit(url).hostname or ""
    if host == urlsplit(API).hostname:
        host = "github.com"
    try:
        process = subprocess.run(
            ["gh", "auth", "token", "--hostname", host],
            capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):  # without gh there is just no token
        return ""
    return process.stdout if process.returncode == 0 else ""
