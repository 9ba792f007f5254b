r"""Measures what drafts save: decode steps per sampled token of whole episodes, and the time.

  PYTHONPATH=. python experiments/benchmarks/drafts.py --environments=textcraft,babyai,todo --tokenizer=DIR
  PYTHONPATH=. python experiments/benchmarks/drafts.py --episodes=runs/X/trajectories/step_000001.jsonl
  PYTHONPATH=. python experiments/benchmarks/drafts.py --environments=textcraft --tokenizer=DIR --model=DIR

Drafts change no token, so the steps of an episode follow from its tokens. Episodes are those of
files, or of scripted agents, whose actions a policy samples after imitation. With `--model`, this
model samples one turn per row after the first half of an episode. Samplers with and without drafts
alternate, from the same caches and random keys. The first round, which compiles, is not counted.
"""

import dataclasses
import itertools
import json
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from absl import app, flags

from agentgym_jax.data.conversations import read_conversations
from agentgym_jax.data.demonstrations import record
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import from_record
from agentgym_jax.jobs.serving import load_model, make_sampler
from agentgym_jax.sampling import drafts
from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.sampling.sampler import Sampler
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import load_tokenizer

_EPISODES = flags.DEFINE_list("episodes", [], "Files of trajectories.")
_ENVIRONMENTS = flags.DEFINE_list("environments", [], "Environments that scripted agents play.")
_TOKENIZER = flags.DEFINE_string("tokenizer", "", "Hugging Face directory, for `--environments`.")
_DRAFTS = flags.DEFINE_list("draft_tokens", ["2", "4", "8"], "Tokens of a draft.")
_LIMIT = flags.DEFINE_integer("limit", 64, "Number of episodes.")
_MODEL = flags.DEFINE_string("model", "", "Model that samples; empty: steps only.")
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "Type of the weights.")
_ROWS = flags.DEFINE_list("rows", ["1", "8"], "Rows that decode together.")
_CONTEXT = flags.DEFINE_integer("context", 1024, "Tokens of the longest beginning of an episode.")
_TURN = flags.DEFINE_integer("turn_tokens", 48, "Maximum tokens of a sampled turn.")
_ROUNDS = flags.DEFINE_integer("rounds", 2, "Number of measurements of each sampler.")


@dataclasses.dataclass(frozen=True)
class Episode:
    """Tokens of an episode, and which of them are sampled."""

    tokens: np.ndarray  # int32 [n]
    action_mask: np.ndarray  # bool [n]


def read(path: str) -> list[Episode]:
    """Returns the first episodes of a file."""
    with open(path, encoding="utf-8") as lines:
        first = itertools.islice(lines, _LIMIT.value)
        found = [from_record(json.loads(line)) for line in first]
    return [Episode(t.tokens, t.action_mask) for t in found if t.action_mask.any()]


def play(environment: str) -> list[Episode]:
    """Returns episodes of the scripted agent."""
    renderer = ChatRenderer(load_tokenizer(_TOKENIZER.value))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "episodes.jsonl"
        tasks = [Task(environment, i, "") for i in range(_LIMIT.value)]
        record(tasks, path, agent="expert", epsilon=0.0, max_turns=20, seed=0)
        found = read_conversations(path, bad="fatal")
    encoded = [renderer.encode_conversation(c.messages) for c in found]
    return [Episode(e.tokens, e.action_mask) for e in encoded if e.action_mask.any()]


def turns(episode: Episode) -> Iterator[tuple[int, int]]:
    """Yields the first token of each turn and the one after its last."""
    mask = np.concatenate([[False], episode.action_mask, [False]])
    edges = np.flatnonzero(np.diff(mask.astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


_propose = jax.jit(drafts.propose, static_argnums=2)


def count_steps(episode: Episode, draft_tokens: int) -> tuple[int, int]:
    """Returns the sampled tokens of an episode and the decode steps that they need."""
    tokens = np.asarray(episode.tokens, np.int32)
    at = np.flatnonzero(episode.action_mask)
    side = 256  # few shapes for the compiler
    padded = np.pad(tokens, (0, -len(tokens) % side))
    last = np.pad(at - 1, (0, -len(at) % side))
    draft = np.asarray(
        _propose(np.tile(padded, (len(last), 1)), last.astype(np.int32), draft_tokens)
    )
    line = {position: i for i, position in enumerate(at.tolist())}
    steps = 0
    for start, stop in turns(episode):
        while start < stop:
            now = tokens[start : min(stop - 1, start + draft_tokens)]
            is_right = draft[line[start], : len(now)] == now
            start += int(np.cumprod(is_right).sum()) + 1
            steps += 1
    return len(at), steps


def beginnings(episodes: Sequence[Episode], rows: int) -> list[list[int]]:
    """Returns for each row the tokens before the middle turn of an episode, within the context."""
    found = []
    for episode in episodes:
        starts = [start for start, _ in turns(episode) if start <= _CONTEXT.value]
        found += [episode.tokens[: starts[len(starts) // 2]].tolist()] if starts else []
    return [found[i % len(found)] for i in range(rows)]


def sample_round(sampler: Sampler, prompts: Sequence[list[int]], number: int) -> list[list[int]]:
    """Samples a turn in every row; the first round opens the rows."""
    options = SamplingOptions(1.0, _TURN.value, sampler.cache_length)
    for row, prompt in enumerate(prompts):
        key = episode_key(0, number, "drafts", row)
        if number == 0:
            sampler.open(key, options)
            sampler.prefill(row, [prompt])
        else:
            sampler.rewind(row, len(prompt) - 1)
            sampler.set_options(row, key, options)
            sampler.prefill(row, [prompt[-1:]])
    done: dict[int, list[int]] = {}
    while len(done) < len(prompts):
        done |= {turn.row: turn.tokens.tolist() for turn in sampler.step()}
    return [done[row] for row in range(len(prompts))]


def measure(prompts: Sequence[list[int]]) -> None:
    """Prints time and steps per token with each number of draft tokens, and of 0."""
    model = load_model(_MODEL.value, dtype=_DTYPE.value)
    counts = [0, *map(int, _DRAFTS.value)]
    samplers = []
    for count in counts:
        sampler = make_sampler(
            model,
            rows=len(prompts),
            context=max(map(len, prompts)) + _TURN.value,
            draft_tokens=count,
        )
        samplers.append(sampler)
        sample_round(sampler, prompts, 0)
        sampler.reset_statistics()
    same = dict.fromkeys(counts, 0)
    for number in range(1, _ROUNDS.value + 1):
        base = sample_round(samplers[0], prompts, number)
        for count, sampler in zip(counts[1:], samplers[1:], strict=True):
            same[count] += sum(
                a == b for a, b in zip(base, sample_round(sampler, prompts, number), strict=True)
            )
    for count, sampler in zip(counts, samplers, strict=True):
        found = sampler.statistics
        ms = 1e3 * found.seconds_decode / found.sampled
        sys.stdout.write(
            f"{len(prompts)} rows, {count} draft tokens: {ms:.1f} ms a token, "
            f"{1 / found.tokens_per_step:.2f} steps a token, {found.sampled} tokens"
            + (
                f", {same[count]} of {_ROUNDS.value * len(prompts)} turns equal\n"
                if count
                else "\n"
            )
        )


def main(_: list[str]) -> None:
    """Prints the steps per token of each file, and the times."""
    sources = {path: read for path in _EPISODES.value} | dict.fromkeys(_ENVIRONMENTS.value, play)
    for name, load in sources.items():
        episodes = load(name)
        for count in map(int, _DRAFTS.value):
            totals = np.sum([count_steps(episode, count) for episode in episodes], axis=0)
            sys.stdout.write(
                f"{name}: {count} draft tokens: {totals[1] / totals[0]:.2f} steps a token "
                f"({totals[0]} tokens, {len(episodes)} episodes)\n"
            )
        for rows in map(int, _ROWS.value if _MODEL.value else []):
            measure(beginnings(episodes, rows))


if __name__ == "__main__":
    app.run(main)
