"""Files that submit a sweep: their commands are those of a local sweep."""

import re
import shlex
import subprocess

import pytest

from agentgym_jax.sweeps.expand import expand, train_command
from agentgym_jax.sweeps.folder import SweepFolder, make_record
from agentgym_jax.sweeps.launch import LAUNCHERS
from agentgym_jax.sweeps.spec import Sweep, grid

SWEEP = Sweep(
    config="configs/rl/bandit.py",
    axes=(grid("horizon.turns", ((2, 3), (3, 3))),),
    seeds=(0, 1),
    metric="eval/score",
)
RUNS = expand(SWEEP)


@pytest.fixture
def folder(tmp_path):
    folder = SweepFolder(str(tmp_path / "My 100% sweep"))
    with folder.opened(make_record(SWEEP, RUNS, {run.name: 1 for run in RUNS})):
        yield folder


def expected(folder):
    return [train_command(run, str(folder.run_path(run))) for run in RUNS]


def called(text, program, tmp_path):
    """Runs a shell text in which `program` prints its arguments; returns them by call."""
    shown = f'{program}() {{ printf "%s\\0" {program} "$@"; printf "\\n"; }}\n'
    done = subprocess.run(
        ["bash", "-c", shown + text], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return [line.split("\0")[:-1] for line in done.stdout.splitlines()]


def test_the_shell_file_has_one_command_per_run(folder, tmp_path):
    (path,) = LAUNCHERS["commands"](folder, RUNS, None)
    assert called(path.read_text(), "python", tmp_path) == expected(folder)


def test_task_n_of_the_slurm_array_runs_command_n(folder, tmp_path):
    script, _ = LAUNCHERS["slurm"](folder, RUNS, 1.5)
    text = script.read_text()
    assert "#SBATCH --array=0-3\n" in text and "#SBATCH --mem=1536M\n" in text
    assert "#SBATCH --job-name=my-100-sweep\n" in text
    # sbatch splits its lines like a shell, and replaces %% by %
    (output,) = re.findall(r"#SBATCH --output=(.*)", text)
    assert shlex.split(output) == [f"{tmp_path}/My 100%% sweep/logs/slurm_%A_%a.log"]
    for task in range(4):
        # a shell function cannot be the program of `exec`
        body = f"SLURM_ARRAY_TASK_ID={task}\n" + text.replace('"exec $command"', '"$command"')
        assert called(body, "python", tmp_path) == [expected(folder)[task]]
    assert "--mem" not in LAUNCHERS["slurm"](folder, RUNS, None)[0].read_text()


def test_xpk_gets_one_workload_per_run(folder, tmp_path):
    (path,) = LAUNCHERS["xpk"](folder, RUNS, None)
    text = "CLUSTER=c TPU_TYPE=v5p-8 IMAGE=i\n" + path.read_text()
    calls = called(text, "xpk", tmp_path)
    flags = [dict(a[2:].split("=", 1) for a in call if a.startswith("--")) for call in calls]
    assert [f["workload"] for f in flags] == [f"my-100-sweep-{i}" for i in range(4)]
    assert [shlex.split(f["command"]) for f in flags] == expected(folder)
    assert {(f["cluster"], f["tpu-type"], f["docker-image"]) for f in flags} == {
        ("c", "v5p-8", "i")
    }
    missing = subprocess.run(["bash", str(path)], capture_output=True, text=True)
    assert missing.returncode and "CLUSTER" in missing.stderr
