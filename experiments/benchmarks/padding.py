r"""How much of a training batch is padding, with episodes of real lengths?

  PYTHONPATH=. python experiments/benchmarks/padding.py --tokenizer=/path/of/qwen --out=padding.jsonl

Scripted players play as many tasks as one step of configs/paper/*.py has episodes; they are
tokenised, split into the config's mini-batches and packed into its rows as in training. Padding is the share of positions
that hold no token, empty rows of the last micro-batch included. Beside it what it would be in rows
of the full length only, and with one episode a row, all rows as long as the longest episode.

Needs the environments that are named; deep search builds its corpus at the first use.
"""

import importlib
import json
import pathlib
import statistics
import sys
import tempfile

import numpy as np
from absl import app, flags

from agentgym_jax.batch import pack, padding_share, tightest_row_length
from agentgym_jax.data.conversations import read_conversations
from agentgym_jax.data.demonstrations import record
from agentgym_jax.data.tasks import Task
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import load_tokenizer

_TOKENIZER = flags.DEFINE_string("tokenizer", None, "Hugging Face directory.", required=True)
_ENVIRONMENTS = flags.DEFINE_list(
    "environments", ["textcraft", "babyai", "sciworld", "searchqa"], "Which."
)
_OUT = flags.DEFINE_string("out", "", "File that the JSON lines are appended to.")


def lengths(environment: str, episodes: int, max_turns: int, renderer: ChatRenderer) -> list[int]:
    """Tokens of the episodes of the scripted player on the first tasks."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "episodes.jsonl"
        tasks = [Task(environment, i, "") for i in range(episodes)]
        record(tasks, path, player="expert", epsilon=0.0, max_turns=max_turns, seed=0)
        found = read_conversations(path, bad="fatal").conversations
    return [len(renderer.encode_conversation(c.messages).tokens) for c in found]


def share(counts: list[int], row_length: int, micro_rows: int, halvings: int) -> float:
    """Padding of one packed batch."""
    sequences = [dict(tokens=np.ones(n, int), action_mask=np.ones(n, bool)) for n in counts]
    T = tightest_row_length(counts, row_length, micro_rows, halvings)
    return padding_share(pack(sequences, row_length=T, rows_multiple=micro_rows))


def measure(environment: str, renderer: ChatRenderer) -> dict:
    """The row of one environment."""
    config = importlib.import_module(f"configs.paper.{environment}").get_config()
    learner, rollout = config.learner, config.rollout
    episodes = rollout.tasks_per_step * rollout.group_size
    counts = lengths(environment, episodes, config.evaluation.max_turns, renderer)
    parts = [counts[i :: learner.mini_batches] for i in range(learner.mini_batches)]
    longest = max(counts)

    def padding(halvings: int) -> float:
        return statistics.mean(
            share(part, learner.row_length, learner.micro_rows, halvings) for part in parts
        )

    return dict(
        benchmark="padding",
        environment=environment,
        episodes=len(counts),
        tokens=[min(counts), round(statistics.mean(counts)), longest],
        row_length=learner.row_length,
        micro_rows=learner.micro_rows,
        mini_batches=learner.mini_batches,
        row_halvings=learner.row_halvings,
        padding=padding(learner.row_halvings),
        full_length_rows=padding(0),
        one_a_row=1 - statistics.mean(counts) / longest,
    )


def main(_: list[str]) -> None:
    """One JSON line an environment."""
    renderer = ChatRenderer(load_tokenizer(_TOKENIZER.value))
    for environment in _ENVIRONMENTS.value:
        line = json.dumps(measure(environment, renderer))
        sys.stdout.write(line + "\n")
        if _OUT.value:
            with open(_OUT.value, "a") as f:
                f.write(line + "\n")


if __name__ == "__main__":
    app.run(main)
