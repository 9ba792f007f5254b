r"""Continues a recorded episode from one of its turns.

  python -m agentgym_jax.replay runs/quickstart --episode=step_000012/3 --turn=4 --branches=16
  python -m agentgym_jax.replay runs/quickstart --episode=step_000012/3 --turn=4 --action="go left"
  python -m agentgym_jax.replay runs/quickstart --episode=step_000012/3 --every_turn

The argument is the folder of a training run or an evaluation. The turns before --turn are repeated
in the environment, which must answer as recorded. Then the run's policy continues: its newest
checkpoint, that of --step, or another --model. Without --branches, the continuation has the random
key of the recorded episode, so the weights that sampled the episode sample it again. --every_turn
estimates the counterfactual credit of every action (docs/replay.md).
"""

if __name__ == "__main__":  # before JAX is imported
    from agentgym_jax.runs import interrupts

    interrupts.install()

import json
import pathlib
import sys
from collections.abc import Sequence

from absl import app, flags

from agentgym_jax.api import USER_ERRORS
from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.cli.startup import given, launch
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.replays.continuations import (
    Replay,
    ReplayOptions,
    open_run_folder,
    replay,
    target_of,
)
from agentgym_jax.replays.credit import credit_table
from agentgym_jax.replays.recorded_episodes import ReplayError
from agentgym_jax.rollout.continuation import RecordDiffersError
from agentgym_jax.runs.atomic_files import check_writable, disk_errors, write_atomic
from agentgym_jax.telemetry.console import RunConsole, open_console

_EPISODE = flags.DEFINE_string("episode", None, "Recorded episode, such as step_000012/3.")
_TURN = flags.DEFINE_integer(
    "turn", None, "First turn that is not repeated, from 1.", lower_bound=1
)
_EVERY_TURN = flags.DEFINE_bool("every_turn", False, "Continue from every turn of the episode.")
_BRANCHES = flags.DEFINE_integer(
    "branches", None, "Continuations per turn, with new random keys.", lower_bound=1
)
_ACTION = flags.DEFINE_string("action", None, "First action of the continuations, or whole reply.")
_MODEL = flags.DEFINE_string("model", None, "Model that continues instead of the run's policy.")
_STEP = flags.DEFINE_integer(
    "step", None, "Step of the run's checkpoint that continues.", lower_bound=0
)
_GREEDY = flags.DEFINE_bool("greedy", False, "Continue greedily.")
_MAX_TURNS = flags.DEFINE_integer(
    "max_turns", None, "Turn limit; by default that of the recorded episode.", lower_bound=1
)
_OUT = flags.DEFINE_string(
    "out",
    None,
    "File of the continuations; by default RUN/replays/EPISODE.jsonl, or a new file "
    "RUN/replays/EPISODE_turn_K.jsonl.",
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace an earlier replay.")


def main(argv: Sequence[str]) -> int:
    """Continues the episode, writes the continuations and prints their table."""
    if len(argv) != 2:
        raise app.UsageError(f"expected one run folder, got {len(argv) - 1}: {' '.join(argv[1:])}")
    if (_TURN.value is None) != _EVERY_TURN.value:
        raise app.UsageError("give either --turn or --every_turn")
    prepare()
    with StopFlag().installed() as stop:
        run(argv[1], stop)
        return stop.exit_status if stop() else 0


def run(folder_name: str, stop: StopFlag) -> None:
    """Continues the episode of the flags; writes and prints the results unless it was stopped."""
    options = ReplayOptions(
        episode=given(_EPISODE),
        turn=_TURN.value,
        branches=_BRANCHES.value,
        action=_ACTION.value,
        model=_MODEL.value,
        step=_STEP.value,
        is_greedy=_GREEDY.value,
        max_turns=_MAX_TURNS.value,
    )
    folder = open_run_folder(folder_name)
    target = target_of(folder, options, _OUT.value, overwrite=_OVERWRITE.value)
    table = target.with_suffix(".json")
    for path in (target, table):
        if path.exists() and not _OVERWRITE.value:
            raise ReplayError(f"{path} exists; give another --out, or --overwrite")
        check_writable(path)
    with RunConsole("replay", {"episode": options.episode}, 1) as console:
        result = replay(
            folder,
            options,
            on_policy=lambda text: sys.stderr.write(f"{text}\n"),
            on_progress=lambda done, total, tokens: console.phase(
                "replay", done, total, f"{tokens:,} tokens"
            ),
            should_stop=stop,
        )
    if stop():
        sys.stderr.write("\nstopped; nothing was written\n")
        return
    write(result, target, table)
    show(result, target)


def write(result: Replay, target: pathlib.Path, table: pathlib.Path) -> None:
    """Writes the continuations, one record per line, and the table of the turns."""
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in result.records()]
    write_atomic(target, "".join(lines))
    write_atomic(table, json.dumps(result.document(), indent=2, ensure_ascii=False) + "\n")


def show(result: Replay, target: pathlib.Path) -> None:
    """Prints the table, or the comparison of a single continuation with the record."""
    console, recorded = open_console(), result.recorded
    title = f"{recorded.name}, {recorded.trajectory.item_id}"
    if len(result.continuations) > 1:
        console.print(credit_table(f"{title}: success in %", result.document()["turns"]))
    else:
        console.print(title, soft_wrap=True)
        _, found = result.continuations[0]
        is_same = found.tokens.tolist() == recorded.trajectory.tokens.tolist()
        tokens = "the same tokens as recorded" if is_same else "other tokens than recorded"
        console.print(
            f"continuation: {found.outcome} after {len(found.turns)} turns, score "
            f"{found.score:g}; {tokens}",
            soft_wrap=True,
        )
    invalid = [t for _, t in result.continuations if not t.outcome.is_valid]
    if invalid:
        cause = invalid[0].error or Outcome(invalid[0].outcome)
        console.print(
            f"invalid: {len(invalid)} continuations are in no mean: {cause}", soft_wrap=True
        )
    console.print(f"the continuations: {target}", soft_wrap=True)


if __name__ == "__main__":
    errors = (*USER_ERRORS, ReplayError, RecordDiffersError, OSError)
    launch(main, "episode", errors=errors, only_flags=False)
