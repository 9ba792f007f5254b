"""Episodes that a sampler plays alone, and the log-probabilities that teacher forcing gives them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from agentgym_jax.models.token_logprobs import token_logprobs
from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.sampling.sampler import Sampler
from tests.builders import decoder_config

VOCAB = 97
STOP = 5
CONFIG = decoder_config(vocab_size=VOCAB, intermediate_size=64, rope_theta=10000.0)
KEYS = [episode_key(0, 0, f"k_{i}", 0) for i in range(8)]
OPTIONS = SamplingOptions(temperature=1.0, max_turn_tokens=6, max_tokens=250)


def make_sampler(
    policy, params, *, rows=6, buckets=((8, 4), (32, 2)), follows_load=False, **options
):
    options = dict(decode_steps=4, return_after_finished=2) | options
    sampler = Sampler(
        policy, rows=rows, cache_length=256, buckets=buckets, stop_ids=[STOP], **options
    )
    sampler.set_params(params, version=3)
    if follows_load:
        sampler.follow_load()
    return sampler


def prompt(task, length=21):
    rng = np.random.default_rng(task)
    return [[7] * 9, rng.integers(6, VOCAB, length).tolist()]


def observation(task, sample, turn):
    rng = np.random.default_rng([task, sample, turn])
    return [rng.integers(6, VOCAB, int(rng.integers(1, 40))).tolist()]


@dataclasses.dataclass
class Played:
    tokens: list
    logprobs: list
    is_action: list


def play(sampler, episodes, turns=3, *, options=OPTIONS, delay=None, is_overlapped=False):
    """Plays episodes, given as (task, sample), and starts the next one when a row becomes free.

    `delay(episode)` returns the number of sampler steps until the environment answers.

    If `is_overlapped` is set, answers are appended and rows are opened while the device decodes.
    """
    played = {e: Played([], [], []) for e in episodes}
    waiting, row_of, left = list(episodes), {}, {e: turns for e in episodes}
    answers = []  # each entry is (steps to wait, row, episode, chunks)

    def know(episode, tokens, logprobs=None):
        record = played[episode]
        record.tokens += list(tokens)
        record.logprobs += list(logprobs) if logprobs is not None else [0.0] * len(tokens)
        record.is_action += [logprobs is not None] * len(tokens)

    def admit():
        while waiting and sampler.free_rows:
            episode = waiting.pop(0)
            row = sampler.open(episode_key(0, 0, f"t_{episode[0]}", episode[1]), options)
            row_of[row] = episode
            chunks = prompt(episode[0])
            sampler.prefill(row, chunks)
            know(episode, sum(chunks, []))

    def answer():
        for waiting_answer in answers:
            waiting_answer[0] -= 1
        for due in [a for a in answers if a[0] < 0]:
            _, row, episode, chunks = due
            sampler.prefill(row, chunks)
            know(episode, sum(chunks, []))
            answers.remove(due)

    while left:
        if is_overlapped:
            sampler.begin()
        admit()
        answer()
        for turn in sampler.finish() if is_overlapped else sampler.step():
            episode = row_of[turn.row]
            know(episode, turn.tokens.tolist(), turn.logprobs.tolist())
            assert turn.version == 3
            assert turn.is_stopped == (turn.tokens[-1] == STOP)
            left[episode] -= 1
            if not left[episode]:
                sampler.close(turn.row)
                del row_of[turn.row], left[episode]
                continue
            chunks = observation(*episode, left[episode])
            answers.append([delay(episode) if delay else 0, turn.row, episode, chunks])
    return played


EPISODES = [(task, sample) for task in range(3) for sample in range(4)]


@functools.partial(jax.jit, static_argnames=("policy", "temperature"))
def score(policy, params, row_BT, segment_BT, temperature):
    positions_BT = jnp.broadcast_to(jnp.arange(row_BT.shape[1]), row_BT.shape)
    hidden = policy.hidden(params, row_BT, positions_BT, segment_BT)
    scored = token_logprobs(policy, params, hidden, row_BT, temperature=temperature, chunk_size=64)
    return scored.logprob_BT


def teacher_forced(policy, params, tokens, temperature=1.0):
    row = np.zeros((1, 256), np.int32)
    row[0, : len(tokens)] = tokens
    segment = (np.arange(256)[None] < len(tokens)).astype(np.int32)
    return np.asarray(score(policy, params, row, segment, temperature))[0, : len(tokens)]
