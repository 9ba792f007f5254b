"""Penalties, biases and min-p: their definitions, and rows with and without them side by side."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.policy import Policy
from agentgym_jax.sampling import decode, logits
from agentgym_jax.sampling.adjusting import CallOrder, LogitOptions, TurnAdjuster
from agentgym_jax.sampling.options import SamplingOptions, episode_key
from tests import builders

VOCAB, STOP = 97, 5
PROMPT = [7, 7, 9, 30, 31, 9]
KEYS = [episode_key(0, 0, f"k_{i}", 0) for i in range(6)]
OPTIONS = SamplingOptions(temperature=0.8, max_turn_tokens=12, max_tokens=60)
ALL = LogitOptions(
    frequency_penalty=1.5,
    presence_penalty=-0.7,
    repetition_penalty=1.8,
    logit_bias={11: 3.0, 60: -100.0},
)


@pytest.fixture(scope="module")
def policy():
    return Policy(builders.decoder_config(vocab_size=VOCAB, num_layers=1, rope_theta=10000.0))


def make_sampler(policy, params, rows=4):
    return builders.make_sampler(
        policy, params, [STOP], rows=rows, cache_length=64, buckets=((8, 2),)
    )


def open_row(sampler, number, changes=None, options=OPTIONS):
    """Opens a row with the prompt, whose first token depends on the number."""
    prompt = [10 + number, *PROMPT]
    row = sampler.open(KEYS[number], options)
    adjuster = None if changes is None else TurnAdjuster(changes, prompt, VOCAB)
    sampler.set_options(row, KEYS[number], options, adjuster)
    sampler.prefill(row, [prompt])
    return row


def play(sampler, changes):
    """Samples one turn for each element of `changes`; returns the turns in this order."""
    rows = [open_row(sampler, number, change) for number, change in changes.items()]
    turns = {}
    while len(turns) < len(rows):
        turns |= {turn.row: turn for turn in sampler.step()}
    return {n: turns[row] for n, row in zip(changes, rows, strict=True)}


def same(turn, other):
    return (
        turn.tokens.tolist() == other.tokens.tolist()
        and turn.logprobs.tolist() == other.logprobs.tolist()
    )


def expected_logprob(logits_V, changes, prompt, answer, temperature):
    """Returns the log-probabilities of the next token by the definitions, in float64."""
    found = logits_V.astype(np.float64)
    for token in set(prompt) | set(answer):
        factor = changes.repetition_penalty
        found[token] = found[token] / factor if found[token] > 0 else found[token] * factor
    for token in set(answer):
        found[token] -= changes.frequency_penalty * answer.count(token)
        found[token] -= changes.presence_penalty
    for token, bias in changes.logit_bias.items():
        found[token] += bias
    found /= temperature
    return found - np.logaddexp.reduce(found)


def test_the_sampler_follows_the_definitions_at_every_token(policy, params):
    options = dataclasses.replace(OPTIONS, max_turn_tokens=30)
    sampler = make_sampler(policy, params)
    row, turns = open_row(sampler, 0, ALL, options), []
    while not turns:
        turns = sampler.step()
    assert turns[0].row == row
    answer, prompt = turns[0].tokens.tolist(), [10, *PROMPT]
    assert len(set(answer)) < len(answer) > 8  # some tokens occur twice
    tokens = jnp.asarray([prompt + answer])
    positions = jnp.arange(tokens.shape[1])[None]
    hidden_1TD = policy.hidden(params, tokens, positions, jnp.ones_like(tokens))
    logits_TV = np.asarray(policy.logits(params, hidden_1TD[0]))
    for i, token in enumerate(answer):
        before = logits_TV[len(prompt) + i - 1]
        expected = expected_logprob(before, ALL, prompt, answer[:i], OPTIONS.temperature)
        np.testing.assert_allclose(turns[0].logprobs[i], expected[token], atol=2e-5)


def test_min_p_keeps_the_tokens_near_the_likeliest():
    values_V = np.random.default_rng(0).normal(size=300) * 2
    n = 2000
    drawn = logits.draw(
        jnp.tile(jnp.asarray(values_V, jnp.float32)[None], (n, 1)),
        jnp.asarray((np.arange(n) + 0.5) / n, jnp.float32),
        jnp.full(n, 0.7),
        jnp.zeros(n, jnp.int32),
        jnp.ones(n),
        jnp.full(n, 0.2),
    )
    probs_V = np.exp(values_V / 0.7)
    probs_V /= probs_V.sum()
    kept = np.flatnonzero(probs_V >= 0.2 * probs_V.max())
    assert sorted(set(np.asarray(drawn.token_B).tolist())) == kept.tolist()
    np.testing.assert_allclose(drawn.logprob_B, np.log(probs_V[drawn.token_B]), rtol=1e-4)


def test_rows_with_and_without_changes_do_not_affect_each_other(policy, params):
    changes = {0: None, 1: ALL, 2: LogitOptions(min_p=0.3), 3: None}
    alone = {}
    for number, change in changes.items():
        alone |= play(make_sampler(policy, params), {number: change})
    sampler = make_sampler(policy, params)
    together = play(sampler, changes)
    assert sampler.statistics.sampled == sum(len(turn.tokens) for turn in together.values())
    for number, turn in together.items():
        assert same(turn, alone[number])


def test_changes_that_change_nothing_and_the_next_turn_have_the_tokens_without(policy, params):
    plain = play(make_sampler(policy, params), {0: None})[0]
    neutral = play(make_sampler(policy, params), {0: LogitOptions()})[0]
    assert same(plain, neutral)
    sampler = make_sampler(policy, params)
    row, turns = open_row(sampler, 0, LogitOptions(logit_bias={STOP: 100.0})), []
    while not turns:
        turns = sampler.step()
    assert turns[0].tokens.tolist() == [STOP]
    sampler.rewind(row, 3)
    sampler.prefill(row, [PROMPT[2:]])
    turns = sampler.step()
    while not turns:
        turns = sampler.step()
    assert turns[0].tokens.tolist() == plain.tokens.tolist()


def test_only_changes_that_follow_the_tokens_need_a_call_for_each_token(policy, params):
    calls = {}
    for name, changes in [("min_p", LogitOptions(min_p=0.01)), ("all", ALL)]:
        sampler = make_sampler(policy, params)
        open_row(sampler, 0, changes)
        calls[name], turns = 0, []
        while not turns:
            turns = sampler.step()
            calls[name] += 1
        tokens = len(turns[0].tokens)
        assert calls[name] == (-(-tokens // 4) if name == "min_p" else tokens)


def test_both_kinds_of_rows_get_equally_many_steps():
    order, plain, adjusted = CallOrder(), [1, 2], [3]
    steps = {False: 0, True: 0}
    for _ in range(100):
        is_adjusted = order.choose(plain, adjusted) is adjusted
        steps[is_adjusted] += 1 if is_adjusted else 16
        order.note(1 if is_adjusted else 16, is_adjusted=is_adjusted)
        assert abs(steps[True] - steps[False]) <= 16
    for _ in range(5):
        order.note(16, is_adjusted=False)
        assert order.choose(plain, []) is plain  # a lead without others does not count
    assert order.choose(plain, adjusted) is plain


def test_a_warm_sampler_compiles_nothing_for_changed_logits(policy, params):
    decode.decode_chunk.clear_cache()
    sampler = make_sampler(policy, params, rows=3)
    sampler.follow_load()
    sampler.warm_up(adjusts=True)
    before = decode.decode_chunk._cache_size()
    assert before > 0
    play(sampler, {0: ALL, 1: None, 2: LogitOptions(min_p=0.1)})
    assert decode.decode_chunk._cache_size() == before
