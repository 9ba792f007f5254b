"""The sampler: teacher forcing, the live cache, shared prefixes and keyed randomness."""

import dataclasses

import jax
import numpy as np
import pytest

from agentgym_jax.mesh.sharding import tracing_for
from agentgym_jax.models.policy import Policy, make_sampler_params
from agentgym_jax.sampling import decode
from agentgym_jax.sampling.options import (
    SamplingOptions,
    check_buckets,
    default_buckets,
    episode_key,
)
from tests.builders import dequantize
from tests.sampling.played_rows import (
    CONFIG,
    EPISODES,
    KEYS,
    OPTIONS,
    VOCAB,
    make_sampler,
    play,
    prompt,
    teacher_forced,
)


@pytest.fixture(scope="module")
def policy():
    return Policy(CONFIG)


@pytest.mark.parametrize("rows", [6])
def test_rows_that_follow_the_load_sample_the_same_tokens(policy, params, rows):
    fixed, following = (
        play(make_sampler(policy, params, rows=rows, follows_load=follows), EPISODES)
        for follows in (False, True)
    )
    for episode, record in fixed.items():
        assert record.tokens == following[episode].tokens
        np.testing.assert_allclose(record.logprobs, following[episode].logprobs, atol=1e-5)


def test_few_active_rows_are_decoded_alone(policy, params):
    sampler = make_sampler(policy, params, follows_load=True)
    play(sampler, EPISODES[:1])
    assert sampler.statistics.occupancy == 1.0


def test_a_warm_sampler_compiles_nothing_more(policy, params):
    programs = (decode.prefill, decode.decode_chunk, decode.copy_rows)
    shapes = dict(rows=5, buckets=((4, 1), (64, 2)), follows_load=True)
    sampler = make_sampler(policy, params, **shapes)
    sampler.warm_up()
    before = [program._cache_size() for program in programs]
    played = play(sampler, EPISODES)
    assert [program._cache_size() for program in programs] == before
    cold = play(make_sampler(policy, params, **shapes), EPISODES)
    assert {e: r.tokens for e, r in played.items()} == {e: r.tokens for e, r in cold.items()}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampled_log_probabilities_equal_those_of_teacher_forcing(policy, params, temperature):
    options = dataclasses.replace(OPTIONS, temperature=temperature)
    played = play(make_sampler(policy, params), EPISODES, options=options)
    for record in played.values():
        expected = teacher_forced(policy, params, record.tokens, temperature)
        mask = np.array(record.is_action)
        assert mask.sum() >= 3
        np.testing.assert_allclose(np.array(record.logprobs)[mask], expected[mask], atol=2e-5)


def test_int8_weights_record_the_log_probabilities_of_the_weights_that_sampled(policy, params):
    quantizing = dataclasses.replace(policy, is_int8=True)
    int8 = make_sampler_params(None)(quantizing, params)
    played = play(make_sampler(quantizing, int8), EPISODES)
    gaps = []
    for record in played.values():
        mask = np.array(record.is_action)
        found = np.array(record.logprobs)[mask]
        expected = teacher_forced(policy, dequantize(int8), record.tokens)[mask]
        np.testing.assert_allclose(found, expected, atol=2e-5)
        gaps += list(np.abs(found - teacher_forced(policy, params, record.tokens)[mask]))
    assert 1e-4 < np.mean(gaps) < 0.1


def test_a_row_with_an_int8_cache_samples_the_same_alone_and_after_a_copied_prefix(policy, params):
    rounding = dataclasses.replace(policy, has_int8_cache=True)
    sampler = make_sampler(rounding, params)
    played = play(sampler, EPISODES)
    assert sampler.statistics.copied > 0
    gaps = []
    for episode in EPISODES[::3]:
        alone = play(make_sampler(rounding, params), [episode])[episode]
        assert alone.tokens == played[episode].tokens
        np.testing.assert_allclose(alone.logprobs, played[episode].logprobs, atol=1e-5)
        mask = np.array(alone.is_action)
        exact = teacher_forced(policy, params, alone.tokens)[mask]
        gaps += list(np.abs(np.array(alone.logprobs)[mask] - exact))
    assert 1e-4 < np.mean(gaps) < 0.1


def test_greedy_rows_take_the_argmax_of_teacher_forcing(policy, params):
    options = dataclasses.replace(OPTIONS, temperature=0.0)
    record = play(make_sampler(policy, params), [(0, 0)], options=options)[(0, 0)]
    for least in (dict(temperature=1e-37), dict(temperature=1.0, top_p=1e-50)):
        sampled = dataclasses.replace(OPTIONS, **least)
        assert play(make_sampler(policy, params), [(0, 0)], options=sampled)[(0, 0)].tokens == (
            record.tokens
        )
    best = teacher_forced(policy, params, record.tokens)
    for t in np.flatnonzero(record.is_action):
        for other in range(0, VOCAB, 8):
            changed = record.tokens[:t] + [other]
            assert teacher_forced(policy, params, changed)[t] <= best[t] + 1e-5


def test_samples_do_not_depend_on_arrival_order_delays_or_other_episodes(policy, params):
    base = play(make_sampler(policy, params), EPISODES)
    slow = play(
        make_sampler(policy, params),
        EPISODES[::-1],
        delay=lambda episode: (episode[0] * 5 + episode[1] * 3) % 7,
    )
    alone = {}
    for episode in EPISODES[::5]:
        alone |= play(make_sampler(policy, params), [episode])
    for episode, record in base.items():
        assert record == slow[episode]
    for episode, record in alone.items():
        assert record == base[episode]


def test_samples_do_not_depend_on_the_length_of_a_decode_call(policy, params):
    base = play(make_sampler(policy, params), EPISODES)
    assert base == play(
        make_sampler(policy, params, decode_steps=3, return_after_finished=1), EPISODES
    )


@pytest.mark.slow
def test_samples_do_not_depend_on_order_with_fewer_decode_slots_than_rows(policy, params):
    def sampler():
        return make_sampler(policy, params, decode_rows=2, return_after_finished=1)

    base = play(sampler(), EPISODES)
    slow = play(sampler(), EPISODES[::-1], delay=lambda episode: sum(episode) % 5)
    assert base == slow
    assert base[EPISODES[0]] == play(sampler(), EPISODES[:1])[EPISODES[0]]
    for episode, record in play(make_sampler(policy, params), EPISODES).items():
        assert base[episode].tokens == record.tokens


def test_waiting_rows_use_no_decode_slot(policy, params):
    delay = dict(delay=lambda episode: 3)
    narrow = make_sampler(policy, params, decode_rows=2, return_after_finished=1)
    wide = make_sampler(policy, params, return_after_finished=1)
    play(narrow, EPISODES, **delay)
    play(wide, EPISODES, **delay)
    assert narrow.statistics.sampled == wide.statistics.sampled
    assert narrow.statistics.occupancy > 0.9 > wide.statistics.occupancy


@pytest.mark.parametrize(
    "options", [{}, dict(decode_rows=2, return_after_finished=1)], ids=["all", "places"]
)
def test_rows_opened_while_the_device_decodes_sample_the_same_tokens(policy, params, options):
    base = play(make_sampler(policy, params, **options), EPISODES)
    overlapped = play(make_sampler(policy, params, **options), EPISODES, is_overlapped=True)
    assert base == overlapped


def test_a_row_closed_while_the_device_decodes_is_dropped_and_may_be_opened_again(policy, params):
    sampler = make_sampler(policy, params, decode_steps=16, return_after_finished=6)
    first = sampler.open(KEYS[0], OPTIONS)
    sampler.prefill(first, prompt(0))
    sampler.begin()
    sampler.close(first)
    assert sampler.open(KEYS[1], OPTIONS) == first
    sampler.prefill(first, prompt(1))
    assert not sampler.finish()
    (turn,) = sampler.step()
    fresh = make_sampler(policy, params, decode_steps=16, return_after_finished=6)
    fresh.prefill(fresh.open(KEYS[1], OPTIONS), prompt(1))
    np.testing.assert_array_equal(turn.tokens, fresh.step()[0].tokens)


def test_no_call_or_weight_update_begins_before_a_running_call_is_finished(policy, params):
    sampler = make_sampler(policy, params)
    assert not sampler.finish()
    sampler.prefill(sampler.open(KEYS[0], OPTIONS), prompt(0))
    sampler.begin()
    with pytest.raises(ValueError, match="finish it first"):
        sampler.begin()
    with pytest.raises(ValueError, match="finish it first"):
        sampler.set_params(params, version=4)
    sampler.finish()
    assert not sampler.is_running


def test_samples_of_a_task_differ_and_another_seed_gives_other_tokens(policy, params):
    played = play(make_sampler(policy, params), EPISODES)
    assert len({tuple(played[(0, s)].tokens) for s in range(4)}) == 4
    keys = {tuple(episode_key(*k)) for k in [(0, 0, "a", 0), (1, 0, "a", 0), (0, 1, "a", 0)]}
    assert len(keys) == 3


@pytest.mark.slow
def test_a_shared_prefix_is_computed_once_and_its_copies_are_identical(policy, params):
    sampler = make_sampler(policy, params, rows=4)
    together = play(sampler, [(0, s) for s in range(4)], turns=1)
    prompt_tokens = sum(len(c) for c in prompt(0)) - 1
    assert sampler.statistics.prefilled == prompt_tokens
    assert sampler.statistics.copied == 3 * prompt_tokens
    for sample in range(4):
        assert (
            together[(0, sample)]
            == play(make_sampler(policy, params, rows=4), [(0, sample)], turns=1)[(0, sample)]
        )


@pytest.mark.slow
def test_a_row_that_waits_for_a_copy_is_not_a_source_of_copies(policy, params):
    """Checks a prefix that is computed in the last row; all other rows must copy it from there."""
    sampler = make_sampler(policy, params, rows=8)
    keys = [episode_key(0, 0, "t_0", s) for s in range(8)]
    rows = [sampler.open(key, OPTIONS) for key in keys]
    for row in rows[::-1]:
        sampler.prefill(row, prompt(0))
    turns = []
    while len(turns) < 8:
        turns += sampler.step()
    alone = [
        play(make_sampler(policy, params, rows=8), [(0, s)], turns=1)[(0, s)] for s in range(8)
    ]
    start = sum(len(c) for c in prompt(0))
    for turn in turns:
        assert turn.tokens.tolist() == alone[rows.index(turn.row)].tokens[start:]
        assert turn.logprobs.tolist() == alone[rows.index(turn.row)].logprobs[start:]


def test_rows_that_share_no_prefix_cause_no_copy(policy, params, monkeypatch):
    sampler = make_sampler(policy, params)
    monkeypatch.setattr(decode, "copy_rows", None)  # a call would fail
    play(sampler, [(0, 0)], turns=2)
    with pytest.raises(TypeError):  # two rows of a task share their prompt
        play(sampler, [(0, 1), (0, 2)], turns=1)


def test_tasks_share_their_common_first_chunk(policy, params):
    sampler = make_sampler(policy, params)
    play(sampler, [(0, 0), (1, 0), (2, 0)], turns=1)
    assert sampler.statistics.copied == 2 * len(prompt(0)[0])


def test_every_token_passes_through_the_model_once(policy, params):
    sampler = make_sampler(policy, params)
    played = play(sampler, [(t, 0) for t in range(9)], turns=4)
    kept = sum(len(r.tokens) for r in played.values())
    stats = sampler.statistics
    # Every token is an input once, except the last token of each episode, which has no next token.
    assert stats.prefilled + stats.sampled + stats.copied == kept - len(played)
    assert stats.sampled == sum(sum(r.is_action) for r in played.values())


def test_long_prompts_are_cut_into_slices_that_share_a_call(policy, params):
    """Checks a prefill of 89 tokens in slices of 16, with 4 slices per call.

    There are 6 slices, of which the last has 9 tokens.
    """
    sampler = make_sampler(policy, params, buckets=((16, 4),))
    prompts = {row: [[9 + row] * 90] for row in (sampler.open(k, OPTIONS) for k in KEYS[:2])}
    for row, chunks in prompts.items():
        sampler.prefill(row, chunks)
    turns = []
    while len(turns) < 2:
        turns += sampler.step()
    assert sampler.statistics.prefill_calls == 3
    for turn in turns:
        tokens = prompts[turn.row][0] + turn.tokens.tolist()
        expected = teacher_forced(policy, params, tokens)[90:]
        np.testing.assert_allclose(turn.logprobs, expected, atol=2e-5)


def test_new_weights_stop_the_sharing_of_prefixes(policy, params):
    sampler = make_sampler(policy, params)
    before = play(sampler, [(0, 0)], turns=1)
    other = jax.tree.map(lambda x: 0.5 * x, params)
    sampler.set_params(other, version=3)
    after = play(sampler, [(0, 0)], turns=1)
    fresh = play(make_sampler(policy, other), [(0, 0)], turns=1)
    assert after == fresh
    assert after != before


def test_a_released_sampler_holds_no_arrays_and_samples_the_same_afterwards(policy, params):
    sampler = make_sampler(policy, params)
    before = play(sampler, EPISODES[:2])
    arrays = {id(x) for x in jax.live_arrays()}
    sampler.release()
    freed = [x for x in jax.live_arrays() if x.shape[:2] == (CONFIG.num_layers, 6)]
    assert not freed and len(arrays) > len(jax.live_arrays())
    with pytest.raises(ValueError, match="no weights yet"):
        sampler.begin()
    sampler.set_params(params, version=3)
    assert play(sampler, EPISODES[:2]) == before


def test_a_sampler_with_an_open_row_is_not_released(policy, params):
    sampler = make_sampler(policy, params)
    row = sampler.open(KEYS[0], OPTIONS)
    with pytest.raises(ValueError, match="close them first"):
        sampler.release()
    sampler.close(row)
    sampler.release()


def test_turn_and_episode_limits_are_kept_exactly(policy, params):
    sampler = make_sampler(policy, params)
    options = SamplingOptions(temperature=1.0, max_turn_tokens=5, max_tokens=33)
    row = sampler.open(episode_key(0, 0, "x", 0), options)
    sampler.prefill(row, [[9] * 30])
    turns = []
    while not turns:
        turns = sampler.step()
    assert len(turns[0].tokens) <= 3
    if not turns[0].is_stopped:
        assert len(turns[0].tokens) == 3
        assert sampler.remaining_tokens(row) == 0


def test_a_prefill_beyond_max_tokens_is_refused(policy, params):
    sampler = make_sampler(policy, params)
    row = sampler.open(
        episode_key(0, 0, "x", 0),
        SamplingOptions(temperature=1.0, max_turn_tokens=5, max_tokens=20),
    )
    with pytest.raises(ValueError, match="max_tokens=20"):
        sampler.prefill(row, [[9] * 20])


def test_many_turns_do_not_compile_further_programs(policy, params):
    sampler = make_sampler(policy, params)
    programs = (decode.prefill, decode.decode_chunk, decode.copy_rows)
    count_programs = lambda: sum(program._cache_size() for program in programs)
    for program in programs:
        program.clear_cache()
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: (
            compiled.append(event)
            if event == "/jax/core/compile/backend_compile_duration"
            else None
        )
    )
    play(sampler, [(t, s) for t in range(4) for s in range(3)], turns=3)
    assert 3 <= count_programs() <= len(sampler.buckets) + 2
    compiled.clear()
    play(sampler, [(t, s) for t in range(20, 30) for s in range(2)], turns=5)
    assert not compiled


@pytest.mark.parametrize("kept", [0, 1, 9, 20, 34])
def test_a_row_continues_after_the_tokens_that_it_keeps(policy, params, kept):
    sampler = make_sampler(policy, params)
    row = sampler.open(KEYS[0], dataclasses.replace(OPTIONS, max_turn_tokens=8))
    start = sum(prompt(0), [])
    sampler.prefill(row, prompt(0))
    turns = []
    while not turns:
        turns = sampler.step()
    tokens = [*start, *turns[0].tokens.tolist()]
    kept = min(kept, len(tokens) - 1)
    sampler.rewind(row, kept)
    sampler.set_options(row, KEYS[1], OPTIONS)
    assert sampler.remaining_tokens(row) == OPTIONS.max_tokens - kept
    sampler.prefill(row, [[11, 12, 13]])
    turns = []
    while not turns:
        turns = sampler.step()
    sequence = [*tokens[:kept], 11, 12, 13, *turns[0].tokens.tolist()]
    expected = teacher_forced(policy, params, sequence)[-len(turns[0].tokens) :]
    np.testing.assert_allclose(turns[0].logprobs, expected, atol=2e-5)
    # Another row may copy only prefixes that the row still has.
    other = sampler.open(KEYS[2], OPTIONS)
    sampler.prefill(other, prompt(0))
    turns = []
    while not turns:
        turns = sampler.step()
    sequence = [*start, *turns[0].tokens.tolist()]
    expected = teacher_forced(policy, params, sequence)[len(start) :]
    np.testing.assert_allclose(turns[0].logprobs, expected, atol=2e-5)


def test_a_row_cannot_keep_more_than_it_has(policy, params):
    sampler = make_sampler(policy, params)
    row = sampler.open(KEYS[0], OPTIONS)
    sampler.prefill(row, prompt(0))
    with pytest.raises(ValueError, match="cannot keep 30 of 30"):
        sampler.rewind(row, 30)


def test_one_token_prompts_need_no_prefill(policy, params):
    sampler = make_sampler(policy, params)
    row = sampler.open(episode_key(0, 0, "x", 0), OPTIONS)
    sampler.prefill(row, [[9]])
    turns = []
    while not turns:
        turns = sampler.step()
    assert sampler.statistics.prefilled == 0
    expected = teacher_forced(policy, params, [9, *turns[0].tokens.tolist()])[1:]
    np.testing.assert_allclose(turns[0].logprobs, expected, atol=2e-5)


@pytest.mark.parametrize("buckets", [((8, 2), (8, 4)), ((512, 2),), ((8, 0),)])
def test_invalid_buckets_are_refused(policy, params, buckets):
    with pytest.raises(ValueError, match="sampler.buckets"):
        make_sampler(policy, params, buckets=buckets)


def test_a_sampler_without_truncation_samples_the_same_and_refuses_top_k_and_top_p(policy, params):
    episodes = [(0, 0), (1, 0)]
    expected = play(make_sampler(policy, params), episodes)
    sampler = make_sampler(policy, params, truncates=False)
    assert play(sampler, episodes) == expected
    for cut in (dict(top_k=3), dict(top_p=0.9)):
        with pytest.raises(ValueError, match="made for none"):
            sampler.open(KEYS[0], dataclasses.replace(OPTIONS, **cut))


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
@pytest.mark.parametrize(("rows", "cache_length"), [(1, 20), (64, 4096), (256, 100)])
def test_default_buckets_fit_every_cache(platform, rows, cache_length):
    with tracing_for(platform):
        buckets = default_buckets(rows, cache_length)
    assert check_buckets(buckets, cache_length) == buckets
