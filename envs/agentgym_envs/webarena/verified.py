"""Scores of webarena-verified: WebArena's tasks audited, judged without a language model.

    python -m agentgym_envs.webarena.verified episodes.jsonl --deployment deployment.json \\
        --python V/bin/python > scores.jsonl

webarena-verified 1.2.3 scores the agent's answer, a JSON object, and for most tasks also the requests
that the browser made. It pins its dependencies exactly, so it is run in an interpreter of its own
(`python -m venv V; V/bin/pip install webarena-verified==1.2.3`). A line of `episodes.jsonl` is
`{"task_id": 0, "answer": "{..}", "trace": "0.har"}`; the trace, a HAR file as Playwright records it
or a Playwright trace, may be null for tasks that are scored by the answer alone.
"""

import argparse
import dataclasses
import importlib.util
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
# How an agent has to answer, to be told beside the objective.
ANSWER_FORMAT = (
    "Answer with one JSON object. task_type: RETRIEVE if you were asked for information, MUTATE if you "
    "were asked to change something, NAVIGATE if you were asked to show a page. status: SUCCESS, or "
    "why it cannot be done: ACTION_NOT_ALLOWED_ERROR, PERMISSION_DENIED_ERROR, NOT_FOUND_ERROR, "
    "DATA_VALIDATION_ERROR, UNKNOWN_ERROR. retrieved_data: for RETRIEVE the list of what you found, "
    "with numbers as numbers, else null. error_details: null, or what went wrong."
)


@dataclasses.dataclass(frozen=True)
class VerifiedTask:
    """What an agent and a collector need of an audited task.

    Attributes:
      task_id: the same number as in WebArena.
      sites: keys of `urls.SITES`.
      start_urls: one per tab, with placeholders.
      intent: the objective as audited; often worded otherwise than WebArena's.
      needs_trace: whether the requests of the browser are part of the score.
    """

    task_id: int
    sites: tuple[str, ...]
    start_urls: tuple[str, ...]
    intent: str
    needs_trace: bool


@dataclasses.dataclass(frozen=True)
class Case:
    """One finished episode.

    Attributes:
      task_id: of a task.
      answer: what the agent stopped with.
      trace: file of the browser's requests.
    """

    task_id: int
    answer: str
    trace: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True)
class Score:
    """What webarena-verified says.

    Attributes:
      task_id: of the task.
      score: 1 or 0; None: not scored.
      status: success, failure, partial_match or error of the library, or `no_trace`.
      message: why there is no score.
    """

    task_id: int
    score: float | None
    status: str
    message: str = ""


def find_verified_tasks(path: pathlib.Path | None = None) -> pathlib.Path:
    """The file of audited tasks at `path`, else of the package in this interpreter.

    Raises:
      SetupError: there is none.
    """
    if path is None:
        found = importlib.util.find_spec(PACKAGE)
        folders = found.submodule_search_locations if found is not None else None
        path = next((pathlib.Path(folder) / TASKS for folder in folders or ()), None)
    if path is None or not path.is_file():
        raise SetupError(f"webarena: no file of webarena-verified's tasks ({path or TASKS})")
    return path


def read_verified_tasks(path: pathlib.Path) -> dict[int, VerifiedTask]:
    """The audited tasks by number.

    Raises:
      SetupError: the file does not hold them.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
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
    """Scores of episodes, in their order.

    A task whose requests count and whose trace is missing is not scored: its answer alone would
    pass an agent that did nothing.

    Args:
      cases: the episodes.
      tasks: all audited tasks.
      urls: where the sites were when the episodes were played.
      python: an interpreter that has webarena-verified.

    Raises:
      SetupError: the interpreter does not have it, or it broke down.
    """
    complete = [
        case
        for case in cases
        if case.task_id in tasks and (case.trace or not tasks[case.task_id].needs_trace)
    ]
    results = iter(_run(complete, urls, python) if complete else ())
    taken = {id(case) for case in complete}
    return [next(results) if id(case) in taken else _not_scored(case, tasks) for case in cases]


def _not_scored(case: Case, tasks: Mapping[int, VerifiedTask]) -> Score:
    if case.task_id not in tasks:
        return Score(case.task_id, None, "error", "there is no such task")
    return Score(case.task_id, None, "no_trace", "the browser's requests are part of the score")


def _run(cases: Sequence[Case], urls: SiteUrls, python: str) -> list[Score]:
    """Scores by the library in the other interpreter."""
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
    """Scores the episodes of a file; one JSON line each, and how many have no score at the end."""
    parser = argparse.ArgumentParser(prog="agentgym_envs.webarena.verified")
    parser.add_argument("episodes", type=pathlib.Path)
    parser.add_argument("--deployment", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable, help="that has webarena-verified")
    parser.add_argument("--tasks", type=pathlib.Path, help="webarena-verified.json")
    args = parser.parse_args(arguments)
    tasks = read_verified_tasks(find_verified_tasks(args.tasks or _tasks_of(args.python)))
    lines = args.episodes.read_text(encoding="utf-8").split(
        "\n"
    )  # answers may hold other separators
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


def _tasks_of(python: str) -> pathlib.Path | None:
    """The file of tasks beside the package of another interpreter; None if it is not there."""
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
