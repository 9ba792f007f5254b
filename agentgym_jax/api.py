"""The commands as functions, with typed results and exceptions: `from agentgym_jax import train`.

The package itself imports this module when one of these names is used first.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.cli import process_setup
from agentgym_jax.client.embedded import ServerFailed
from agentgym_jax.client.errors import EnvError
from agentgym_jax.config.config_files import Config, load_config, resolve
from agentgym_jax.config.sections import ConfigError
from agentgym_jax.episodes.trajectory import BrokenPolicyError
from agentgym_jax.evaluation.compare import Result, compare
from agentgym_jax.evaluation.text_agents import AgentError
from agentgym_jax.jobs.device_errors import DeviceError
from agentgym_jax.jobs.evaluation_job import run_evaluation
from agentgym_jax.jobs.run import StopRequested
from agentgym_jax.jobs.serving import load_model, make_backend, make_sampler, warm_up
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.mesh.processes import ProcessesError
from agentgym_jax.rollout.retries import ContextTooSmallError
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.runs.config_differences import flatten
from agentgym_jax.runs.json_lines import DamagedFileError
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.serving.local_chat import LoadedPolicy
from agentgym_jax.telemetry.guards import GuardStop
from agentgym_jax.training.job_kinds import run_job
from agentgym_jax.viewer.loaded_run import LoadedRun, load_run

__all__ = [
    "USER_ERRORS",
    "ConfigError",
    "LoadedPolicy",
    "LoadedRun",
    "Result",
    "StopRequested",
    "compare",
    "evaluate",
    "load_config",
    "load_policy",
    "load_run",
    "train",
]

# Errors that users can fix. Their messages have one line, which is all that a command shows.
USER_ERRORS = (
    ConfigError,
    ContextTooSmallError,
    RunFolderError,
    DamagedFileError,
    CheckpointError,
    EnvError,
    ServerFailed,
    GuardStop,
    DeviceError,
    ProcessesError,
    AgentError,
    BrokenPolicyError,
)


def train(
    config: Config,
    workdir: str | os.PathLike,
    overrides: Mapping[str, Any] | None = None,
    *,
    plots: bool = True,
) -> LoadedRun:
    """Trains the job of a config, or resumes it if `workdir` has the same run; returns the run.

        train("configs/quickstart.py:smoke", "runs/smoke", {"optimizer.learning_rate": 1e-4})

    Args:
      config: Path of a config file with its options, a `ConfigDict`, or a plain dictionary.
      workdir: Run folder.
      overrides: Values by dotted key, or nested dictionaries.
      plots: Draws the figures of `plots/` at the end.

    Raises:
      ConfigError: The config is invalid, or `workdir` has another run.
      StopRequested: Ctrl-C or SIGTERM ended the run; the same call resumes it.
      Exception: One of `USER_ERRORS`.
    """
    process_setup.prepare()
    folder = os.fspath(workdir)
    run_job(resolve(config, overrides or {}), folder, plots=plots)
    return LoadedRun(RunFolder(folder), folder)


def evaluate(
    config: Config,
    model: str | os.PathLike,
    workdir: str | os.PathLike,
    overrides: Mapping[str, Any] | None = None,
    *,
    environments: Sequence[str] = (),
    same_tasks_as: str | os.PathLike | None = None,
) -> Result:
    """Evaluates a model or agent on the tasks of a config; returns and writes its scores.

        evaluate("configs/eval/quickstart.py", "runs/quickstart", "runs/eval").success

    A second call with the same arguments runs only the missing episodes. A run folder is evaluated
    with the prompts and limits of its training, except those in `overrides`.

    Args:
      config: Path of a config file with its options, a `ConfigDict`, or a plain dictionary.
      model: Run folder, Hugging Face directory or hub id, preset, `expert`, `random`, or the
        address of a chat endpoint.
      workdir: Folder for scores.json and trajectories/.
      overrides: Values by dotted key, or nested dictionaries.
      environments: Environments of the config to use; empty for all.
      same_tasks_as: A result (folder or scores.json); an evaluation on other tasks is refused.

    Raises:
      ConfigError: The config is invalid, or `workdir` has another evaluation.
      StopRequested: Ctrl-C or SIGTERM ended the evaluation; the same call resumes it.
      Exception: One of `USER_ERRORS`.
    """
    process_setup.prepare()
    changes = overrides or {}
    return run_evaluation(
        resolve(config, changes),
        os.fspath(model),
        os.fspath(workdir),
        overridden=set(flatten(changes)),
        environments=environments,
        same_tasks_as=None if same_tasks_as is None else os.fspath(same_tasks_as),
    )


def load_policy(
    model: str | os.PathLike,
    *,
    rows: int = 8,
    context: int = 4096,
    dtype: str = "bfloat16",
    tensor: int = 1,
) -> LoadedPolicy:
    """Loads a model that answers messages in this process; `close` frees its memory.

        with load_policy("runs/quickstart", context=512) as policy:
            print(policy.chat("Your goal: go to the red door."))

    Args:
      model: Run folder (its latest checkpoint), Hugging Face directory or hub id.
      rows: Maximum number of conversations that are sampled at the same time.
      context: Maximum number of tokens of a conversation with its answer.
      dtype: Type of the weights: `bfloat16`, `float32` or `int8`.
      tensor: Number of devices that share a layer.

    Raises:
      ConfigError: There is no such model, or it has no tokenizer.
      Exception: One of `USER_ERRORS`.
    """
    process_setup.prepare()
    name = os.fspath(model)
    loaded = load_model(name, dtype=dtype, tensor=tensor)
    sampler = make_sampler(loaded, rows=rows, context=context)
    backend = make_backend(loaded, sampler, name, max_waiting=sys.maxsize)
    policy = LoadedPolicy(backend)
    warm_up(backend)
    return policy
