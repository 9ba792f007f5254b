"""Generates docs/config.md: all keys of a config with values, units, defaults and meanings.

Keys are read from the signatures and docstrings of the functions that receive the sections, so the
page agrees with the checks at the start of a run.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentgym_jax.algorithms import ALGORITHMS, losses
from agentgym_jax.algorithms.horizon import SCHEDULES
from agentgym_jax.checks import limits
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.config import settings
from agentgym_jax.config.environment_sections import EnvironmentSettings, TransportSettings
from agentgym_jax.config.model import LoraSettings, ModelSettings, TokenizerSettings
from agentgym_jax.data.demonstrations import record
from agentgym_jax.data.preferences import pair_up
from agentgym_jax.data.tasks import SELECTIONS
from agentgym_jax.evaluation.text_agents import EndpointSettings
from agentgym_jax.learner.curriculum import CURRICULA
from agentgym_jax.learner.importance import CORRECTIONS
from agentgym_jax.learner.marks import MARKS
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.mesh.sharding import make_layouts
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.rl.algorithm import CRITICS, AlgorithmSettings
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.sampling.sampler import Sampler
from agentgym_jax.supervised.agentevol import AgentEvolSettings
from agentgym_jax.supervised.dpo import DpoSettings
from agentgym_jax.telemetry.guards import GuardSettings

# Maps each section to the function that receives it, and to the arguments that are not config keys.
READERS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "": (settings.TopLevel, ""),
    "model": (ModelSettings, ""),
    "model.architecture": (DecoderConfig, "vocab_size"),
    "model.lora": (LoraSettings, ""),
    "tokenizer": (TokenizerSettings, ""),
    "mesh": (make_layouts, "devices process_index"),
    "env_server": (TransportSettings, ""),
    "environments.NAME": (EnvironmentSettings, ""),
    "client": (EnvClient, "base_url environment facts action_format success_score transport"),
    "pool": (EnvPool, "clients"),
    "sampler": (Sampler, "policy stop_ids truncates"),
    "sampling": (SamplingOptions, ""),
    "rollout": (settings.RolloutSettings, ""),
    "program": (settings.ProgramSettings, ""),
    "reference": (settings.ReferenceSettings, ""),
    "judge": (settings.JudgeSettings, ""),
    "algorithm": (AlgorithmSettings, ""),
    "optimizer": (make_optimizer, "total_steps"),
    "learner": (settings.LearnerSettings, ""),
    "evaluation": (settings.EvaluationSettings, ""),
    "checkpoint": (settings.CheckpointSettings, ""),
    "guards": (GuardSettings, ""),
    "sft": (settings.SftSettings, ""),
    "sft.demonstrations.NAME": (record, "tasks path on_progress"),
    "dpo": (DpoSettings, ""),
    "dpo.pairing": (pair_up, "conversations seed"),
    "agentevol": (AgentEvolSettings, ""),
    "endpoint": (EndpointSettings, ""),
}
# Maps each section with a `kind` to the functions of all kinds, and to the arguments that are not
# config keys.
KINDS: Mapping[str, tuple[Mapping[str, Callable[..., Any]], str]] = {
    "environments.NAME.train, environments.NAME.eval": (SELECTIONS, "environment manifest"),
    "horizon, environments.NAME.horizon": (SCHEDULES, ""),
    "rollout.curriculum": (CURRICULA, ""),
    "algorithm.correction": (
        {**CORRECTIONS, **losses.MASKS},
        "learner_logprob sampler_logprob sequence tokens",
    ),
    "algorithm.marks": (MARKS, "logprob advantage rng"),
    "algorithm.critic": (CRITICS, ""),
}


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a config.

    Attributes:
      name: Dotted name of the key.
      values: Valid values, in words.
      unit: Unit of the value; empty for none.
      default: Default as Python source; empty for a required key.
      meaning: Description from the docstring of the function.
    """

    name: str
    values: str
    unit: str
    default: str
    meaning: str


def list_keys(defaults: Mapping[str, Any]) -> Iterator[Key]:
    """Yields every config key in the order of READERS.

    Args:
      defaults: Values of the shipped configs, by dotted section.
    """
    for section, (reader, bound) in READERS.items():
        annotations, meanings = limits.annotations(reader), read_descriptions(reader)
        given = defaults[section] if section in defaults else {}
        for name, parameter in inspect.signature(reader).parameters.items():
            if name in bound.split():
                continue
            default = "" if parameter.default is parameter.empty else _default(reader, parameter)
            if name in given:
                default = repr(given[name])
            yield Key(
                f"{section}.{name}" if section else name,
                limits.describe(annotations[name]),
                limits.unit(annotations[name]),
                default,
                meanings[name] if name in meanings else "",
            )


def _default(reader: Callable[..., Any], parameter: inspect.Parameter) -> str:
    """Returns the default of a parameter as Python source."""
    if dataclasses.is_dataclass(reader):
        field = {field.name: field for field in dataclasses.fields(reader)}[parameter.name]
        if field.default_factory is not dataclasses.MISSING:
            return repr(field.default_factory())
    return repr(parameter.default)


def read_descriptions(reader: Callable[..., Any]) -> dict[str, str]:
    """Returns the descriptions in the Args or Attributes section of a docstring, by name."""
    texts = [inspect.getdoc(reader) or ""]
    if inspect.isclass(reader):
        texts += [inspect.getdoc(base) or "" for base in reader.__mro__[1:-1]]
        texts.append(inspect.getdoc(reader.__init__) or "")
    found: dict[str, str] = {}
    for text in texts:
        _, _, block = re.sub(r"^(Args|Attributes):$", "\0", text, flags=re.M).partition("\0\n")
        block = re.split(r"^\S", block, maxsplit=1, flags=re.M)[0]
        for name, meaning in re.findall(r"^  (\w+): (.*(?:\n    .*)*)", block, flags=re.M):
            found[name] = " ".join(meaning.split())
    return found


def render_page(defaults: Mapping[str, Any]) -> str:
    """Renders docs/config.md.

    Args:
      defaults: Values of the shipped configs, by dotted section.
    """
    lines = [_HEAD]
    section = None
    for key in list_keys(defaults):
        if key.name.rpartition(".")[0] != section:
            section = key.name.rpartition(".")[0]
            title = f"`{section}`" if section else "Keys outside sections"
            lines += ["", f"## {title}", "", "| key | values | unit | default | meaning |"]
            lines.append("|---|---|---|---|---|")
        name = key.name.rpartition(".")[2]
        default = f"`{key.default}`" if key.default else ""
        cells = (f"`{name}`", key.values, key.unit, default, key.meaning)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    for section, (table, bound) in KINDS.items():
        lines += ["", f"## Kinds of {section}", "", "| kind | keys | meaning |", "|---|---|---|"]
        lines += [_row(kind, reader, bound.split()) for kind, reader in table.items()]
    lines += ["", "## Options of algorithms", ""]
    lines += ["| name | advantage | loss |", "|---|---|---|"]
    for name, row in ALGORITHMS.items():
        options = (_names(row.advantage, ["episodes"]), _names(row.loss, ["tokens"]))
        lines.append(f"| `{name}` | {' | '.join(options)} |")
    return "\n".join(lines) + "\n"


def _row(kind: str, reader: Callable[..., Any], bound: list[str]) -> str:
    meaning = (inspect.getdoc(reader) or "").splitlines()[0]
    return f"| `{kind}` | {_names(reader, bound)} | {meaning} |"


def _names(reader: Callable[..., Any], bound: list[str]) -> str:
    names = [name for name in inspect.signature(reader).parameters if name not in bound]
    return ", ".join(f"`{name}`" for name in names)


_HEAD = """\
# Keys of a config

Every value in a config can be changed on the command line: `--config.optimizer.learning_rate=1e-4`. The defaults below are those of
`configs/common.py` and, for `sft`, `dpo` and `agentevol`, of the configs of these jobs. Other configs change some of them. A key
that is not in these files has the default of the code; a flag or a config can set it, too. The value of such a flag is a
Python literal or a text: `--config.model.attention=cudnn`, `--config.sampler.draft_tokens=4`, `--config.client.token='"42"'`.
A key without a default is required. Wrong keys and values are refused before anything is written.

A section with a `kind` also has the keys of that kind. The section of an algorithm is made by the function of that name in
`configs/common.py` (docs/algorithms.md).

This page is generated from the code: `python tests/config/test_config_keys.py`."""
