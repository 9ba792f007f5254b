"""All keys of a config with their values, units, defaults and meanings, as in docs/config.md.

Everything is read from the signatures and docstrings of what the sections feed, so the list cannot
differ from what a run accepts.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentgym_jax import limits
from agentgym_jax.algorithms import ALGORITHMS, losses
from agentgym_jax.algorithms.horizon import SCHEDULES
from agentgym_jax.data.demonstrations import record
from agentgym_jax.data.preferences import pair_up
from agentgym_jax.data.tasks import SELECTIONS
from agentgym_jax.env_client.client import EnvClient
from agentgym_jax.env_client.pool import EnvPool
from agentgym_jax.learner.importance import CORRECTIONS
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.run import settings
from agentgym_jax.run.agentevol import AgentEvolSettings
from agentgym_jax.run.algorithm import AlgorithmSettings
from agentgym_jax.run.critic import CRITICS
from agentgym_jax.run.dpo import DpoSettings
from agentgym_jax.run.environments import EnvironmentSettings, TransportSettings
from agentgym_jax.run.model import ModelSettings, TokenizerSettings
from agentgym_jax.sampling.sampler import Sampler, SamplingOptions
from agentgym_jax.sharding import make_mesh

# Section -> what reads it, and the arguments of that which a config does not give.
READERS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "": (settings.TopLevel, ""),
    "model": (ModelSettings, ""),
    "model.architecture": (DecoderConfig, "vocab_size"),
    "tokenizer": (TokenizerSettings, ""),
    "mesh": (make_mesh, "devices"),
    "env": (TransportSettings, ""),
    "environments.NAME": (EnvironmentSettings, ""),
    "client": (EnvClient, "base_url environment upstream action_format transport"),
    "pool": (EnvPool, "clients"),
    "sampler": (Sampler, "policy stop_ids"),
    "sampling": (SamplingOptions, ""),
    "rollout": (settings.RolloutSettings, ""),
    "algorithm": (AlgorithmSettings, ""),
    "optimizer": (make_optimizer, "total_steps"),
    "learner": (settings.LearnerSettings, ""),
    "evaluation": (settings.EvaluationSettings, ""),
    "checkpoint": (settings.CheckpointSettings, ""),
    "guards": (settings.GuardSettings, ""),
    "sft": (settings.SftSettings, ""),
    "sft.demonstrations.NAME": (record, "tasks path"),
    "dpo": (DpoSettings, ""),
    "dpo.pairing": (pair_up, "conversations seed"),
    "agentevol": (AgentEvolSettings, ""),
    "endpoint": (settings.EndpointSettings, ""),
}
# Section with a `kind` -> the kinds, and the arguments that a config does not give.
KINDS: Mapping[str, tuple[Mapping[str, Callable[..., Any]], str]] = {
    "environments.NAME.train, environments.NAME.eval": (SELECTIONS, "environment manifest"),
    "horizon, environments.NAME.horizon": (SCHEDULES, ""),
    "algorithm.correction": (CORRECTIONS, "learner_logprob sampler_logprob sequence"),
    "algorithm.critic": (CRITICS, ""),
}
_ARRAYS = inspect.signature(losses.clipped_surrogate).parameters


@dataclasses.dataclass(frozen=True)
class Key:
    """A key of a config.

    Attributes:
      name: Dotted name.
      values: Values that it may have, in words.
      unit: Unit of the value; empty for none.
      default: Default as Python source; empty if a config must give it.
      meaning: Sentence from the docstring of its reader.
    """

    name: str
    values: str
    unit: str
    default: str
    meaning: str


def keys(defaults: Mapping[str, Any]) -> Iterator[Key]:
    """Every key of READERS, in its order.

    Args:
      defaults: Dotted section -> its values in the shipped configs.
    """
    for section, (reader, bound) in READERS.items():
        annotations, meanings = limits.annotations(reader), described(reader)
        given = defaults[section] if section in defaults else {}
        for name, parameter in inspect.signature(reader).parameters.items():
            if name in bound.split():
                continue
            default = "" if parameter.default is parameter.empty else repr(parameter.default)
            if name in given:
                default = repr(given[name])
            yield Key(
                f"{section}.{name}" if section else name,
                limits.describe(annotations[name]),
                limits.unit(annotations[name]),
                default,
                meanings[name] if name in meanings else "",
            )


def described(reader: Callable[..., Any]) -> dict[str, str]:
    """Name -> description, from the Args or Attributes of the docstrings of a function or class."""
    texts = [inspect.getdoc(reader) or ""]
    if inspect.isclass(reader):
        texts.append(inspect.getdoc(reader.__init__) or "")
    found: dict[str, str] = {}
    for text in texts:
        _, _, block = re.sub(r"^(Args|Attributes):$", "\0", text, flags=re.M).partition("\0\n")
        block = re.split(r"^\S", block, maxsplit=1, flags=re.M)[0]
        for name, meaning in re.findall(r"^  (\w+): (.*(?:\n    .*)*)", block, flags=re.M):
            found[name] = " ".join(meaning.split())
    return found


def document(defaults: Mapping[str, Any]) -> str:
    """Text of docs/config.md.

    Args:
      defaults: As for `keys`.
    """
    lines = [_HEAD]
    section = None
    for key in keys(defaults):
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
        options = (_names(row.advantage, ["episodes"]), _names(row.loss, [*_ARRAYS][:4]))
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

Every value of a config can be changed on the command line: `--config.optimizer.learning_rate=1e-4`. Defaults are those of
`configs/common.py` and, for `sft`, `dpo` and `agentevol`, of the configs of these jobs; other configs have values of their own.
A key without a default must be given. Wrong keys and values are refused before anything is written.

A section with a `kind` has the keys of that kind besides. Algorithms have a section of their own each, made by the function of
that name in `configs/common.py` (docs/algorithms.md).

This page is written by `python tests/test_config_keys.py` from the code that reads the keys."""
