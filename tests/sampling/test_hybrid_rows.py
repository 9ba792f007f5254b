"""Rows of the sampler whose cache is a state, which cannot return to fewer tokens."""

import dataclasses

import jax
import numpy as np
import pytest

from agentgym_jax.models.policy import Policy
from agentgym_jax.sampling.prefill import PrefillSlice, separate_rows
from tests.builders import hybrid_config
from tests.sampling import played_rows as plain

pytestmark = pytest.mark.usefixtures("compiled_fast")

ATOL = 2e-4  # as in tests/models/test_hybrid.py


@pytest.fixture(scope="module")
def policy():
    return Policy(hybrid_config(vocab_size=plain.VOCAB, num_layers=2))


@pytest.fixture(scope="module")
def params(policy):
    # The weights are larger than at initialisation, so that the context changes the sampled tokens.
    return jax.tree.map(lambda x: 3.0 * x, jax.jit(policy.init)(jax.random.key(0)))


def make_sampler(policy, params):
    return plain.make_sampler(policy, params, buckets=((8, 4),))


def one_turn(sampler):
    while True:
        for turn in sampler.step():
            return turn


def assert_teacher_forced(policy, params, prompt, turn):
    sequence = [*prompt, *turn.tokens.tolist()]
    expected = plain.teacher_forced(policy, params, sequence)[len(prompt) :]
    np.testing.assert_allclose(turn.logprobs, expected, atol=ATOL)


def test_a_slice_of_a_row_waits_for_its_earlier_slices():
    slices = [PrefillSlice(row, start, np.zeros(8), 8) for row in (0, 1) for start in (0, 8, 16)]
    del slices[-1]
    parts = [[(part.row, part.start) for part in now] for now in separate_rows(slices)]
    assert parts == [[(0, 0), (1, 0)], [(0, 8), (1, 8)], [(0, 16)]]


def test_sampled_log_probabilities_equal_those_of_teacher_forcing(policy, params):
    """Also checks that rows with a shared prefix equal those of a sampler that shares nothing."""
    episodes = [(task, sample) for task in range(2) for sample in range(2)]
    sampler = make_sampler(policy, params)
    played = plain.play(sampler, episodes, turns=2)
    assert sampler.statistics.copied > 0
    for record in played.values():
        expected = plain.teacher_forced(policy, params, record.tokens)
        mask = np.array(record.is_action)
        np.testing.assert_allclose(np.array(record.logprobs)[mask], expected[mask], atol=ATOL)
    alone = plain.play(make_sampler(policy, params), episodes[1:2], turns=2)
    assert alone[episodes[1]] == played[episodes[1]]


@pytest.mark.parametrize("kept", [0, 20, -1], ids=["nothing", "part of the prompt", "all but one"])
def test_a_row_continues_after_the_tokens_that_it_keeps(policy, params, kept):
    sampler = make_sampler(policy, params)
    row = sampler.open(plain.KEYS[0], plain.OPTIONS)
    start = sum(plain.prompt(0), [])
    sampler.prefill(row, plain.prompt(0))
    tokens = [*start, *one_turn(sampler).tokens.tolist()]
    kept = kept % len(tokens) if kept < 0 else kept
    sampler.rewind(row, kept)
    assert sampler.remaining_tokens(row) == plain.OPTIONS.max_tokens - kept
    sampler.prefill(row, [[11, 12, 13]])
    assert_teacher_forced(policy, params, [*tokens[:kept], 11, 12, 13], one_turn(sampler))


@pytest.mark.parametrize("surplus", [0, 1, 3])
def test_a_row_continues_after_a_turn_that_was_cut(policy, params, surplus):
    sampler = make_sampler(policy, params)
    row = sampler.open(plain.KEYS[0], dataclasses.replace(plain.OPTIONS, max_turn_tokens=5))
    start = sum(plain.prompt(0), [])
    sampler.prefill(row, plain.prompt(0))
    count = len(one_turn(sampler).tokens) - surplus
    assert count > 0
    cut = sampler.cut_turn(row, count)
    sampler.prefill(row, [[11, 12, 13]])
    prompt = [*start, *cut.tokens.tolist(), 11, 12, 13]
    assert_teacher_forced(policy, params, prompt, one_turn(sampler))


def test_a_row_that_was_cut_and_then_rewound_continues(policy, params):
    sampler = make_sampler(policy, params)
    row = sampler.open(plain.KEYS[0], plain.OPTIONS)
    start = sum(plain.prompt(0), [])
    sampler.prefill(row, plain.prompt(0))
    count = len(one_turn(sampler).tokens) - 2
    sampler.cut_turn(row, count)
    sampler.rewind(row, len(start) - 1)
    sampler.prefill(row, [[11]])
    assert_teacher_forced(policy, params, [*start[:-1], 11], one_turn(sampler))


def test_a_row_does_not_copy_the_state_of_a_row_that_has_decoded(policy, params):
    sampler = make_sampler(policy, params)
    first = sampler.open(plain.KEYS[0], plain.OPTIONS)
    sampler.prefill(first, plain.prompt(0))
    one_turn(sampler)
    second = sampler.open(plain.KEYS[1], plain.OPTIONS)
    sampler.prefill(second, plain.prompt(0))
    assert_teacher_forced(policy, params, sum(plain.prompt(0), []), one_turn(sampler))
    assert sampler.statistics.copied == 0
