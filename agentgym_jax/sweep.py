r"""Runs many trainings that one file describes, and reports them together (docs/sweeps.md).

  python -m agentgym_jax.sweep --config=configs/sweeps/bandit.py --workdir=runs/sweep
  python -m agentgym_jax.sweep report runs/sweep          # also while runs are missing

A second call with the same workdir resumes the sweep: finished runs are kept, the others continue.
"""

if __name__ == "__main__":  # before JAX is imported
    from agentgym_jax.runs import interrupts

    interrupts.install()

import sys

import jax
from absl import app, flags

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.api import USER_ERRORS
from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.cli.startup import given, launch
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.sweeps.configs import check_runs, load_sweep
from agentgym_jax.sweeps.folder import Record, SweepFolder, make_record
from agentgym_jax.sweeps.launch import LAUNCHERS
from agentgym_jax.sweeps.sweep_report import write_report
from agentgym_jax.sweeps.sweep_runs import SweepRunner, check_parallel, failure_lines

_CONFIG = flags.DEFINE_string("config", None, "Sweep file, with options as FILE:OPTIONS.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the sweep; created, or resumed.")
_PARALLEL = flags.DEFINE_integer(
    "parallel", 1, "Number of runs at the same time, each on its share of the cores.", lower_bound=1
)
_LAUNCH = flags.DEFINE_enum(
    "launch", None, list(LAUNCHERS), "Writes files for a cluster instead of training here."
)


def main(argv: list[str]) -> int:
    """Runs, submits or reports a sweep; returns the exit status."""
    prepare()
    jax.config.update("jax_platforms", "cpu")  # only the runs need an accelerator
    if argv[1:2] == ["report"]:
        return _report(argv[2:])
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}; flags start with --")
    for flag in (_CONFIG, _WORKDIR):
        if not flag.value:
            raise app.UsageError(f"--{flag.name} is missing")
    return _train(given(_CONFIG), given(_WORKDIR))


def _report(arguments: list[str]) -> int:
    if len(arguments) != 1:
        raise app.UsageError("give one folder: python -m agentgym_jax.sweep report DIR")
    for path in write_report(arguments[0]):
        _say(f"wrote {path}")
    return 0


def _train(config: str, workdir: str) -> int:
    sweep = load_sweep(config)
    slots = check_parallel(_PARALLEL.value, sweep.memory_gib)
    record = make_record(sweep, *check_runs(sweep))
    folder = SweepFolder(workdir)
    with StopFlag().installed() as stop, folder.opened(record):
        if _LAUNCH.value:
            return _write_launch_files(folder, record, sweep.memory_gib)
        failed = SweepRunner(folder, record, slots, stop, _say).run()
        if stop():
            _say("stopped; the same command resumes the sweep")
            return stop.exit_status
    for line in failure_lines(folder, failed):
        _say(line)
    _say(f"report: python -m agentgym_jax.sweep report {workdir}")
    return 1 if failed else 0


def _write_launch_files(folder: SweepFolder, record: Record, memory_gib: float | None) -> int:
    runs = [r for r in record.runs if not folder.is_finished(r, record.total_steps[r.name])]
    if not runs:
        _say(f"all {len(record.runs)} runs are finished; nothing to submit")
        return 0
    files = LAUNCHERS[given(_LAUNCH)](folder, runs, memory_gib)
    _say(f"{len(runs)} runs in {', '.join(map(str, files))}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    launch(main, algorithms=ALGORITHMS, errors=USER_ERRORS, only_flags=False)
