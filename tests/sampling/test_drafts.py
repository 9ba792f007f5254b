"""Drafts: the sampled tokens are those of decoding without them, in fewer steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.mesh.sharding import DECODE_RULES, Layout, make_mesh
from agentgym_jax.models.policy import Policy
from agentgym_jax.sampling import decode, drafts
from agentgym_jax.sampling.adjusting import LogitOptions
from agentgym_jax.sampling.options import SamplingOptions
from tests.builders import decoder_config, hybrid_config, make_sampler
from tests.sampling import played_rows as plain
from tests.sampling import test_adjusting as adjusting

EPISODES = plain.EPISODES[:8]
LONG_TURNS = SamplingOptions(temperature=0.5, max_turn_tokens=50, max_tokens=250)
PERIOD = 12  # tokens of the cycle that `cyclic` continues


@pytest.fixture(scope="module")
def policy():
    return Policy(dataclasses.replace(plain.CONFIG, num_layers=1))


@pytest.fixture(scope="module")
def params(policy):
    # With these weights the context changes the tokens, and rows repeat some of their tokens.
    return jax.tree.map(lambda x: 4.0 * x, policy.init(jax.random.key(0)))


@pytest.fixture(scope="module")
def cyclic():
    """Returns a policy that continues 0, 1, ... 11, 0, ... from the last token, and its weights."""
    policy = Policy(decoder_config(vocab_size=16, num_layers=1, tie_embeddings=False))
    params = jax.tree.map(jnp.zeros_like, policy.init(jax.random.key(0)))
    width = policy.config.hidden_size
    params["embed"]["embedding"] = jnp.eye(16, width)
    params["final_norm"]["scale"] = jnp.ones(width)
    successor = (np.arange(16) + 1) % PERIOD
    kernel = np.zeros((width, 16), np.float32)
    kernel[np.arange(16), successor] = 9.0
    params["unembed"]["kernel"] = jnp.asarray(kernel)
    return policy, params


def tokens_of(played):
    return {episode: record.tokens for episode, record in played.items()}


def play(policy, params, options, **choices):
    """Plays the episodes; returns them and the tokens per decode step of a row."""
    sampler = plain.make_sampler(policy, params, **choices)
    played = plain.play(sampler, EPISODES, turns=2, options=options)
    return played, sampler.statistics.tokens_per_step


def sample_turn(sampler, prompt, options, key=plain.KEYS[0]):
    row = sampler.open(key, options)
    sampler.prefill(row, [prompt])
    turns = []
    while not turns:
        turns = sampler.step()
    sampler.close(row)
    return turns[0]


def make_cyclic(cyclic, *, stop=15):
    return make_sampler(
        *cyclic, [stop], rows=1, cache_length=64, buckets=((16, 1),), draft_tokens=6
    )


def test_a_draft_continues_the_latest_of_the_longest_earlier_occurrences():
    rows = [
        [1, 2, 3, 4, 9, 2, 3, 5, 6, 1, 2, 3],  # three tokens match at 2, and two at 6
        [8, 2, 3, 4, 9, 2, 3, 5, 6, 7, 2, 3],  # the later of two matches
        [1, 3, 4, 5, 6, 7, 8, 9, 3, 10, 11, 3],  # the later of two matches of one token
        [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4],  # continues beyond the known tokens
    ]
    undefined = [[2, 3]] * 4  # behind the last known token
    tokens = np.concatenate([rows, undefined], axis=1).astype(np.int32)
    draft = drafts.propose(tokens, np.full(4, 11, np.int32), 3)
    np.testing.assert_array_equal(draft, [[4, 9, 2], [5, 6, 7], [10, 11, 3], [4, 4, 4]])


@pytest.mark.parametrize(
    "temperature, choices",
    [
        (0.5, dict(draft_tokens=3)),
        pytest.param(0.0, dict(draft_tokens=5, decode_rows=2), marks=pytest.mark.slow),
        pytest.param(1.0, dict(draft_tokens=1, rows=3), marks=pytest.mark.slow),
        pytest.param(0.3, dict(draft_tokens=7, follows_load=True), marks=pytest.mark.slow),
    ],
)
def test_drafts_change_no_token_and_save_steps(policy, params, temperature, choices):
    options = dataclasses.replace(LONG_TURNS, temperature=temperature)
    base, one = play(policy, params, options)
    drafted, rate = play(policy, params, options, **choices)
    assert one == 1.0 < rate < choices["draft_tokens"] + 1
    assert tokens_of(drafted) == tokens_of(base)
    for episode, record in drafted.items():
        np.testing.assert_allclose(record.logprobs, base[episode].logprobs, atol=1e-4)
        # A key or value of a rejected token would change these.
        expected = plain.teacher_forced(policy, params, record.tokens, temperature or 1.0)
        mask = np.array(record.is_action)
        np.testing.assert_allclose(np.array(record.logprobs)[mask], expected[mask], atol=1e-4)


@pytest.mark.slow
def test_drafts_keep_the_tokens_of_top_k_and_top_p(policy, params):
    options = dataclasses.replace(LONG_TURNS, top_k=20, top_p=0.9)
    base, _ = play(policy, params, options)
    drafted, _ = play(policy, params, options, draft_tokens=3)
    assert tokens_of(drafted) == tokens_of(base)


@pytest.mark.slow
def test_drafted_samples_do_not_depend_on_order_delays_or_the_length_of_a_call(policy, params):
    options = dict(options=LONG_TURNS, turns=2)
    base = plain.play(plain.make_sampler(policy, params, draft_tokens=3), EPISODES, **options)
    sampler = plain.make_sampler(
        policy, params, draft_tokens=3, decode_steps=3, return_after_finished=1
    )
    delay = lambda episode: (episode[0] * 5 + episode[1] * 3) % 7
    assert base == plain.play(sampler, EPISODES[::-1], delay=delay, **options)


def test_a_stop_token_inside_a_draft_ends_the_turn_and_the_next_turn_goes_on(cyclic):
    sampler = make_cyclic(cyclic, stop=7)
    options = SamplingOptions(temperature=0.0, max_turn_tokens=20, max_tokens=60)
    row = sampler.open(plain.KEYS[0], options)
    for _ in range(2):  # in the first turn 7 is the second token of a draft
        sampler.prefill(row, [[3, 4, 5, 6, 7, 8, 9, 3, 4, 5]])
        (turn,) = sampler.step()
        assert (turn.tokens.tolist(), turn.is_stopped) == ([6, 7], True)
    assert sampler.statistics.busy_row_steps == 2


def test_drafts_repeat_tokens_that_earlier_calls_sampled(cyclic):
    sampler = make_cyclic(cyclic)
    options = SamplingOptions(temperature=0.0, max_turn_tokens=3 * PERIOD, max_tokens=60)
    sampled = sample_turn(sampler, [0], options)
    assert sampled.tokens.tolist() == [(1 + i) % PERIOD for i in range(3 * PERIOD)]
    assert sampler.statistics.busy_row_steps == PERIOD + -(-2 * PERIOD // 7)


@pytest.mark.parametrize("limit", ["turn", "episode"])
def test_a_token_limit_inside_a_draft_is_kept_exactly(cyclic, limit):
    sampler = make_cyclic(cyclic)
    prompt = list(range(PERIOD)) + [0, 1, 2]
    for count in range(1, 12):
        turn, episode = (count, 60) if limit == "turn" else (40, len(prompt) + count)
        options = SamplingOptions(temperature=0.0, max_turn_tokens=turn, max_tokens=episode)
        sampled = sample_turn(sampler, prompt, options)
        assert sampled.tokens.tolist() == [(3 + i) % PERIOD for i in range(count)]
        assert not sampled.is_stopped
    assert sampler.statistics.tokens_per_step > 3


def test_a_cut_turn_and_a_rewound_row_continue_from_the_tokens_that_remain(policy, params):
    turns = []
    for draft_tokens in (0, 3):
        sampler = plain.make_sampler(policy, params, draft_tokens=draft_tokens)
        row = sampler.open(plain.KEYS[0], LONG_TURNS)
        sampler.prefill(row, plain.prompt(0))
        sampler.begin(max_steps=9)
        sampler.finish()
        assert len(sampler.partial_turn(row)[0]) >= 4
        sampler.cut_turn(row, 4)
        for kept in (None, 20):
            if kept:
                sampler.rewind(row, kept)
            sampler.prefill(row, [[11, 12, 13]])
            turn = []
            while not turn:
                turn = sampler.step()
            turns.append(turn[0].tokens.tolist())
    assert turns[:2] == turns[2:]


@pytest.mark.slow
def test_rows_with_changed_logits_decode_without_drafts_beside_others(policy, params):
    turns = []
    for draft_tokens in (0, 3):
        sampler = plain.make_sampler(policy, params, draft_tokens=draft_tokens)
        changes = {0: None, 1: LogitOptions(logit_bias={11: 3.0}), 2: adjusting.ALL, 3: None}
        turns.append(adjusting.play(sampler, changes))
    for number, turn in turns[0].items():
        assert turn.tokens.tolist() == turns[1][number].tokens.tolist()


def test_drafts_add_no_program_to_a_run(policy, params):
    decode.decode_chunk.clear_cache()
    drafts.decode_chunk.clear_cache()
    sampler = plain.make_sampler(policy, params, draft_tokens=3)
    sampler.warm_up()
    plain.play(sampler, EPISODES, turns=2)
    assert (decode.decode_chunk._cache_size(), drafts.decode_chunk._cache_size()) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [dict(data=2), dict(data=2, tensor=2)], ids=str)
def test_drafts_on_several_devices_change_no_token(policy, params, sizes):
    count = int(np.prod(list(sizes.values())))
    mesh = make_mesh(**dict(data=1, fsdp=1, tensor=1) | sizes, devices=jax.devices()[:count])
    layout = Layout(mesh, DECODE_RULES)
    many = dataclasses.replace(policy, layout=layout)
    spread = jax.device_put(params, many.param_shardings(layout))
    base, _ = play(many, spread, LONG_TURNS)
    drafted, rate = play(many, spread, LONG_TURNS, draft_tokens=3)
    assert rate > 1.0
    assert tokens_of(drafted) == tokens_of(base)


def test_drafts_of_a_recurrent_model_are_refused():
    policy = Policy(hybrid_config(vocab_size=plain.VOCAB, num_layers=2))
    with pytest.raises(ValueError, match=r"sampler.draft_tokens=2: .* set 0"):
        plain.make_sampler(policy, None, draft_tokens=2)
