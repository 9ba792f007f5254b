"""Writes files that submit the runs of a sweep to a cluster, instead of training them here."""

import pathlib
import re
import shlex
from collections.abc import Callable, Sequence

from agentgym_jax.runs.atomic_files import disk_errors, write_atomic
from agentgym_jax.sweeps.expand import SweepRun, train_command
from agentgym_jax.sweeps.folder import SweepFolder

_MAX_WORKLOAD = 39  # xpk's limit for the name of a workload

_SLURM = """\
#!/bin/bash
# Submit with `sbatch FILE`. Options of the cluster, such as --partition, --gres, --cpus-per-task and
# --time, can be added there. A task that is stopped or requeued resumes its run.
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --output={output}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
{memory}
cd {here} || exit 1
command=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {commands})
eval "exec $command"
"""
_XPK = """\
#!/bin/bash
# Set CLUSTER, TPU_TYPE and IMAGE (a container with agentgym_jax in which the workdir is mounted),
# then call this file. A workload that is submitted again resumes its run.
: "${CLUSTER:?}" "${TPU_TYPE:?}" "${IMAGE:?}"
"""


def write_commands(folder: SweepFolder, runs: Sequence[SweepRun], *_: object) -> list[pathlib.Path]:
    """Writes commands.sh, a shell file with one training command in each line."""
    here = f"cd {shlex.quote(str(pathlib.Path.cwd()))} || exit 1"
    lines = ["#!/bin/bash", here, *_command_lines(folder, runs)]
    return [_write(folder, "commands.sh", "\n".join(lines) + "\n")]


def write_slurm(
    folder: SweepFolder, runs: Sequence[SweepRun], memory_gib: float | None
) -> list[pathlib.Path]:
    """Writes sweep.sbatch, a Slurm array job with one task per run, and its list of commands."""
    commands = _write(folder, "slurm_commands.txt", "\n".join(_command_lines(folder, runs)) + "\n")
    text = _SLURM.format(
        name=_dns_name(folder.path.name),
        last=len(runs) - 1,
        output=shlex.quote(str(folder.logs).replace("%", "%%") + "/slurm_%A_%a.log"),
        memory=f"#SBATCH --mem={round(1024 * memory_gib)}M\n" if memory_gib else "",
        here=shlex.quote(str(pathlib.Path.cwd())),
        commands=shlex.quote(str(commands)),
    )
    return [_write(folder, "sweep.sbatch", text), commands]


def write_xpk(folder: SweepFolder, runs: Sequence[SweepRun], *_: object) -> list[pathlib.Path]:
    """Writes xpk.sh with one `xpk workload create` per run."""
    lines = []
    for i, (run, command) in enumerate(zip(runs, _command_lines(folder, runs), strict=True)):
        suffix = f"-{i}"
        name = _dns_name(folder.path.name)[: _MAX_WORKLOAD - len(suffix)] + suffix
        lines.append(
            f"# {run.name}\n"
            f'xpk workload create --cluster="$CLUSTER" --tpu-type="$TPU_TYPE" '
            f'--docker-image="$IMAGE" --workload={name} --command={shlex.quote(command)}'
        )
    return [_write(folder, "xpk.sh", _XPK + "\n".join(lines) + "\n")]


# Functions that write the files of a launcher; each returns the file to call first.
LAUNCHERS: dict[
    str, Callable[[SweepFolder, Sequence[SweepRun], float | None], list[pathlib.Path]]
] = {"commands": write_commands, "slurm": write_slurm, "xpk": write_xpk}


def _command_lines(folder: SweepFolder, runs: Sequence[SweepRun]) -> list[str]:
    return [shlex.join(train_command(run, str(folder.run_path(run)))) for run in runs]


def _dns_name(text: str) -> str:
    """Returns a name of lower-case letters, digits and hyphens that begins with a letter."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name if name[:1].isalpha() else f"sweep-{name}".rstrip("-")


def _write(folder: SweepFolder, name: str, text: str) -> pathlib.Path:
    path = folder.launch / name
    with disk_errors(path):
        folder.launch.mkdir(exist_ok=True)
    write_atomic(path, text)
    return path
