"""Scores of webarena-verified: audited tasks of WebArena, judged without a language model.

    python -m agentgym_envs.webarena.verified episodes.jsonl --deployment deployment.json \\
        --python V/bin/python > scores.jsonl

webarena-verified 1.2.3 scores the agent's answer, a JSON object, and for most tasks also the
requests of the browser. The package pins its dependencies exactly, so it runs in a separate
interpreter (`python -m venv V; V/bin/pip install webarena-verified==1.2.3`). A line of
`episodes.jsonl` is `{"task_id": 0, "answer": "{..}", "trace": "0.har"}`. The trace is a HAR file as
Playwright records it, or a Playwright trace. It can be null for tasks that are scored by the answer
alone.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena import verified_child
from agentgym_envs.webarena.deployment import read_deployment
from agentgym_envs.webarena.urls import SITES, SiteUrls

PACKAGE = "webarena_verified"
TASKS = "assets/dataset/webarena-verified.json"
ANSWER_EVALUATOR = "AgentResponseEvaluator"
SECONDS_PER_BATCH = 600.0
INSTALL = "`python -m venv V; V/bin/pip install webarena-verified==1.2.3`, then name V/bin/python"


@dataclasses.dataclass(frozen=True)
class VerifiedTask:
    """Data of an audited task for running and recording an episode.

    Attributes:
      start_urls: Addresses with placeholders, one per tab.
      intent: Audited objective, which is often worded differently from WebArena's.
      needs_trace: True if the requests of the browser are part of the score.
    """

    task_id: int
    sites: tuple[str, ...]
    start_urls: tuple[str, ...]
    intent: str
    needs_trace: bool


@dataclasses.dataclass(frozen=True)
class Case:
    """One finished episode."""

    task_id: int
    answer: str
    trace: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True)
class Score:
    """Verdict of webarena-verified.

    Attributes:
      score: 1 or 0; None if the episode has no score.
      status: Status of the library (success, failure, partial_match or error), or `no_trace`.
      message: Reason why there is no score.
    """

    task_id: int
    score: float | None
    status: str
    message: str = ""


def read_verified_tasks(path: pathlib.Path) -> dict[int, VerifiedTask]:
    """Reads the audited tasks by number.

    Raises:
      SetupError: The file does not contain the tasks.
    """
    if not path.is_file():
        raise SetupError(f"webarena: no file of webarena-verified's tasks ({path})")
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
        tasks = [
            VerifiedTask(
                task_id=row["task_id"],
                sites=tuple(row["sites"]),
                start_urls=tuple(row["start_urls"]),
                intent=row["intent"],
                needs_trace=any(e["evaluator"] != ANSWER_EVALUATOR for e in row["eval"]),
            )
            for row in rows
        ]
    except (ValueError, LookupError, TypeError) as error:
        raise SetupError(f"webarena: {path} is not webarena-verified's file: {error!r}") from None
    return {task.task_id: task for task in tasks}


def score(
    cases: Sequence[Case],
    tasks: Mapping[int, VerifiedTask],
    urls: SiteUrls,
    python: str = sys.executable,
) -> list[Score]:
    """Scores episodes, in their order, with webarena-verified in another interpreter.

    A task that checks requests has no score without a trace, because a check of the answer alone
    would pass an agent that did nothing on the sites. `urls` must be the addresses that the sites
    had during the episodes.

    Raises:
      SetupError: The interpreter does not have the package, or the package failed.
    """
    skipped = [_not_scored(case, tasks) for case in cases]
    complete = [case for case, reason in zip(cases, skipped, strict=True) if reason is None]
    results = iter(_run(complete, urls, python) if complete else ())
    return [reason or next(results) for reason in skipped]


def _not_scored(case: Case, tasks: Mapping[int, VerifiedTask]) -> Score | None:
    """Returns a Score with the reason for a case that cannot be scored, None for other cases."""
    if case.task_id not in tasks:
        return Score(case.task_id, None, "error", "there is no such task")
    if tasks[case.task_id].needs_trace and not case.trace:
        return Score(case.task_id, None, "no_trace", "the browser's requests are part of the score")
    return None


def _run(cases: Sequence[Case], urls: SiteUrls, python: str) -> list[Score]:
    """Scores cases with the library in the other interpreter."""
    bases = {SITES[site].placeholder: base for site, base in urls.bases.items()}
    rows = [
        {
            "task_id": case.task_id,
            "answer": case.answer,
            "trace": str(case.trace.resolve()) if case.trace else None,
        }
        for case in cases
    ]
    command = [python, "-I", "-W", "ignore", verified_child.__file__]
    try:
        done = subprocess.run(
            command,
            input=json.dumps({"urls": bases, "cases": rows}),
            capture_output=True,
            text=True,
            timeout=SECONDS_PER_BATCH,
            check=False,
        )
        results = json.loads(done.stdout)
    except FileNotFoundError:
        raise SetupError(f"webarena: there is no interpreter {python}. Install {INSTALL}") from None
    except subprocess.TimeoutExpired:
        raise SetupError(f"webarena: no scores within {SECONDS_PER_BATCH:g} s") from None
    except json.JSONDecodeError:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise SetupError(
            f"webarena: webarena-verified in {python}: {last[0]}. Install {INSTALL}"
        ) from None
    return [Score(case.task_id, **result) for case, result in zip(cases, results, strict=True)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints one JSON line per episode, then the number of scored episodes and their mean."""
    parser = argparse.ArgumentParser(prog="agentgym_envs.webarena.verified")
    parser.add_argument("episodes", type=pathlib.Path)
    parser.add_argument("--deployment", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable, help="Python with webarena-verified")
    parser.add_argument("--tasks", type=pathlib.Path, help="webarena-verified.json")
    args = parser.parse_args(arguments)
    tasks = read_verified_tasks(args.tasks or _tasks_of(args.python))
    # Answers can contain other line separators, so `splitlines` would be wrong.
    lines = args.episodes.read_text(encoding="utf-8-sig").split("\n")
    folder = args.episodes.parent
    cases = [
        Case(row["task_id"], row["answer"], folder / row["trace"] if row["trace"] else None)
        for row in map(json.loads, filter(str.strip, lines))
    ]
    scores = score(cases, tasks, read_deployment(args.deployment).urls, args.python)
    for each in scores:
        sys.stdout.write(json.dumps(dataclasses.asdict(each)) + "\n")
    scored = [each.score for each in scores if each.score is not None]
    mean = f", mean {sum(scored) / len(scored):.3f}" if scored else ""
    sys.stderr.write(f"{len(scored)} of {len(scores)} episodes scored{mean}\n")


def _tasks_of(python: str) -> pathlib.Path:
    """Returns the file of tasks in the package of another interpreter."""
    script = f"import importlib.util as u; print(u.find_spec({PACKAGE!r}).origin)"
    try:
        done = subprocess.run(
            [python, "-I", "-c", script], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise SetupError(f"webarena: there is no interpreter {python}. Install {INSTALL}") from None
    if done.returncode:
        raise SetupError(f"webarena: {python} does not have webarena-verified. Install {INSTALL}")
    return pathlib.Path(done.stdout.strip()).parent / TASKS


if __name__ == "__main__":
    main()
