"""What engines print while they build: what says nothing first, then where each of them failed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.compute.build_log import BuildLog

BUILDAH = """\
[1/2] STEP 1/2: FROM nvcr.io/nvidia/pytorch:26.04-py3 AS helper
[1/2] STEP 2/2: RUN echo made > /made
[2/2] STEP 1/5: FROM nvcr.io/nvidia/pytorch:26.04-py3 AS main
[2/2] STEP 2/5: ARG UV_VERSION=1
[2/2] STEP 3/5: COPY --from=helper /made /made
[2/2] STEP 4/5: RUN echo one &&     uv sync --locked
one
"""
STALE = "error: The lockfile at `uv.lock` needs to be updated, but `--locked` was provided.\n"
BUILDAH_END = f"""\
{STALE}subprocess exited with status 2
Error: building at STEP "RUN echo one &&     uv sync --locked": exit status 2
"""
DOCKER = """\
#0 building with "default" instance using docker driver
#1 [internal] load build definition from Dockerfile.ci.dev
#1 transferring dockerfile: 4.2kB done
#1 DONE 0.0s
#4 [helper 1/2] FROM nvcr.io/nvidia/pytorch:26.04-py3@sha256:00
#4 CACHED
#5 [helper 2/2] RUN echo made > /made
#5 DONE 0.3s
#6 [main 2/4] COPY --from=helper /made /made
#6 DONE 0.1s
#7 [main 3/4] RUN echo one &&     uv sync --locked
#7 0.412 one
"""
DOCKER_END = f"""\
#7 0.500 {STALE}#7 ERROR: process "/bin/sh -c echo one" did not complete successfully: exit code: 2
------
 > [main 3/4] RUN echo one &&     uv sync --locked:
0.500 {STALE}------
Dockerfile.ci.dev:9
--------------------
   8 |     COPY --from=helper /made /made
   9 | >>> RUN echo one && \\
  10 | >>>     # between
--------------------
ERROR: failed to solve: process "/bin/sh -c echo one" did not complete successfully: exit code: 2
"""


def read(text: str) -> tuple[BuildLog, list[str]]:
    log = BuildLog()
    return log, [step for line in text.splitlines() if (step := log.take(line))]


def explain(text: str, killed: str = ""):
    return read(text)[0].explain(killed)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "Successfully tagged x\n", "#1 DONE 0.1s\n", "STEP x/y: RUN\n", "STEP 1/2\n"]
)
def test_lines_that_start_no_instruction(text):
    log, steps = read(text)
    assert (steps, log.current, log.steps) == ([], "", 0)
    told = explain(text)
    assert told.sentence == "The build failed before the first instruction."
    assert told.pitfalls == ()


def test_each_step_is_reported_once():
    assert read(BUILDAH)[1] == [
        "[1/2] STEP 1/2: FROM nvcr.io/nvidia/pytorch:26.04-py3 AS helper",
        "[1/2] STEP 2/2: RUN echo made > /made",
        "[2/2] STEP 1/5: FROM nvcr.io/nvidia/pytorch:26.04-py3 AS main",
        "[2/2] STEP 2/5: ARG UV_VERSION=1",
        "[2/2] STEP 3/5: COPY --from=helper /made /made",
        "[2/2] STEP 4/5: RUN echo one &&     uv sync --locked",
    ]
    assert read(DOCKER + DOCKER_END)[1] == [
        "[helper 1/2] FROM nvcr.io/nvidia/pytorch:26.04-py3@sha256:00",
        "[helper 2/2] RUN echo made > /made",
        "[main 2/4] COPY --from=helper /made /made",
        "[main 3/4] RUN echo one &&     uv sync --locked",
    ]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (BUILDAH + BUILDAH_END, "[2/2] STEP 4/5:"),
        (DOCKER + DOCKER_END, "[main 3/4]"),
        ((DOCKER + DOCKER_END).replace("[main 3/4]", "[linux/arm64 main 3/4]"), "[linux/arm64 main 3/4]"),
        ("\x1b[1m" + (BUILDAH + BUILDAH_END).replace("\n", "\x1b[0m\r\n"), "[2/2] STEP 4/5:"),
    ],
)
def test_the_first_failing_instruction_is_named_with_its_pitfall(text, step):
    told = explain(text)
    command = "RUN echo one &&     uv sync --locked"
    assert told.sentence == f"The build failed with exit status 2 at {step} {command}."
    assert [it.cause for it in told.pitfalls] == ["uv.lock is older than pyproject.toml."]
    assert STALE.strip() in "\n".join(told.lines)


def test_an_unavailable_base_image_is_distinguished_from_a_failed_instruction():
    told = explain("[1/2] STEP 1/2: FROM nvcr.io/nvidia/pytorch:26.04-py3 AS helper\nmanifest unknown\n")
    assert told.sentence.startswith("The base image could not be used: [1/2] STEP 1/2: FROM ")
    assert ["tag" in pitfall.cause for pitfall in told.pitfalls] == [True]
    told = explain("#2 [internal] load metadata for nvcr.io/nvidia/pytorch:26.04-py3\n#2 ERROR: unauthorized: no\n")
    assert told.sentence == "The build failed before the first instruction."
    assert "login" in told.pitfalls[0].cause


def test_a_killed_build_is_distinguished_from_a_failed_one():
    told = explain("", "SIGKILL").sentence
    assert told.startswith("The build was ended by SIGKILL before the first instruction. No image was tagged; ")
    assert explain(BUILDAH, "SIGKILL").sentence.startswith("The build was ended by SIGKILL at [2/2] STEP 4/5: RUN")


def test_an_endless_logs_last_part_is_kept():
    log = BuildLog()
    for number in range(100_000):
        log.take(f"line {number} " + "x" * 100_000 if number % 1000 == 0 else f"line {number}")
    told = log.explain()
    assert told.lines[-1] == "line 99999"
    assert len(told.lines) == 40


def test_pitfalls_of_successful_steps_are_not_reported():
    early = BUILDAH.replace("[2/2] STEP 1/5", f"{STALE}[2/2] STEP 1/5")
    assert explain(early + "exit status 1\n").pitfalls == ()


@given(st.text(), st.sampled_from(["", "SIGTERM"]))
def test_any_text_is_accepted(text, killed):
    assert killed in explain(text, killed).sentence


@given(st.lists(st.sampled_from((BUILDAH + BUILDAH_END + DOCKER + DOCKER_END).splitlines())))
def test_lines_in_any_order_are_taken(lines):
    assert explain("\n".join(lines)).sentence
