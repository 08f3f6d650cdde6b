"""Every dev row of the recipes of the real repository as batch files for Slurm."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from runbook_lib.compute.slurm import selection
from runbook_lib.compute.slurm.jobs import SlurmJob, job_files
from runbook_lib.compute.slurm.selection import SelectedTest
from runbook_lib.compute.slurm.site import Site
from runbook_lib.compute.workloads import Workload
from runbook_lib.text.recipes import rows as recipes
from runbook_lib.world.git.checkout import Checkout

pytestmark = pytest.mark.replay

SITE = Site("/shared/results", "/shared/mcore.sqsh", ["/shared/data:/mnt/artifacts:ro"])
#: Main on 2026-08-22, which the facts below are of.
MAIN = "d98e8a64dd"


@pytest.fixture(scope="module")
def checkout(megatron_lm: Path) -> Checkout:
    return Checkout.open(megatron_lm)


@pytest.fixture(scope="module")
def every(checkout: Checkout) -> list[Workload]:
    listed = checkout.git("ls-tree", "-r", "--name-only", MAIN, "--", recipes.FOLDER).splitlines()
    tests, unreadable = selection.read_tests(checkout.read(listed, MAIN))
    assert unreadable == []
    return tests


@pytest.fixture(scope="module")
def prepared(checkout: Checkout, every: list[Workload]) -> list[SelectedTest]:
    configs = checkout.read({selection.config_of(it) for it in every}, MAIN)
    return [selection.prepare(it, configs[selection.config_of(it)], SITE) for it in every if it.environment == "dev"]


@pytest.fixture(scope="module")
def rendered(prepared: list[SelectedTest]) -> dict[str, tuple[str, str, str]]:
    """The batch file, the task and the script of each test by its name."""
    made = {}
    for entry in prepared:
        folder = Path("/shared/results", entry.test.name, "1")
        batch, task, script = job_files(SlurmJob(entry, folder), SITE).values()
        made[entry.test.name] = (batch, task, script)
    return made


def test_every_dev_row_is_rendered_with_its_nodes_and_gpus(rendered: dict[str, tuple[str, str, str]]) -> None:
    found: Counter[tuple[int, int]] = Counter()
    for batch, _, _ in rendered.values():
        lines = dict(line[10:].partition("=")[::2] for line in batch.splitlines() if line.startswith("#SBATCH --"))
        found[int(lines["nodes"]), int(lines["gpus-per-node"])] += 1
    assert found == {(1, 1): 54, (1, 4): 65, (1, 8): 203, (2, 4): 84}


def test_scripts_use_no_variable_that_nothing_sets(rendered: dict[str, tuple[str, str, str]]) -> None:
    """Most begin with ``set -u``: one such variable, and all of their tests fail at once."""
    used: set[str] = set()
    for batch, task, script in rendered.values():
        names = re.findall(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", script)
        given = re.findall(r"\b([A-Za-z_]\w*)=|\bfor (\w+) in", f"{batch}{task}{script}")
        used |= {"".join(it) for it in names} - {"".join(it) for it in given}
    assert used == set()


@pytest.mark.component("shellcheck")
def test_shellcheck_finds_nothing(rendered: dict[str, tuple[str, str, str]], tmp_path: Path) -> None:
    # Tasks differ by their names and by how the connections are set: one of each kind, and every fortieth.
    made = list(rendered.values())
    kinds = {task.count("export CUDA"): (batch, task) for batch, task, _ in made}
    texts = [text for pair in [*kinds.values(), *(it[:2] for it in made[::40])] for text in pair]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.sh").write_text(text)
    program = shutil.which("shellcheck") or "shellcheck"
    done = subprocess.run([program, *tmp_path.glob("*.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_scripts_are_sound_for_bash(
    prepared: list[SelectedTest], rendered: dict[str, tuple[str, str, str]], tmp_path: Path
) -> None:
    scripts = {entry.test.recipe: rendered[entry.test.name][2] for entry in prepared}
    for number, text in enumerate(scripts.values()):
        (tmp_path / f"{number}.sh").write_text(text)
        done = subprocess.run(["bash", "-n", tmp_path / f"{number}.sh"], capture_output=True, text=True, check=False)
        assert done.stderr == ""
    assert len(scripts) > 20


def test_a_bump_depends_on_the_tests_that_ci_runs_for_it(every: list[Workload], prepared: list[SelectedTest]) -> None:
    platforms = ("dgx_h100", "dgx_gb200")
    chosen = [selection.select(every, selection.BUMP, platform, "dev") for platform in platforms]
    assert [len(it) for it in chosen] == [77, 31]
    held = {entry.test.case: entry.obstacle for entry in prepared if entry.obstacle and entry.test in chosen[0]}
    assert sorted(held) == ["gpt_dynamic_inference_tp2_pp2_dp2_583m_logitsmatch_zmq", "gpt_grpo_basic_function"]
    assert all("1 GPU" in obstacle for obstacle in held.values())
