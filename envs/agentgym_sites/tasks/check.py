"""Runs every embedded task: the solution must score 1, an idle and a hostile agent must score 0.

python -m agentgym_sites.tasks.check --group shopping --parallel 4

The hostile agent solves another task, then this task, and stops with the text of all pages as its
answer. `hostile.py` tests many more attacks without a browser; `--no-browser` runs only those.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import queue
import sys
import time
from collections.abc import Callable, Sequence

from agentgym_envs.artifacts import appearing_file
from agentgym_envs.base.environment import EnvironmentFault, SetupError, SimulatorLost
from agentgym_envs.webarena.browser.launch import require_browser
from agentgym_envs.webarena.embedded_sites import running_sites, shared
from agentgym_envs.webarena.embedded_world import EmbeddedWorld
from agentgym_envs.webarena.environment import WebArenaEnvironment
from agentgym_envs.webarena.world import Entry
from agentgym_sites.tasks import embedded_tasks
from agentgym_sites.tasks.hostile import check_without_browser
from agentgym_sites.tasks.script import ScriptError
from agentgym_sites.tasks.task import FIRST_IDS, EmbeddedTask

_MAX_ACTIONS = 60  # maximum number of actions of a solution
_ATTEMPTS = 3  # attempts per agent, because a browser or a site may fail independently of the task
_IDLE = "```stop []```"
_SOLUTION, _IDLE_AGENT, _HOSTILE = AGENTS = ("solution", "idle", "hostile")


@dataclasses.dataclass(frozen=True)
class Played:
    """Scores of one task; the score of an agent that did not run is None.

    Attributes:
      solved: Score of the solution; -1 if the solution raised an error or the environment failed.
      idle: Score of an agent that stops with its first action; -1 if the environment failed.
      hostile: Score of the hostile agent; -1 if the environment failed.
      trouble: Error messages that explain a score of -1.
    """

    task_id: int
    solved: float | None
    idle: float | None
    hostile: float | None
    actions: int
    seconds: float
    trouble: str

    @property
    def is_right(self) -> bool:
        """True if all scores are as expected."""
        return self.solved in (1.0, None) and {self.idle, self.hostile} <= {0.0, None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks the selected tasks; returns 0 if all scores are as expected."""
    options = _options(arguments)
    tasks = _chosen(options)
    sites = sorted({site for each in tasks for site in each.task.sites})
    try:
        with shared(sites):
            hacks = check_without_browser(tasks, running_sites(sites))
            for hack in hacks:
                sys.stdout.write(f"wrong: task {hack.task_id} rewards an agent that {hack.deed}\n")
            if options.no_browser:
                sys.stdout.write(f"{len(tasks)} tasks checked, {len(hacks)} attacks rewarded\n")
                return 1 if hacks else 0
            require_browser()
            agents = options.agent or AGENTS
            results = check(tasks, sites, agents, parallel=options.parallel)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json is not None:
        rows = [dataclasses.asdict(result) for result in results]
        with appearing_file(options.json) as partial:
            partial.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    _report(results)
    return 0 if not hacks and all(result.is_right for result in results) else 1


def check(
    tasks: Sequence[EmbeddedTask],
    sites: Sequence[str],
    agents: Sequence[str] = AGENTS,
    *,
    parallel: int,
) -> list[Played]:
    """Runs the agents on the tasks; returns the scores, sorted by task number."""
    entries = [Entry(each.task, each.split, each.solution) for each in tasks]
    world = EmbeddedWorld(entries, sites)
    free: queue.SimpleQueue[WebArenaEnvironment] = queue.SimpleQueue()
    for _ in range(parallel):
        free.put(WebArenaEnvironment(world))

    def work(index: int) -> Played:
        environment = free.get()
        try:
            return _play_all(environment, index, tasks, agents)
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


def _play_all(
    environment: WebArenaEnvironment,
    index: int,
    tasks: Sequence[EmbeddedTask],
    agents: Sequence[str],
) -> Played:
    plays: dict[str, Callable[[], tuple[float, int]]] = {
        _SOLUTION: lambda: _play(environment, index),
        _IDLE_AGENT: lambda: _idle(environment, index),
        _HOSTILE: lambda: _hostile(environment, index, other_deed(tasks[index])),
    }
    scores: dict[str, float] = {}
    began = time.monotonic()
    actions, seconds, troubles = 0, 0.0, []
    for agent in agents:
        scores[agent], count, trouble = _tried(plays[agent])
        troubles.append(trouble)
        if agent == _SOLUTION:
            actions, seconds = count, time.monotonic() - began
    return Played(
        tasks[index].task.task_id,
        scores.get(_SOLUTION),
        scores.get(_IDLE_AGENT),
        scores.get(_HOSTILE),
        actions,
        round(seconds, 1),
        " ".join(filter(None, troubles)),
    )


def _tried(play: Callable[[], tuple[float, int]]) -> tuple[float, int, str]:
    """Runs an agent with retries; returns its score, its number of actions and an error message."""
    trouble = ""
    for _ in range(_ATTEMPTS):
        try:
            score, actions = play()
        except (EnvironmentFault, SimulatorLost) as error:
            trouble = str(error)
        else:
            return score, actions, ""
    return -1.0, 0, trouble


def _play(environment: WebArenaEnvironment, index: int) -> tuple[float, int]:
    environment.reset(index)
    for count in range(1, _MAX_ACTIONS + 1):
        result = environment.step(environment.expert_action())
        if result.done:
            return result.score, count
    return 0.0, _MAX_ACTIONS


def _idle(environment: WebArenaEnvironment, index: int) -> tuple[float, int]:
    environment.reset(index)
    return environment.step(_IDLE).score, 1


def other_deed(own: EmbeddedTask) -> EmbeddedTask:
    """Returns the next task of another template that changes a site and starts in the same tabs.

    A task of the same template is not suitable: it may change the value that this task's solution
    overwrites, and the end state would be right.
    """
    tasks = embedded_tasks()
    place = [each.task.task_id for each in tasks].index(own.task.task_id)
    return next(
        each
        for each in (*tasks[place + 1 :], *tasks[:place])
        if each.task.start_urls == own.task.start_urls[: len(each.task.start_urls)]
        and each.task.intent_template_id != own.task.intent_template_id
        and each.task.evaluation.edits
    )


def _hostile(
    environment: WebArenaEnvironment, index: int, other: EmbeddedTask
) -> tuple[float, int]:
    """Solves another task, then this one, and answers with the text of all pages seen."""
    environment.reset(index)
    seen = [environment.prompt]
    _follow(environment, other, seen)
    for _ in range(_MAX_ACTIONS):
        try:
            action = environment.expert_action()
        except EnvironmentFault:  # the other task removed something that the solution needs
            action = _IDLE
        if "stop [" in action:
            break
        seen.append(environment.step(action).observation)
    return environment.step(f"stop [{' '.join(seen)}]").score, len(seen)


def _follow(environment: WebArenaEnvironment, other: EmbeddedTask, seen: list[str]) -> None:
    """Executes the solution of a task in an episode of another task."""
    script = other.solution()
    next(script)
    try:
        action = script.send(seen[-1])
        while action is not None and not action.startswith("stop"):
            seen.append(environment.step(action).observation)
            action = script.send(seen[-1])
    except (ScriptError, StopIteration):
        pass  # a solution that stops early is enough


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m agentgym_sites.tasks.check",
        description="Runs the solution of every embedded task, which must score 1, and an idle and a "
        "hostile agent, which must score 0.",
    )
    add = parser.add_argument
    add(
        "--group",
        action="append",
        choices=sorted(FIRST_IDS),
        help="only this group; may be repeated",
    )
    add("--task", action="append", type=int, help="only the task with this number; may be repeated")
    add("--first", action="store_true", help="only the first instance of each template")
    add("--agent", action="append", choices=AGENTS, help="only this agent; may be repeated")
    add("--no-browser", action="store_true", help="only the hostile agent that needs no browser")
    add("--parallel", type=int, default=4, help="concurrent episodes (default: %(default)s)")
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
        raise SystemExit("no task matches the options")
    return chosen


def _tell(result: Played, done: int, count: int) -> None:
    mark = "ok " if result.is_right else "BAD"
    line = f"[{done}/{count}] {mark} {result.task_id} solution {result.solved} idle {result.idle}"
    line += f" hostile {result.hostile}"
    line += f" in {result.actions} actions, {result.seconds} s"
    if result.trouble:
        line += f"; {result.trouble[-600:]}"
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _report(results: Sequence[Played]) -> None:
    for agent, score, wanted in (
        (_SOLUTION, lambda result: result.solved, 1.0),
        (_IDLE_AGENT, lambda result: result.idle, 0.0),
        (_HOSTILE, lambda result: result.hostile, 0.0),
    ):
        scores = [score(result) for result in results if score(result) is not None]
        if scores:
            right = sum(each == wanted for each in scores)
            sys.stdout.write(f"{agent}: {right} of {len(scores)} score {wanted}\n")
    actions = sorted(result.actions for result in results)
    sys.stdout.write(f"actions: median {actions[len(actions) // 2]}, most {actions[-1]}\n")
    wrong = [result.task_id for result in results if not result.is_right]
    if wrong:
        sys.stdout.write(f"wrong: {wrong}\n")


if __name__ == "__main__":
    sys.exit(main())
