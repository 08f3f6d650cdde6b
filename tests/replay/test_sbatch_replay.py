"""Every dev row of the recipes of the real repository as batch files for Slurm."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from runbook_lib.compute.slurm import selection
from runbook_lib.compute.slurm.batch_files import job_files
from runbook_lib.compute.slurm.site import Site
from runbook_lib.git.checkout import Checkout
from runbook_lib.recipes import file_names, workloads
from runbook_lib.recipes import rows as recipes
from runbook_lib.recipes.parallelism import Connections, Parallelism, choose
from runbook_lib.recipes.workloads import Workload

pytestmark = pytest.mark.replay

SITE = Site("/shared/Megatron-LM", "/shared/results", image="/shared/mcore.sqsh")
#: Main on 2026-08-22, which the facts below are of.
MAIN = "d98e8a64dd"


@pytest.fixture(scope="module")
def checkout(megatron_lm: Path) -> Checkout:
    return Checkout.open(megatron_lm)


@pytest.fixture(scope="module")
def chosen(checkout: Checkout) -> list[tuple[Workload, Connections]]:
    listed = checkout.git("ls-tree", "-r", "--name-only", MAIN, "--", recipes.FOLDER).splitlines()
    texts = checkout.read(listed, MAIN)
    rows = [it for path, text in texts.items() for it in workloads.read(path, text or "")]
    dev = [it for it in rows if it.environment == "dev"]
    configs = checkout.read({config(it) for it in dev}, MAIN)
    return [(it, connections(it, configs[config(it)])) for it in dev]


def config(test: Workload) -> str:
    return f"{file_names.FOLDER}/{test.model}/{test.case}/model_config.yaml"


def connections(test: Workload, text: str | None) -> Connections:
    spread = Parallelism.parse(text, config(test)) if text else Parallelism()
    return choose(test.platform, spread)


@pytest.fixture(scope="module")
def rendered(chosen: list[tuple[Workload, Connections]]) -> dict[str, tuple[str, str, str]]:
    """The batch file, the task and the script of each test by its name."""
    made = {}
    for test, own in chosen:
        if test.gpus:
            folder = Path("/shared/results", test.name, "1")
            batch, task, script = job_files(test, own, SITE, folder, Path("/shared/results/tree.tar")).values()
            made[test.name] = (batch, task, script)
    return made


def test_every_dev_row_is_rendered_with_its_nodes_and_gpus(
    checkout: Checkout, chosen: list[tuple[Workload, Connections]], rendered: dict[str, tuple[str, str, str]]
) -> None:
    assert (len(chosen), len(rendered)) == (409, 406)  # three rows clean up, without a GPU
    found = {}
    for name, (batch, _, _) in rendered.items():
        lines = dict(line[10:].partition("=")[::2] for line in batch.splitlines() if line.startswith("#SBATCH --"))
        found[name] = (int(lines["nodes"]), int(lines["gpus-per-node"]))
    assert found == asked(checkout)


def test_scripts_use_no_variable_that_nothing_sets(rendered: dict[str, tuple[str, str, str]]) -> None:
    """Most begin with ``set -u``: one such variable, and all of their tests fail at once."""
    used: set[str] = set()
    for batch, task, script in rendered.values():
        names = re.findall(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", script)
        given = re.findall(r"\b([A-Za-z_]\w*)=|\bfor (\w+) in", f"{batch}{task}{script}")
        used |= {"".join(it) for it in names} - {"".join(it) for it in given}
    assert used == set()


def asked(checkout: Checkout) -> dict[str, tuple[int, int]]:
    """Nodes and GPUs by test, read plainly from YAML, apart from the code under test."""
    found = {}
    for path in checkout.git("ls-tree", "-r", "--name-only", MAIN, "--", recipes.FOLDER).splitlines():
        data = yaml.safe_load(checkout.read([path], MAIN)[path] or "") or {}
        spec = data.get("spec", {})
        for product in data.get("products", []):
            for row in product.get("products", []) if product.get("test_case") else []:
                both = {key: value if isinstance(value, list) else [value] for key, value in {**spec, **row}.items()}
                for environment in both["environment"]:
                    for platform in both["platforms"]:
                        for tag in both.get("tag", [""]):
                            gpus = int(both.get("gpus", [0])[0])
                            if environment == "dev" and gpus:
                                case = product["test_case"][0]
                                test = Workload(
                                    "", both["model"][0], case, environment, platform, (), 0, 0, 0, "", {"tag": tag}
                                )
                                found[test.name] = (int(both.get("nodes", [1])[0]), gpus)
    return found


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
    chosen: list[tuple[Workload, Connections]], rendered: dict[str, tuple[str, str, str]], tmp_path: Path
) -> None:
    scripts = {test.recipe: rendered[test.name][2] for test, _ in chosen if test.gpus}
    for number, text in enumerate(scripts.values()):
        (tmp_path / f"{number}.sh").write_text(text)
        done = subprocess.run(["bash", "-n", tmp_path / f"{number}.sh"], capture_output=True, text=True, check=False)
        assert done.stderr == ""
    assert len(scripts) > 20


def test_a_bump_depends_on_the_tests_that_ci_runs_for_it(checkout: Checkout) -> None:
    listed = checkout.git("ls-tree", "-r", "--name-only", MAIN, "--", recipes.FOLDER).splitlines()
    every, _ = selection.read_tests(checkout.read(listed, MAIN))
    platforms = ("dgx_h100", "dgx_gb200")
    chosen = [selection.select(every, selection.BUMP, platform, "dev") for platform in platforms]
    assert [len(it) for it in chosen] == [77, 31]
    configs = checkout.read({selection.config_of(it) for it in every}, MAIN)
    selected = [selection.prepare(it, configs[selection.config_of(it)], SITE) for it in chosen[0]]
    assert sorted(it.test.case for it in selected if it.obstacle) == [
        "gpt_dynamic_inference_tp2_pp2_dp2_583m_logitsmatch_zmq", "gpt_grpo_basic_function",
    ]  # fmt: skip
    assert not [it for it in selected if it.obstacle and "1 GPU" not in it.obstacle]


def test_caches_that_two_nodes_share_need_a_mount(checkout: Checkout) -> None:
    listed = checkout.git("ls-tree", "-r", "--name-only", MAIN, "--", recipes.FOLDER).splitlines()
    tests, _ = selection.read_tests(checkout.read(listed, MAIN))
    nightly = [it for it in tests if it.platform == "dgx_gb200" and it.nodes == 2 and "nightly" in it.scopes]
    data = replace(SITE, mounts=(("/shared/data", "/mnt/artifacts", "ro"),))
    assert len(nightly) == 65
    assert all("/lustre/fsw" in selection.unmounted(data, it, "") for it in nightly)
    cache = replace(data, mounts=(*data.mounts, ("/shared/cache", "/lustre")))
    assert not any(selection.unmounted(cache, it, "") for it in nightly)
    one_node = [it for it in tests if it.platform == "dgx_h100" and it.nodes == 1 and "nightly" in it.scopes]
    assert not any(selection.unmounted(data, it, "") for it in one_node)
