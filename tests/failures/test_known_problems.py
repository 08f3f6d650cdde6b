"""Pitfalls: what no log of a program that did well shows, then each sign in a line as programs print it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.failures import diagnose, known_problems
from runbook_lib.failures.failure import FailedJob
from runbook_lib.failures.known_problems import PITFALLS
from runbook_lib.failures.log_scanner import Scanner

STALE = "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided.\n"
NOT_FOUND = "ModuleNotFoundError: No module named 'nvidia_modelopt'\n"
FULL = "error: failed to write to `/cache/.cache/uv/wheels-v5/x`: No space left on device (os error 28)\n"


@pytest.mark.parametrize(
    "log",
    [
        "",
        "\n \n",
        "STEP 1/4: FROM busybox AS main\nSTEP 2/4: RUN uv sync --locked --extra training\nResolved 4 packages in 3ms\n",
        "#7 [main 3/9] RUN pip install --no-cache-dir uv\n#7 4.1 Successfully installed uv-0.7.2\n#7 DONE 4.6s\n",
        "+ uv sync --locked\nUsing CPython 3.12.3\nCreating virtual environment at: .venv\nInstalled 3 packages\n",
        "All checks passed!\n312 files already formatted\nSuccess: no issues found in 120 source files\n",
        "[switch_mcore] Switching to dev commit: 0123456789ab\n[switch_mcore] Done.\n",
        "CUDA_DEVICE_MAX_CONNECTIONS=1\nMASTER_PORT=29500\nDATA_PATH=/mnt/artifacts/text\nworld size: 8\n",
        "torchrun --nproc-per-node 8 pretrain_gpt.py\n iteration        1/      50 | lm loss: 1.0E+01 |\n",
        "Storing signatures\nCOMMIT megatron-lm:local\nSuccessfully tagged localhost/megatron-lm:local\n",
    ],
)
def test_a_log_of_a_successful_build_has_no_pitfall(log):
    assert known_problems.find(log) == ()


SIGNS = [
    (f"[switch_mcore] Switching to dev commit: 0123456789ab\n{STALE}", "Run `uv sync` without --locked"),
    (STALE, "Run `uv lock` inside the container"),
    ("error: Unable to find lockfile at `uv.lock`, but `--locked` was provided. To create", "Run `uv lock` inside"),
    ("error: Failed to parse `uv.lock`\n  cause: TOML parse error at line 3, column 9\n", "Take uv.lock from main"),
    ("hint: You're on macOS (`macosx_13_0_arm64`), but `triton` (v3.1.0) only has wheels for", "Run uv inside"),
    ("error: Group `dev` is not defined in the project's `dependency-groups` table", "Use the option that"),
    ("error: Extra `dev` is not defined in the `optional-dependencies` table for `x`", "Use the option that"),
    ("  cause: `/w/3rdparty/Megatron-LM` does not appear to be a Python project, as", "Run `git submodule update"),
    (f"+ pip install nvidia-modelopt\nSuccessfully installed nvidia-modelopt-0.3\n{NOT_FOUND}", "Add it with `uv add`"),
    (f'  File "/usr/local/bin/torchrun", line 8, in <module>\n{NOT_FOUND}', "Start it with `uv run python -m torch"),
    ("bash: line 1: uv: command not found", "Use the image built from"),
    ("/bin/sh: 1: uv: not found", "Use the image built from"),
    ('docker: Error response from daemon: could not select device driver "" with capabilities', "Install the NVIDIA"),
    ("srun: unrecognized option '--container-image=x.sqsh'", "Ask the cluster's administrators"),
    (FULL, "Mount a host folder over uv's cache"),
    ("error: failed to remove directory `/w/.venv/lib`: Directory not empty (os error 39)", "Run `uv sync` once be"),
    ("ERROR: failed to solve: secret JET_INDEX_URLS: not found", "Build with --target main"),
    ("Error: secret required but no secret with id JET_INDEX_URLS found", "Build with --target main"),
    ("Error response from daemon: denied: access forbidden", "Pull from the address without the port"),
    ("Error: initializing source docker://h/x: unauthorized: authentication required", "Log in (for nvcr.io"),
    ("pull access denied for x, repository does not exist or may require 'docker login'", "Log in (for nvcr.io"),
    ("Error: reading manifest 99.01-py3 in nvcr.io/nvidia/pytorch: manifest unknown", "Choose one of the tags"),
    ("ERROR: failed to resolve source metadata for nvcr.io/x:99.01: nvcr.io/x:99.01: not found", "Choose one of the"),
    ('Error: no image found in image index for architecture arm64, variant "v8", OS linux', "Build on a machine"),
    ("ERROR: no match for platform in manifest: not found", "Build on a machine"),
    ("exec /bin/sh: exec format error", "Build for this machine's platform"),
    ("Error: pinging container registry 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused", "Check the"),
    ("dial tcp: lookup nvcr.io on 127.0.0.11:53: no such host", "Check the connection"),
    ("fatal: unable to access 'https://github.com/x/': Could not resolve host: github.com", "Check DNS"),
    ("toomanyrequests: You have reached your pull rate limit.", "Log in, which raises the limit"),
    ("http: server gave HTTP response to HTTPS client", "Use the registry's HTTPS address"),
    ("write /var/lib/docker/tmp/x: no space left on device", "Free some space"),
    ("cp: error writing '/o': Disk quota exceeded", "Free some space"),
    ("c++: fatal error: Killed signal terminated program cc1plus", "Build with fewer parallel compilers (MAX_JOBS=4)"),
    ("ERROR: process \"/bin/sh -c make\" did not complete successfully: exit code: 137", "Build with fewer parallel"),
    ("/bin/sh: line 3:    12 Killed                  python setup.py", "Build with fewer parallel"),
    ("Error: crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted: OCI permission denied", "Set BUILDAH_ISOLATION"),
    ("error running container: from /usr/bin/crun creating container for [/bin/sh -c x]: no", "Set BUILDAH_ISOLATION"),
    ("process failed to start with error: fork/exec /bin/sh: no such file or directory", "Build on a different base"),
    ("cannot set up namespace using newuidmap: should have setuid or have filecaps", "Ask the administrator"),
    ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
     "Run it with --shm-size"),
    ("RuntimeError: The server socket has failed to listen on any local network address. port: 29500", "Start one"),
    ("OSError: [Errno 98] Address already in use", "Start one `python -m torch.distributed.run` per node"),
    ("run_ci_test.sh: line 9: DATA_PATH: unbound variable", "Set DATA_PATH and DATA_CACHE_PATH"),
    ("Providing $DATA_CACHE_PATH is mandatory.", "Set DATA_PATH and DATA_CACHE_PATH"),
    ("AssertionError: One or both of the .idx and .bin files cannot be found at the path prefix x", "Set DATA_PATH"),
    ("Would reformat: megatron/core/x.py\n1 file would be reformatted", "Run tools/autoformat.sh"),
    ("Found 3 errors.", "Run tools/autoformat.sh"),
    ("ERROR: /w/megatron/core/x.py Imports are incorrectly sorted and/or formatted.", "Run tools/autoformat.sh"),
    ("AssertionError: Using tensor model parallelism or context parallelism require setting the environment variable "
     "CUDA_DEVICE_MAX_CONNECTIONS to 1", "Set it to 1 for this run"),
    ("AssertionError: FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS value large than one", "Leave it unset"),
    ("AssertionError: FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset.", "Leave it unset"),
    ("slurmstepd: error: Could not open stdout file /w/logs/x-7.out: No such file or directory", "Before submitting"),
    ("/bin/bash: line 1: /shared/w/.venv/bin/python: No such file or directory", "Run `uv sync` once in the shared"),
    ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", "First look"),
]  # fmt: skip


@pytest.mark.parametrize(("log", "fix"), SIGNS)
@pytest.mark.parametrize("colour", [False, True])
def test_a_sign_is_found_where_a_program_prints_it(log, fix, colour):
    before = "+ something else\nSTEP 3/9: RUN true\n"
    shown = "\n".join(f"\x1b[31m{line}\x1b[0m\r" if colour else line for line in log.splitlines())
    (found,) = known_problems.find(f"{before}{shown}\nmore\n")
    assert found.fix.startswith(fix)


def test_every_pitfall_has_a_log_here():
    assert {it for log, _ in SIGNS for it in known_problems.find(log)} == set(PITFALLS)
    assert len({it.sign for it in PITFALLS}) == len(PITFALLS)


def test_several_are_found_together_and_each_once():
    found = known_problems.find(f"bash: uv: command not found\n{STALE}{STALE}Found 3 errors.\n")
    assert [it.fix.split()[1] for it in found] == ["`uv", "the", "tools/autoformat.sh,"]


def test_only_the_end_of_a_long_log_is_searched():
    assert known_problems.find(STALE + "x" * 2_000_000) == ()
    assert len(known_problems.find("x\n" * 1_000_000 + STALE)) == 1


@given(st.text())
def test_any_text_is_searched(text):
    assert set(known_problems.find(text)) <= set(known_problems.find(f"{text}\n{text}"))


def test_a_diagnosis_names_the_pitfall_and_its_fix():
    scanner = Scanner("job")
    scanner.feed(f"+ uv sync --locked --extra training\n{STALE}".encode())
    failure = diagnose.conclude(FailedJob("cicd-container-build"), [scanner.summary()])
    (pitfall,) = known_problems.find(STALE)
    assert failure.details["pitfall"] == f"{pitfall.sign} {pitfall.cause}"
    assert failure.next == pitfall.fix


def test_a_diagnosis_without_a_known_problem_names_none():
    scanner = Scanner("job")
    scanner.feed(b"ValueError: no\n")
    assert "pitfall" not in diagnose.conclude(FailedJob("x - latest"), [scanner.summary()]).details
