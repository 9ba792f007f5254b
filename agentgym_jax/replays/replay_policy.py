"""The policy that continues a replay: weights of the run at a step, or those of another model."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from agentgym_jax.config.agent import AgentSettings
from agentgym_jax.config.model import (
    ModelSettings,
    TokenizerSettings,
    build_layouts,
    build_model,
    resolve_source,
)
from agentgym_jax.config.sections import ConfigError
from agentgym_jax.jobs import evaluation
from agentgym_jax.jobs.environments import Environments
from agentgym_jax.jobs.sampled_agents import SampledAgent, build_agent
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.sources import ModelSource, read_tokenizer
from agentgym_jax.replays.recorded_episodes import ReplayError
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.text.tokenizer import load_tokenizer
from agentgym_jax.training.job_kinds import JOBS

# Changes of the section for a stored model, which has whole weights.
_CONVERTED: Mapping[str, Any] = {"architecture": {}, "lora": {}}


@dataclasses.dataclass(frozen=True)
class PolicyChoice:
    """Weights that continue an episode.

    Attributes:
      settings: Checked section `model` of these weights.
      source: Source of the model's shape, and of the weights without a checkpoint; None for random
        weights.
      step: Training steps of the run's weights; None for weights of another model.
      checkpoint: Folder of the checkpoints and the number of the one to restore; None for the
        weights of `source`.
    """

    settings: ModelSettings
    source: ModelSource | None
    step: int | None = None
    checkpoint: tuple[pathlib.Path, int] | None = None

    @property
    def name(self) -> str:
        """Returns the name of the weights for messages."""
        return f"step {self.step}" if self.step is not None else self.settings.source


def parse_run(folder: RunFolder) -> tuple[dict[str, Any], Any, AgentSettings]:
    """Returns the config of a run, its checked config, and the settings of its agent.

    Raises:
      ReplayError: The run has no environments.
      ConfigError: The config is not valid for this version of the code.
    """
    config = folder.config()
    if "model" not in config:
        raise ReplayError(f"{folder.config_path} has no section `model`: restore the file")
    if "job" not in config:
        if evaluation.find_agent_kind(config["model"]["source"]) is not evaluation.AgentKind.MODEL:
            raise ReplayError(
                f"{folder.path} is an evaluation of {config['model']['source']}, which has no weights"
            )
        settings = evaluation.parse(config)
        return config, settings, settings
    if config["job"] not in JOBS:
        raise ConfigError(f"{folder.config_path}: config.job={config['job']!r} is unknown")
    settings = JOBS[config["job"]].parse(config)
    if settings.agent is None:
        raise ReplayError(f"{folder.path}: job {config['job']} had no environments")
    return config, settings, settings.agent


def choose_policy(
    folder: RunFolder,
    config: Mapping[str, Any],
    settings: ModelSettings,
    *,
    step: int | None,
    model: str | None,
) -> PolicyChoice:
    """Finds the weights of `--step` or `--model`; by default those of the newest checkpoint.

    Raises:
      ReplayError: The run has no such weights, or the model has another vocabulary.
      ConfigError: There is no such model.
    """
    if model is not None:
        return _other_model(folder, settings, model)
    if "job" not in config:  # an evaluation
        if step is not None:
            raise ReplayError(f"--step={step}: {folder.path} is an evaluation; give --model")
        return PolicyChoice(settings, resolve_source(settings))
    directory = folder.path / "checkpoints"
    steps = _steps(directory)
    step = max(steps, default=0) if step is None else step
    number = step
    if not step and config["job"] == "rl" and "sft" in config and config["sft"]["steps"]:
        directory = folder.warm_start / "checkpoints"
        number = max(_steps(directory), default=0)
        if not number:
            raise ReplayError(f"{directory} has no weights of the warm start; give another --step")
    elif step not in (0, *steps):
        raise ReplayError(f"--step={step}: the run has checkpoints of {steps or 'no'} steps, and 0")
    # Adapters need the run's own base; whole weights are all in the run folder.
    if number and settings.lora_settings is None:
        settings = dataclasses.replace(settings, source=str(folder.path), **_CONVERTED)
    checkpoint = (directory, number) if number else None
    return PolicyChoice(settings, resolve_source(settings), step, checkpoint)


def _steps(directory: pathlib.Path) -> list[int]:
    """Returns the steps of the complete checkpoints in a folder, ascending."""
    if not directory.is_dir():
        return []
    with Checkpoints(directory, max_to_keep=1, read_only=True) as checkpoints:
        return checkpoints.steps()


def _other_model(folder: RunFolder, settings: ModelSettings, model: str) -> PolicyChoice:
    if evaluation.find_agent_kind(model) is not evaluation.AgentKind.MODEL:
        raise ReplayError(f"--model={model} has no weights; name a model, a run folder or a preset")
    settings = dataclasses.replace(settings, source=model, **_CONVERTED)
    source = resolve_source(settings)
    if source is None or source.tokenizer_path is None:
        return PolicyChoice(settings, source)
    if not read_tokenizer(source).has_same_ids(load_tokenizer(folder.tokenizer)):
        raise ReplayError(
            f"--model={model} has another vocabulary than the run, so it cannot read the recorded "
            "tokens; name a model with the run's tokenizer"
        )
    return PolicyChoice(settings, source)


def build_policy(
    choice: PolicyChoice,
    config: Mapping[str, Any],
    tokenizer: TokenizerSettings,
    agent: AgentSettings,
    environments: Environments,
    scratch: RunFolder,
    folder: RunFolder,
) -> SampledAgent:
    """Builds the agent with its weights. `scratch` is a folder for the files of the model.

    The sampler has the rows of the run, because their number affects the last digits of the logits.
    """
    scratch.model.mkdir(parents=True)
    if not (folder.tokenizer / "tokenizer.json").exists():  # another one would be made there
        raise ReplayError(f"{folder.tokenizer} has no tokenizer.json: restore the folder")
    scratch.tokenizer.symlink_to(folder.tokenizer.absolute(), target_is_directory=True)
    model = build_model(
        choice.settings,
        tokenizer,
        choice.source,
        build_layouts(config["mesh"]),
        scratch,
        (),
        seed=config["seed"],
    )
    sampled = build_agent(agent, model, environments, agent.sampler["rows"])
    if choice.checkpoint is None:
        params = model.initial_params()
    else:
        directory, number = choice.checkpoint
        with Checkpoints(directory, max_to_keep=1, read_only=True) as checkpoints:
            params = checkpoints.restore_params(number, model.abstract_params())
    sampled.set_params(params, version=choice.step or 0)
    return sampled
