"""Known problems of builds, of uv and on Slurm, as data: sign in a log, cause and fix.  Pure.

Sources: the tables of pitfalls in Megatron-LM's ``skills/mcore-build-and-dependency``, ``mcore-run-on-slurm`` and
``mcore-testing``, in Megatron-Bridge's ``skills/build-and-dependency``, and the messages of the programs themselves.
"""

import re
from dataclasses import dataclass, field

from runbook_lib.triage.log_lines import clean

_MAX_LINE = 4_000  # characters of a line that are searched
_MAX_LOG = 1_000_000  # characters of a log that are searched, its last: a program dies at the end


@dataclass(frozen=True)
class Pitfall:
    """A known problem; ``sign``, ``cause`` and ``fix`` are complete sentences.

    It applies where all of ``patterns`` match.  Of pitfalls with the same first pattern, the first in the table
    that applies counts.
    """

    sign: str
    cause: str
    fix: str
    patterns: tuple[str, ...] = field(repr=False)


_STALE = r"lockfile at .{1,80} needs to be updated|Unable to find lockfile at .{1,80}--locked"
_NO_MODULE = r"\bModuleNotFoundError: "
_FULL = r"(?i)no space left on device|disk quota exceeded"

#: Each pattern is linear: no repetition within a repetition, and every gap bounded.
PITFALLS: tuple[Pitfall, ...] = (
    # -- uv
    Pitfall(
        "uv refuses the lock just after Megatron-Core was switched to dev.",
        "uv.lock was made for Megatron-Core's main.",
        "On dev, run `uv sync` without --locked; on main, with it.",
        (_STALE, r"switch_mcore\.sh dev|\[switch_mcore\] (?:Switching to|State:) {1,12}dev"),
    ),
    Pitfall(
        "uv reports that the lockfile is missing or needs to be updated.",
        "uv.lock is older than pyproject.toml.",
        "Run `uv lock` inside the container, and commit uv.lock with pyproject.toml.",
        (_STALE,),
    ),
    Pitfall(
        "uv cannot read uv.lock.",
        "A merge left conflict markers in uv.lock.",
        "Take main's uv.lock, then run `uv lock` inside the container; never merge such a file by hand.",
        (r"Failed to parse .uv\.lock",),
    ),
    Pitfall(
        "uv finds no wheel for macOS.",
        "uv.lock is for Linux: it names CUDA wheels, which do not exist for macOS.",
        "Run uv inside the container, or on a Linux machine.",
        (r"You're on macOS|macosx_\d.{0,200}only has wheels",),
    ),
    Pitfall(
        "uv does not know a group or an extra.",
        "pyproject.toml has no such name: an extra of one version is a group of another.",
        "Name it as pyproject.toml does: --extra for [project.optional-dependencies], --group for [dependency-groups].",
        (r"(?:Group|Extra) .{1,80} is not defined in",),
    ),
    Pitfall(
        "A package is not a Python project.",
        "A submodule was not initialized, so its folder is empty.",
        "Run `git submodule update --init 3rdparty/Megatron-LM`, then the same command again.",
        (r"does not appear to be a Python project",),
    ),
    Pitfall(
        "A module is not found after pip has installed it.",
        "pip installed it outside of uv's environment.",
        "Add it with `uv add`, then run `uv sync`; never plain `pip install`.",
        (_NO_MODULE, r"\bpip3? install\b|^Successfully installed "),
    ),
    Pitfall(
        "A module is not found under a bare torchrun.",
        "That torchrun belongs to a Python outside of uv's environment.",
        "Start it with `uv run python -m torch.distributed.run` instead.",
        (_NO_MODULE, r"(?<!venv)/bin/torchrun\b|(?:^|[ ;&])torchrun --"),
    ),
    Pitfall(
        "uv is not found in the container.",
        "The image is not the one that the project builds.",
        "Use the image that is built from the project's CI Dockerfile.",
        (r"\buv: (?:command )?not found|\"uv\": executable file not found|\buv: No such file",),
    ),
    Pitfall(
        "The disk is full while uv works.",
        "uv's cache fills the container's own file system.",
        "Mount a folder of the host over uv's cache (`uv cache dir` names it), or set UV_CACHE_DIR to shared storage.",
        (_FULL, r"No space left on device \(os error 28\)|\.cache/uv\b.{0,300}[Nn]o space left"),
    ),
    Pitfall(
        "Files of uv's environment disappear while it is synced.",
        "Several nodes or processes sync one shared environment at the same time.",
        "Run `uv sync` once before the job, and `uv run --no-sync` in it.",
        (r"failed to remove (?:file|directory) .{1,300}os error (?:2|39)\b",),
    ),
    # -- images and their build
    Pitfall(
        "The build needs a secret that was not provided.",
        "The stage jet needs a secret of NVIDIA's own.",
        "Build with --target main, which ends before that stage.",
        (r"\bsecret [\w.-]{1,80}: not found|secret required but no secret with id",),
    ),
    Pitfall(
        "The registry forbids access.",
        "The address has a port, which makes it another registry, or you are not logged in.",
        "Pull from the address without a port; then log in there if it still refuses.",
        (r"(?i)access forbidden",),
    ),
    Pitfall(
        "The registry requires a login.",
        "The image is not public, or the login has expired.",
        "Log in (for nvcr.io with the user $oauthtoken and an NGC key), then run the same command again.",
        (r"(?i)pull access denied|authentication required|unauthorized: |denied: requested|registry.{0,80}\b40[13]\b",),
    ),
    Pitfall(
        "The registry has no such image.",
        "The tag does not exist there: it is not published yet, or mistyped.",
        "Choose one of the tags that the registry lists; step 0 shows them.",
        (r"manifest unknown|manifest for .{1,200} not found|failed to resolve source metadata for .{1,200}not found",),
    ),
    Pitfall(
        "The image is not published for this machine's processor.",
        "The registry has it for other platforms only.",
        "Build on a machine of a platform that it has, or choose an image for this one.",
        (
            r"no image found in .{1,60} for architecture|no matching manifest for|no match for platform in manifest|"
            r"no child with platform",
        ),
    ),
    Pitfall(
        "A program of the image cannot be started here.",
        "The image is for another processor than this machine's.",
        "Build for this machine's platform, or on a machine of the image's.",
        (r"(?i)exec format error",),
    ),
    Pitfall(
        "The registry cannot be reached.",
        "The network, its proxy or the registry's name is wrong.",
        "Check the way from this machine to the registry (proxy, name, VPN), then run the same command again.",
        (
            r"pinging container registry .{1,300}(?:refused|timeout|timed out|unreachable)|no such host|"
            r"TLS handshake timeout|dial tcp .{1,120}(?:refused|timeout|unreachable)",
        ),
    ),
    Pitfall(
        "A name cannot be resolved.",
        "This machine, or a container on it, has no name server or no way to the network.",
        "Check its DNS and proxy (http_proxy and the like are passed to builds), then run the same command again.",
        (r"Could not resolve host|failure in name resolution|Temporary failure resolving",),
    ),
    Pitfall(
        "The registry limits requests.",
        "Too many requests came from this address.",
        "Log in, which raises the limit, or wait and run the same command again.",
        (r"toomanyrequests|\b429 Too Many Requests",),
    ),
    Pitfall(
        "The registry does not support TLS.",
        "It answers with HTTP, and the engine sends HTTPS.",
        "Use the registry's HTTPS address; declare it insecure in the engine's settings only on your own machine.",
        (r"server gave HTTP response to HTTPS client",),
    ),
    Pitfall(
        "The disk is full.",
        "The file system that holds the engine's images, the cache or the logs is full, or a quota used up.",
        "Free some space (`docker system prune`, `podman system prune` or `buildah rm --all`), or point the engine's "
        "storage and TMPDIR to a larger disk.",
        (_FULL,),
    ),
    Pitfall(
        "A process was killed.",
        "Most likely the machine ran out of memory: compilers run in parallel.",
        "Build with fewer of them (MAX_JOBS=4), or on a machine with more memory.",
        (
            r"signal: killed|exit code: 137\b|exit status 137\b|[Cc]annot allocate memory|Killed signal terminated|"
            r"^(?:.{0,200}: line \d{1,6}: {1,9}\d{1,9} )?Killed\b",
        ),
    ),
    Pitfall(
        "The engine cannot start a container here.",
        "It runs inside another container, or the system does not let it set limits and cgroups.",
        "Set BUILDAH_ISOLATION=chroot for buildah or podman, and run the same command again; or build elsewhere.",
        (r"did not get container create message|OCI permission denied|error running container: from .{1,80} creating",),
    ),
    Pitfall(
        "The image has no shell.",
        "Its base has no programs, so no RUN can start.",
        "Build on another base; a ready one has /bin/sh.",
        (r"fork/exec /bin/sh: no such file|exec: \"/bin/sh\": stat /bin/sh: no such file",),
    ),
    Pitfall(
        "The engine must not create containers for this user.",
        "The user has no subordinate ids, or the system does not allow user namespaces.",
        "Have the administrator add the user to /etc/subuid and /etc/subgid, or build on another machine.",
        (r"newuidmap|no subuid ranges found|(?:cannot clone|unshare\S{0,80}): Operation not permitted",),
    ),
    # -- running
    Pitfall(
        "A process had too little shared memory.",
        "A container has 64 MB of /dev/shm by default.",
        "Run it with --shm-size=24g or --ipc=host.",
        (r"insufficient shared memory|out of shared memory|Bus error.{0,120}shm",),
    ),
    Pitfall(
        "A port is in use.",
        "Several torchrun processes of one machine use the same port.",
        "Start one `python -m torch.distributed.run` per node as the container's command, each job on its own port.",
        (r"Address already in use|\bEADDRINUSE\b|failed to listen on any local network",),
    ),
    Pitfall(
        "A test does not find its data.",
        "Environment and paths differ between CI and this machine.",
        "Set DATA_PATH and DATA_CACHE_PATH as the recipe does, and use the image (dev or lts) that the recipe names.",
        (
            r"\bDATA_(?:CACHE_)?PATH\b.{0,60}(?:unbound|not set|does not exist|is mandatory)|"
            r"\.bin files? cannot be found|(?:No such file|FileNotFoundError).{0,160}/mnt/artifacts/",
        ),
    ),
    Pitfall(
        "The linters report problems.",
        "The code does not follow the project's style.",
        "Run tools/autoformat.sh, or in Megatron-Bridge `uv run ruff check --fix .` and `uv run ruff format .`.",
        (r"^(?:W|w)ould reformat:? |^\d{1,9} files? would be reformatted|^Found \d{1,9} errors?(?:\.| \()"
         r"|Imports are incorrectly sorted",),
    ),
    Pitfall(
        "Megatron-LM requires CUDA_DEVICE_MAX_CONNECTIONS=1.",
        "Before Blackwell, tensor or context parallelism without FSDP needs it.",
        "Set it to 1 for this run; never for all.",
        (r"parallelism require setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS|"
         r"^(?:E {1,9})?CUDA_DEVICE_MAX_CONNECTIONS to 1$",),
    ),
    Pitfall(
        "Megatron-LM refuses CUDA_DEVICE_MAX_CONNECTIONS=1.",
        "FSDP needs more than one connection.",
        "Leave it unset, or set it to more than 1.",
        (r"FSDP (?:always )?requires CUDA_DEVICE_MAX_CONNECTIONS",),
    ),
    # -- Slurm
    Pitfall(
        "Slurm cannot open a job's log.",
        "Its folder does not exist on the node, or is not on the shared file system.",
        "Create logs/ on storage that all nodes share before submitting.",
        (r"[Cc]ould not open std(?:out|err) file|Unable to open (?:stdout|stderr|output) file",),
    ),
    Pitfall(
        "The environment is missing on the node.",
        "`uv sync` was not run before submitting, or .venv is not on the shared file system.",
        "Run `uv sync` once in the shared worktree, then submit again.",
        (r"\.venv/bin/[\w.-]{1,40}.{0,20}No such file",),
    ),
    Pitfall(
        "Slurm's controller did not answer.",
        "It was busy or unavailable for a moment; the job may have been submitted anyway.",
        "Search squeue for the job's name first; submit again only if it is missing.",
        (r"Socket timed out on send/recv|Unable to contact slurm controller|Zero Bytes were transmitted or received",),
    ),
)  # fmt: skip

_COMPILED = {pattern: re.compile(pattern, re.MULTILINE) for pitfall in PITFALLS for pattern in pitfall.patterns}


def find(text: str) -> tuple[Pitfall, ...]:
    """Return the pitfalls whose signs a log shows, in the order of the table; of a long log, only the end."""
    lines = [clean(line[:_MAX_LINE].encode("utf-8", "replace")) for line in text[-_MAX_LOG:].splitlines()]
    log = "\n".join(lines)
    matching = {pattern for pattern, regex in _COMPILED.items() if regex.search(log)}
    pitfalls: dict[str, Pitfall] = {}
    for pitfall in PITFALLS:
        if matching.issuperset(pitfall.patterns):
            pitfalls.setdefault(pitfall.patterns[0], pitfall)
    return tuple(pitfalls.values())
