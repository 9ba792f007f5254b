r"""Compares two commits on this machine: a decode step, a train step and an RL step of the quickstart.

  PYTHONPATH=.:envs python experiments/benchmarks/compare_commits.py --old=COMMIT --new=HEAD

Both commits are checked out as work trees in a temporary folder, which is removed at the end. They
alternate within each round, so other load on the machine affects both; a ratio above 1 means that
the new commit is faster. Decode and train steps run in the workers of each commit
(`worker_ours.py`), which stay in memory. For RL, each round is a run of the quickstart with a short
warm start; its number is the median over the steps after the first two, which compile. Both commits
need the same packages, and the options of worker and quickstart that this script gives.
"""

import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import side_by_side
from absl import app, flags
from shapes import SHAPES
from side_by_side import Contender

_OLD = flags.DEFINE_string("old", None, "Commit to compare with.", required=True)
_NEW = flags.DEFINE_string("new", "HEAD", "Commit to compare.")
_PARTS = flags.DEFINE_list("parts", ["decode", "train", "rl"], "Parts to measure.")
_SHAPE = flags.DEFINE_enum("shape", "30m", sorted(SHAPES), "Shape of decode and train steps.")
_ROWS = flags.DEFINE_integer("rows", 8, "Rows of decode and train steps.", 1)
_TOKENS = flags.DEFINE_integer("tokens", 512, "Tokens of a training row.", 128)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Measurements of each commit.", 1)
_RL_STEPS = flags.DEFINE_integer("rl_steps", 8, "RL steps of a run; the first two do not count.", 4)
_WARM_START = flags.DEFINE_integer("warm_start", 60, "Supervised steps before RL.", 10)
_TASKS = flags.DEFINE_integer("tasks", 20, "Tasks of an RL step, with 8 episodes each.", 1)
_OUT = flags.DEFINE_string("out", "", "File that the JSON lines are appended to.")

ROOT = pathlib.Path(__file__).resolve().parents[2]
_SKIPPED = 2


def git(*arguments: str) -> str:
    """Returns the output of a git command in this repository."""
    command = ["git", "-C", str(ROOT), *arguments]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if found.returncode:
        raise app.UsageError(f"{' '.join(command)}: {found.stderr.strip()}")
    return found.stdout.strip()


@contextlib.contextmanager
def work_trees() -> Iterator[dict[str, pathlib.Path]]:
    """Checks out both commits; removes them at the end."""
    commits = {"old": _OLD.value, "new": _NEW.value}
    commits = {name: git("rev-parse", "--short", f"{c}^{{commit}}") for name, c in commits.items()}
    with tempfile.TemporaryDirectory() as folder:
        trees = {name: pathlib.Path(folder) / name for name in commits}
        try:
            for name, tree in trees.items():
                git("worktree", "add", "--detach", str(tree), commits[name])
                sys.stderr.write(f"{name}: {git('log', '-1', '--format=%h %s', commits[name])}\n")
            yield trees
        finally:
            for tree in trees.values():
                with contextlib.suppress(app.UsageError):  # it was not added
                    git("worktree", "remove", "--force", str(tree))


def python_path(tree: pathlib.Path) -> dict[str, str]:
    """Returns the environment variable that imports the code of a work tree."""
    return {"PYTHONPATH": f"{tree}:{tree / 'envs'}"}


def compare_workers(trees: dict[str, pathlib.Path], task: str) -> dict[str, list[float]]:
    """Returns the milliseconds of a decode step or train step, per round."""
    options = dict(task=task, shape=_SHAPE.value, dtype="float32", rows=_ROWS.value)
    if task == "decode":
        options |= dict(prompt=128, new=64)
    else:
        options |= dict(tokens=_TOKENS.value, action_share=0.25, vocab=0, remat="none")
        options |= dict(lora_rank=0, micro_rows=_ROWS.value, vocab_chunk=512, moments="float32")
    contenders = [
        Contender(
            name,
            str(tree / "experiments" / "benchmarks" / "worker_ours.py"),
            sys.executable,
            options,
            python_path(tree),
        )
        for name, tree in trees.items()
    ]
    found = side_by_side.compare(contenders, rounds=_ROUNDS.value, keep_alive=True)

    def milliseconds(run: dict) -> float:
        if task == "train":
            return 1e3 * run["wall_s"]
        return 1e3 * (run["whole_s"] - run["first_s"]) / (options["new"] - 1)

    return {name: [milliseconds(run) for run in record["runs"]] for name, record in found.items()}


def rl_step_ms(tree: pathlib.Path, workdir: pathlib.Path) -> float:
    """Runs the quickstart in a work tree; returns the median milliseconds of a step."""
    values = {
        "total_steps": _RL_STEPS.value,
        "rollout.tasks_per_step": _TASKS.value,
        "sft.steps": _WARM_START.value,
        "sft.demonstrations.play.tasks.stop": 40 * 1140,
        "sft.demonstrations.expert.tasks.stop": 40 * 2340,
        "environments.babyai.eval.stop": 40,
        "evaluation.at_start": False,
        "evaluation.greedy": False,
        "learner.min_informative_groups": 0,
    }
    command = [sys.executable, "-m", "agentgym_jax.train", "--config=configs/quickstart.py"]
    command += [f"--workdir={workdir}", "--noplots_at_end"]
    command += [f"--config.{key}={value}" for key, value in values.items()]
    subprocess.run(
        command, cwd=tree, env=os.environ | python_path(tree), stdout=sys.stderr, check=True
    )
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return 1e3 * statistics.median(
        line["time/iteration_s"] for line in lines if line["step"] > _SKIPPED
    )


def compare_rl(trees: dict[str, pathlib.Path]) -> dict[str, list[float]]:
    """Returns the milliseconds of an RL step, per round."""
    found: dict[str, list[float]] = {name: [] for name in trees}
    for i in range(_ROUNDS.value):
        for name, tree in trees.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(rl_step_ms(tree, pathlib.Path(folder) / "run"))
            sys.stderr.write(
                f"round {i + 1} of {_ROUNDS.value}, {name}: {found[name][-1]:.0f} ms\n"
            )
    return found


def main(_: list[str]) -> None:
    """Prints a JSON line and a line of the table for each part."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # removes the work trees
    shown = []
    with work_trees() as trees:
        for part in _PARTS.value:
            found = compare_rl(trees) if part == "rl" else compare_workers(trees, part)
            ratios = [old / new for old, new in zip(found["old"], found["new"], strict=True)]
            side_by_side.write(
                dict(
                    benchmark="compare_commits",
                    part=part,
                    shape="quickstart" if part == "rl" else _SHAPE.value,
                    old=_OLD.value,
                    new=_NEW.value,
                    ms=found,
                    old_over_new=ratios,
                ),
                _OUT.value,
            )
            old, new = (statistics.median(found[name]) for name in ("old", "new"))
            shown.append(
                f"{part:7} old {old:9.1f} ms  new {new:9.1f} ms  old / new "
                f"{side_by_side.ratio_text(ratios)}\n"
            )
    sys.stderr.write("".join(shown))


if __name__ == "__main__":
    app.run(main)
