r"""Measures what drafts save: decode steps per sampled token on recorded episodes, and the time.

  PYTHONPATH=. python experiments/benchmarks/drafts.py --draft_tokens=4 \
      --episodes=runs/todo/trajectories/eval_000000.jsonl

  PYTHONPATH=. python experiments/benchmarks/drafts.py --draft_tokens=4 --rows=1,8 --model=DIR \
      --episodes=runs/todo/trajectories/eval_000000.jsonl

Drafts change no token, so the steps of a recorded episode follow from its tokens. With `--model`,
this model samples one turn per row after the recorded beginning of an episode. Samplers with and
without drafts alternate, from the same caches and random keys. The first round, which compiles, is
not counted. The episodes must have the tokens of this model.
"""

import json
import sys
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from absl import app, flags

from agentgym_jax.episodes.trajectory import Trajectory, from_record
from agentgym_jax.jobs.serving import load_model, make_sampler
from agentgym_jax.sampling import drafts
from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.sampling.sampler import Sampler

_EPISODES = flags.DEFINE_list("episodes", None, "Files of trajectories.", required=True)
_DRAFTS = flags.DEFINE_list("draft_tokens", ["2", "4", "8"], "Tokens of a draft.")
_LIMIT = flags.DEFINE_integer("limit", 64, "Episodes of a file.")
_MODEL = flags.DEFINE_string("model", "", "Model that samples; empty: steps only.")
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "Type of the weights.")
_ROWS = flags.DEFINE_list("rows", ["1", "8"], "Rows that decode together.")
_CONTEXT = flags.DEFINE_integer("context", 1024, "Tokens of the longest beginning of an episode.")
_TURN = flags.DEFINE_integer("turn_tokens", 48, "Maximum tokens of a sampled turn.")
_ROUNDS = flags.DEFINE_integer("rounds", 2, "Number of measurements of each sampler.")


def read(path: str) -> list[Trajectory]:
    """Returns the first episodes of a file."""
    with open(path, encoding="utf-8") as lines:
        found = [
            from_record(json.loads(line))
            for _, line in zip(range(_LIMIT.value), lines, strict=False)
        ]
    return [trajectory for trajectory in found if trajectory.action_mask.any()]


def turns(trajectory: Trajectory) -> Iterator[tuple[int, int]]:
    """Yields the first token of each turn and the one after its last."""
    mask = np.concatenate([[False], trajectory.action_mask, [False]])
    edges = np.flatnonzero(np.diff(mask.astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


_propose = jax.jit(drafts.propose, static_argnums=2)


def count_steps(trajectory: Trajectory, draft_tokens: int) -> tuple[int, int]:
    """Returns the sampled tokens of an episode and the decode steps that they need."""
    tokens = np.asarray(trajectory.tokens, np.int32)
    at = np.flatnonzero(trajectory.action_mask)
    side = 256  # few shapes for the compiler
    padded = np.pad(tokens, (0, -len(tokens) % side))
    last = np.pad(at - 1, (0, -len(at) % side))
    draft = np.asarray(
        _propose(np.tile(padded, (len(last), 1)), last.astype(np.int32), draft_tokens)
    )
    line = {position: i for i, position in enumerate(at.tolist())}
    steps = 0
    for start, stop in turns(trajectory):
        while start < stop:
            now = tokens[start : min(stop - 1, start + draft_tokens)]
            is_right = draft[line[start], : len(now)] == now
            start += int(np.cumprod(is_right).sum()) + 1
            steps += 1
    return len(at), steps


def beginnings(episodes: Sequence[Trajectory], rows: int) -> list[list[int]]:
    """Returns for each row the tokens before the middle turn of an episode, within the context."""
    found = []
    for trajectory in episodes:
        starts = [start for start, _ in turns(trajectory) if start <= _CONTEXT.value]
        found += [trajectory.tokens[: starts[len(starts) // 2]].tolist()] if starts else []
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
    for path in _EPISODES.value:
        episodes = read(path)
        for count in map(int, _DRAFTS.value):
            totals = np.sum([count_steps(episode, count) for episode in episodes], axis=0)
            sys.stdout.write(
                f"{path}: {count} draft tokens: {totals[1] / totals[0]:.2f} steps a token "
                f"({totals[0]} tokens, {len(episodes)} episodes)\n"
            )
        if _MODEL.value:
            for rows in map(int, _ROWS.value):
                measure(beginnings(episodes, rows))


if __name__ == "__main__":
    app.run(main)
