"""TensorFlow Datasets builders for trajectories and preference pairs .

    AgentTrajectories(source="agenttraj.json", data_dir="data").download_and_prepare()

Every job can read the prepared folder: `config.sft.files=("data/agent_trajectories/1.0.0",)`. Without
`data_dir` it is prepared in the folder of TensorFlow Datasets and can be read by name:
`config.sft.files=("tfds:agent_trajectories",)`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow_datasets as tfds

from agentgym_jax.data.conversations import read_conversations
from agentgym_jax.data.preferences import opening, read_preferences
from agentgym_jax.episodes.trajectory import SPEAKERS
from agentgym_jax.text.chat import Message


class _FromRows(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Builder that stores the rows of a local file or folder as ArrayRecord.

    The builders are not registered, because by name they would be called without their source.
    """

    VERSION = tfds.core.Version("1.0.0")
    _FIELDS: tuple[str, ...]  # fields with turns
    _OTHER_FIELDS: Mapping[str, Any] = {}

    def __init__(self, *, source: str, bad: Literal["fatal", "skip"] = "fatal", **options: Any):
        """Creates a builder of the rows in `source`; `options` are those of `DatasetBuilder`."""
        self._source, self._bad = source, bad
        super().__init__(file_format="array_record", **options)

    def _info(self) -> tfds.core.DatasetInfo:
        turn = {"from": tfds.features.Text(), "value": tfds.features.Text(), "loss": np.int32}
        turns = {name: tfds.features.Sequence(turn) for name in self._FIELDS}
        features = {"item_id": tfds.features.Text(), **turns, **self._OTHER_FIELDS}
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: Any) -> Mapping[str, Any]:
        return {"train": self._generate_examples()}


class AgentTrajectories(_FromRows, skip_registration=True):  # type: ignore[call-arg]
    """Builder for conversations with `item_id` and `reward` (NaN if unknown)."""

    _FIELDS = ("conversations",)
    _OTHER_FIELDS = {"reward": np.float64}

    def _generate_examples(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        found = read_conversations(self._source, bad=self._bad)
        for i, conversation in enumerate(c for c in found if c.is_valid):
            reward = float("nan") if conversation.reward is None else conversation.reward
            turns = _turns(conversation.messages)
            yield i, {"item_id": conversation.item_id, "conversations": turns, "reward": reward}


class AgentPreferences(_FromRows, skip_registration=True):  # type: ignore[call-arg]
    """Builder for preference pairs with `item_id`, `prompt`, `chosen` and `rejected`."""

    _FIELDS = ("prompt", "chosen", "rejected")

    def _generate_examples(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for i, pair in enumerate(read_preferences(self._source, bad=self._bad)):
            prompt = opening(pair.chosen.messages)
            sides = {"chosen": pair.chosen, "rejected": pair.rejected}
            answers = {k: _turns(side.messages[len(prompt) :]) for k, side in sides.items()}
            yield i, {"item_id": pair.chosen.item_id, "prompt": _turns(prompt), **answers}


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Converts messages to turns; a `loss` of -1 replaces the null of AgentGym's files."""
    return [
        {
            "from": SPEAKERS[message.role],
            "value": message.content,
            "loss": int(message.loss) if message.role == "assistant" else -1,
        }
        for message in messages
    ]
