r"""Measures the share of padding in a training batch, with episodes of real lengths.

  PYTHONPATH=. python experiments/benchmarks/padding.py --tokenizer=/path/of/qwen --out=padding.jsonl

Scripted agents run as many tasks as one step of configs/paper/*.py has episodes. The episodes are
tokenised, split into the config's mini-batches and packed into its rows as in training. Padding is
the share of positions without a token, empty rows of the last micro-batch included. For comparison,
two more shares are computed: with rows of the full length only, and with one episode per row,
padded to the longest episode.

The named environments must be installed. Deep search builds its corpus when it is first used.
"""

import importlib
import json
import pathlib
import statistics
import sys
import tempfile

import numpy as np
from absl import app, flags

from agentgym_jax.data.conversations import read_conversations
from agentgym_jax.data.demonstrations import record
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.batch import pack, padding_share, tightest_row_length
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import load_tokenizer

_TOKENIZER = flags.DEFINE_string("tokenizer", None, "Hugging Face directory.", required=True)
_ENVIRONMENTS = flags.DEFINE_list(
    "environments", ["textcraft", "babyai", "sciworld", "searchqa"], "Environments."
)
_OUT = flags.DEFINE_string("out", "", "File that the JSON lines are appended to.")


def lengths(environment: str, episodes: int, max_turns: int, renderer: ChatRenderer) -> list[int]:
    """Runs the scripted agent on the first tasks and returns the token counts of its episodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "episodes.jsonl"
        tasks = [Task(environment, i, "") for i in range(episodes)]
        record(tasks, path, agent="expert", epsilon=0.0, max_turns=max_turns, seed=0)
        found = read_conversations(path, bad="fatal")
    return [len(renderer.encode_conversation(c.messages).tokens) for c in found]


def share(counts: list[int], row_length: int, micro_rows: int, num_row_lengths: int) -> float:
    """Returns the share of padding in one packed batch."""
    sequences = [dict(tokens=np.ones(n, int), action_mask=np.ones(n, bool)) for n in counts]
    T = tightest_row_length(counts, row_length, micro_rows, num_row_lengths)
    return padding_share(pack(sequences, row_length=T, rows_multiple=micro_rows))


def measure(environment: str, renderer: ChatRenderer) -> dict:
    """Returns the table row of one environment."""
    config = importlib.import_module(f"configs.paper.{environment}").get_config()
    learner, rollout = config.learner, config.rollout
    episodes = rollout.tasks_per_step * rollout.group_size
    counts = lengths(environment, episodes, config.evaluation.max_turns, renderer)
    parts = [counts[i :: learner.mini_batches] for i in range(learner.mini_batches)]
    longest = max(counts)

    def padding(num_row_lengths: int) -> float:
        return statistics.mean(
            share(part, learner.row_length, learner.micro_rows, num_row_lengths) for part in parts
        )

    return dict(
        benchmark="padding",
        environment=environment,
        episodes=len(counts),
        tokens=[min(counts), round(statistics.mean(counts)), longest],
        row_length=learner.row_length,
        micro_rows=learner.micro_rows,
        mini_batches=learner.mini_batches,
        num_row_lengths=learner.num_row_lengths,
        padding=padding(learner.num_row_lengths),
        full_length_rows=padding(1),
        one_a_row=1 - statistics.mean(counts) / longest,
    )


def main(_: list[str]) -> None:
    """Prints one JSON line per environment."""
    renderer = ChatRenderer(load_tokenizer(_TOKENIZER.value))
    for environment in _ENVIRONMENTS.value:
        line = json.dumps(measure(environment, renderer))
        sys.stdout.write(line + "\n")
        if _OUT.value:
            with open(_OUT.value, "a") as f:
                f.write(line + "\n")


if __name__ == "__main__":
    app.run(main)
