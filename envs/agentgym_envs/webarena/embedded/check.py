"""Plays every embedded task twice: with its solution, which must score 1, and idly, which must score 0.

python -m agentgym_envs.webarena.embedded.check --group shopping --parallel 4
"""

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import queue
import sys
import time
from collections.abc import Sequence

from agentgym_envs.base.environment import EnvironmentFault, SetupError, SimulatorLost
from agentgym_envs.webarena.browser.launch import require_browser
from agentgym_envs.webarena.embedded import embedded_tasks
from agentgym_envs.webarena.embedded.task import FIRST_IDS, EmbeddedTask
from agentgym_envs.webarena.embedded_sites import shared
from agentgym_envs.webarena.embedded_world import EmbeddedWorld
from agentgym_envs.webarena.environment import WebArenaEnvironment
from agentgym_envs.webarena.world import Entry

_MAX_ACTIONS = 60  # of a solution
_ATTEMPTS = 3  # a browser or site that broke down says nothing about the task
_IDLE = "```stop []```"


@dataclasses.dataclass(frozen=True)
class Played:
    """What came of one task.

    Attributes:
      task_id: its number.
      solved: score of the solution; -1 if it lost its way or the environment broke down.
      idle: score of an episode that stops at once; -1 if the environment broke down.
      actions: of the solution.
      seconds: that the solution took.
      trouble: why a score is -1.
    """

    task_id: int
    solved: float
    idle: float
    actions: int
    seconds: float
    trouble: str

    @property
    def is_right(self) -> bool:
        """Whether both scores are as they must be."""
        return self.solved == 1.0 and self.idle == 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks the chosen tasks; 0 if all are right."""
    options = _options(arguments)
    tasks = _chosen(options)
    sites = sorted({site for each in tasks for site in each.task.sites})
    try:
        require_browser()
        with shared(sites):
            results = check(tasks, sites, parallel=options.parallel)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json is not None:
        rows = [dataclasses.asdict(result) for result in results]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    _report(results)
    return 0 if all(result.is_right for result in results) else 1


def check(tasks: Sequence[EmbeddedTask], sites: Sequence[str], *, parallel: int) -> list[Played]:
    """Plays tasks.

    Args:
      tasks: to play.
      sites: WebArena's names of the sites that they need.
      parallel: episodes at a time.
    """
    entries = [Entry(each.task, each.split, each.solution) for each in tasks]
    world = EmbeddedWorld(entries, sites)
    free: queue.SimpleQueue[WebArenaEnvironment] = queue.SimpleQueue()
    for _ in range(parallel):
        free.put(WebArenaEnvironment(world))

    def work(index: int) -> Played:
        environment = free.get()
        try:
            return _play_both(environment, index, tasks[index].task.task_id)
        finally:
            free.put(environment)

    results = []
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        for future in concurrent.futures.as_completed(
            [pool.submit(work, index) for index in range(len(tasks))]
        ):
            results.append(future.result())
            _tell(results[-1], len(results), len(tasks))
    while not free.empty():
        free.get().close()
    return sorted(results, key=lambda result: result.task_id)


def _play_both(environment: WebArenaEnvironment, index: int, task_id: int) -> Played:
    began = time.monotonic()
    solved, actions, trouble = _tried(environment, index, is_idle=False)
    seconds = time.monotonic() - began
    idle, _, more = _tried(environment, index, is_idle=True)
    return Played(task_id, solved, idle, actions, round(seconds, 1), trouble or more)


def _tried(
    environment: WebArenaEnvironment, index: int, *, is_idle: bool
) -> tuple[float, int, str]:
    """Score, number of actions, trouble."""
    trouble = ""
    for _ in range(_ATTEMPTS):
        try:
            score, actions = _play(environment, index, is_idle=is_idle)
        except (EnvironmentFault, SimulatorLost) as error:
            trouble = str(error)
        else:
            return score, actions, ""
    return -1.0, 0, trouble


def _play(environment: WebArenaEnvironment, index: int, *, is_idle: bool) -> tuple[float, int]:
    environment.reset(index)
    for count in range(1, _MAX_ACTIONS + 1):
        result = environment.step(_IDLE if is_idle else environment.expert_action())
        if result.done:
            return result.score, count
    return 0.0, _MAX_ACTIONS


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m agentgym_envs.webarena.embedded.check",
        description="Plays every embedded task with its solution, which must score 1, and idly, "
        "which must score 0.",
    )
    add = parser.add_argument
    add("--group", action="append", choices=sorted(FIRST_IDS), help="only these; may be repeated")
    add("--task", action="append", type=int, help="only the task with this number; may be repeated")
    add("--first", action="store_true", help="only the first instance of each template")
    add("--parallel", type=int, default=4, help="episodes at a time (default: %(default)s)")
    add("--json", type=pathlib.Path, help="write all results to this file")
    return parser.parse_args(arguments)


def _chosen(options: argparse.Namespace) -> list[EmbeddedTask]:
    groups = options.group or list(FIRST_IDS)
    starts = [FIRST_IDS[group] for group in groups]
    chosen = []
    for each in embedded_tasks():
        number = each.task.task_id
        if not any(start <= number < start + 10000 for start in starts):
            continue
        if options.task and number not in options.task:
            continue
        if options.first and number % 100:
            continue
        chosen.append(each)
    if not chosen:
        raise SystemExit("no task is chosen")
    return chosen


def _tell(result: Played, done: int, count: int) -> None:
    mark = "ok " if result.is_right else "BAD"
    line = f"[{done}/{count}] {mark} {result.task_id} solution {result.solved} idle {result.idle}"
    line += f" in {result.actions} actions, {result.seconds} s"
    if result.trouble:
        line += f"; {result.trouble[-600:]}"
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _report(results: Sequence[Played]) -> None:
    solved = sum(result.solved == 1.0 for result in results)
    idle = sum(result.idle == 0.0 for result in results)
    actions = sorted(result.actions for result in results)
    sys.stdout.write(
        f"{solved} of {len(results)} solutions score 1.0, {idle} of {len(results)} idle episodes "
        f"score 0.0; actions: median {actions[len(actions) // 2]}, most {actions[-1]}\n"
    )
    wrong = [result.task_id for result in results if not result.is_right]
    if wrong:
        sys.stdout.write(f"wrong: {wrong}\n")


if __name__ == "__main__":
    sys.exit(main())
