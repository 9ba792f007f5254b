"""Runs episodes in another process, which has a different hash seed.

The command is `python -m agentgym_envs.conformance.other_process MODULE JOBS ANSWERS [--compat]
[--options JSON]`. JOBS is a file with a JSON list of `{"data_idx" or "snapshot", "actions"}`. For
each job, the process writes to the file ANSWERS the list of its results, each as `[observation,
reward, score, done]`, or the text of an error.
"""

import argparse
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import load_environment, prepare
from agentgym_envs.base.user_code import describe
from agentgym_envs.base.user_code import play as play_one
from agentgym_envs.conformance.subject import Subject, Violation

_LOGGER = logging.getLogger(__name__)
_SECONDS = 300.0
_HASH_SEEDS = ("4711", "8150")


def play(subject: Subject, jobs: Sequence[dict[str, Any]]) -> list[list[StepResult] | str]:
    """Runs jobs in another process; returns the answers to each job, or the job's error.

    Raises:
      Violation: The process failed.
    """
    with tempfile.TemporaryDirectory(prefix="agentgym_envs_") as folder:
        asked, answered = pathlib.Path(folder, "jobs"), pathlib.Path(folder, "answers")
        asked.write_text(json.dumps(jobs))
        command = [sys.executable, "-m", __name__, subject.module, str(asked), str(answered)]
        done = subprocess.run(
            command
            + (["--compat"] if subject.compat else [])
            + ["--options", json.dumps(subject.options)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "PYTHONHASHSEED": _other_hash_seed(),
            },
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["(nothing)"])[-1]
            raise Violation(f"another process ended with status {done.returncode}: {last}")
        answers = json.loads(answered.read_text())
    return [
        answer if isinstance(answer, str) else [StepResult(*fields) for fields in answer]
        for answer in answers
    ]


def _other_hash_seed() -> str:
    own = os.environ.get("PYTHONHASHSEED")
    return next(seed for seed in _HASH_SEEDS if seed != own)


def main(argv: list[str] | None = None) -> int:
    """Runs the jobs of a file; returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("jobs", type=pathlib.Path)
    parser.add_argument("answers", type=pathlib.Path)
    parser.add_argument("--compat", action="store_true")
    parser.add_argument(
        "--options", type=json.loads, default={}, help="options of the environment, as JSON"
    )
    args = parser.parse_args(argv)
    served = load_environment(args.module, args.options)
    prepare(served)
    factory = served.compat_factory if args.compat else served.factory
    answers = [_answer(factory(), job) for job in json.loads(args.jobs.read_text())]
    args.answers.write_text(json.dumps(answers))
    return 0


def _answer(environment: Environment, job: dict[str, Any]) -> list[list[Any]] | str:
    results = []
    try:
        if "snapshot" in job:
            environment.restore(job["snapshot"])
        else:
            results.append(play_one(environment.reset, job["data_idx"]))
        results += [play_one(environment.step, action) for action in job["actions"]]
        environment.close()
    except Exception as error:
        _LOGGER.exception("an environment under test failed")
        return describe(error)
    return [[r.observation, r.reward, r.score, r.done] for r in results]


if __name__ == "__main__":
    sys.exit(main())
