import json
import math
import pathlib

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_jax.episodes.batch import pack
from agentgym_jax.learner import optimizer, train_state
from agentgym_jax.learner.preference import (
    LOSSES,
    Member,
    conversation_sums,
    make_preference_update,
    pack_pairs,
    put_pairs,
)
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from agentgym_jax.models.policy import Policy
from tests.learner.learner_parts import (
    CONFIG,
    OPTIMIZER,
    assert_close,
    first_gradient,
    first_params,
    on_host,
)

pytestmark = pytest.mark.usefixtures("compiled_fastest")

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "preference" / "golden.json"
BETA = 0.3
ROW = 32


def member(rng, longest=24):
    n = int(rng.integers(4, longest + 1))
    mask = rng.random(n) < 0.6
    mask[0], mask[-1] = False, True
    return Member(
        tokens=rng.integers(0, CONFIG.vocab_size, n).astype(np.int32),
        action_mask=mask,
        reference_logprobs=(mask * rng.normal(-4.16, 0.3, n)).astype(np.float32),
    )


def some_pairs(count=6, seed=0):
    rng = np.random.default_rng(seed)
    return [(member(rng), member(rng)) for _ in range(count)]


def packed(pairs, micro_rows=4, length_normalised=False):
    return pack_pairs(
        pairs, row_length=ROW, micro_rows=micro_rows, length_normalised=length_normalised
    )


class Learner:
    def __init__(self, layout=None, likelihood_coef=0.0):
        self.layout = layout
        self.policy = Policy(CONFIG, layout=layout)
        self.optimizer = optimizer.make_optimizer(**OPTIMIZER)
        self._update = make_preference_update(
            self.policy,
            self.optimizer,
            LOSSES["sigmoid"],
            beta=BETA,
            logprob_chunk=128,
            likelihood_coef=likelihood_coef,
            layout=layout,
        )
        self._first = train_state.create(self.policy, self.optimizer, first_params(), layout)

    def step(self, batch, state=None):
        """Runs one step; returns the state, and the metrics as host arrays."""
        if state is None:
            # a copy, because an update donates its state's arrays
            state = jax.tree.map(jnp.array, self._first)
        state, metrics = self._update(state, put_pairs(batch, self.layout))
        return state, jax.tree.map(float, metrics)

    def gradient(self, batch):
        """Returns the gradient of one step from the first state, and the step's metrics."""
        state, metrics = self.step(batch)
        return first_gradient(state), metrics


@pytest.fixture(scope="module")
def learner():
    return Learner()


def rows(pairs):
    """Returns tokens, segments, mask and reference scores, with one conversation per row.

    Rows alternate between chosen and rejected conversations.
    """
    members = [one for pair in pairs for one in pair]

    def array(values):
        return np.stack([np.pad(v, (0, ROW - len(v))) for v in values])

    return (
        array([m.tokens for m in members]),
        array([np.ones(len(m.tokens), np.int32) for m in members]),
        array([m.action_mask for m in members]),
        array([m.reference_logprobs for m in members]),
    )


@jax.jit
def logprobs(params, tokens_BT, segments_BT):
    """Returns the log-probability of every token, except the first of a row, from the full logits."""
    policy = Policy(CONFIG)
    positions_BT = jnp.broadcast_to(jnp.arange(ROW), tokens_BT.shape)
    hidden = policy.hidden(params, tokens_BT, positions_BT, segments_BT)
    logits = jax.nn.log_softmax(policy.logits(params, hidden).astype(jnp.float32))
    given = jnp.take_along_axis(logits[:, :-1], tokens_BT[:, 1:, None], axis=-1)[:, :, 0]
    return jnp.pad(given, ((0, 0), (1, 0)))


def on_policy(pairs):
    """Returns pairs whose reference scores come from the policy itself."""
    tokens, segments, mask, _ = rows(pairs)
    scored = np.where(mask, logprobs(first_params(), tokens, segments), 0.0).astype(np.float32)
    made = []
    for row, one in zip(scored, (one for pair in pairs for one in pair), strict=True):
        made.append(Member(one.tokens, one.action_mask, row[: len(one.tokens)]))
    return list(zip(made[::2], made[1::2], strict=True))


@pytest.mark.slow
def test_an_unchanged_policy_has_loss_log_2_and_the_published_gradient(learner):
    """Checks the loss and the paper's gradient at h = 0.

    The gradient is -beta E[sigmoid(-beta h) (grad log pi(chosen) - grad log pi(rejected))].
    """
    pairs = on_policy(some_pairs())

    tokens, segments, mask, _ = rows(pairs)
    sign = np.tile([1.0, -1.0], len(pairs))[:, None]

    def loss(params):
        total = jnp.sum(jnp.where(mask, sign * logprobs(params, tokens, segments), 0.0))
        return -BETA * 0.5 * total / len(pairs)

    expected = jax.tree.map(np.asarray, jax.jit(jax.grad(loss))(first_params()))
    found, metrics = learner.gradient(packed(pairs))
    np.testing.assert_allclose(metrics["loss"], np.log(2), rtol=1e-6)
    assert_close(found, expected, tolerance=1e-4)
    assert metrics["margin"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("loss", ["sigmoid", "ipo"])
@pytest.mark.parametrize("normalised", [False, True])
def test_losses_agree_with_the_transcription(loss, normalised):
    golden = {k: np.asarray(v) for k, v in json.loads(GOLDEN.read_text()).items()}
    mask, log_ratio = golden["mask"], golden["logprob"] - golden["reference"]
    sequences = [
        {
            "tokens": np.zeros(len(m), np.int32),
            "action_mask": m,
            "weights": m / m.sum() if normalised else m,
            "advantages": r,
        }
        for m, r in zip(mask.reshape(-1, 7), log_ratio.reshape(-1, 7), strict=True)
    ]
    batch = pack(sequences, row_length=16, rows_multiple=1)
    values = jnp.asarray(batch.weights * batch.advantages)
    sums = conversation_sums(values, jnp.asarray(batch.sequence_ids), 10).reshape(5, 2)
    found = LOSSES[loss](sums[:, 0] - sums[:, 1], float(golden["beta"]))
    name = {"sigmoid": "dpo", "ipo": "ipo"}[loss] + ("_normalised" if normalised else "")
    np.testing.assert_allclose(found, golden[name], rtol=2e-5)


def test_metrics_match_hand_computed_values(learner):
    pairs = some_pairs()
    _, metrics = learner.step(packed(pairs))
    tokens, segments, mask, reference = rows(pairs)
    logprob = np.where(mask, logprobs(first_params(), tokens, segments), 0.0)
    chosen, rejected = (logprob - reference).sum(1).reshape(-1, 2).T
    chosen_logprob, rejected_logprob = logprob.sum(1).reshape(-1, 2).T
    h = chosen - rejected
    expected = {
        "loss": np.log1p(np.exp(-BETA * h)).mean(),
        "accuracy": (h > 0).mean(),
        "margin": BETA * h.mean(),
        "chosen_reward": BETA * chosen.mean(),
        "rejected_reward": BETA * rejected.mean(),
        "chosen_logprob": chosen_logprob.mean(),
        "rejected_logprob": rejected_logprob.mean(),
    }
    assert 0 < expected["accuracy"] < 1
    assert {k: metrics[k] for k in expected} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("normalised", [False, True])
def test_the_likelihood_term_is_the_mean_over_the_chosen_tokens(learner, normalised):
    pairs = some_pairs()
    tokens, segments, mask, _ = rows([(chosen, chosen) for chosen, _ in pairs])

    def likelihood(params):
        logprob = jnp.where(mask, logprobs(params, tokens, segments), 0.0)
        return -(logprob.sum(1) / mask.sum(1))[::2].mean()

    without, metrics = learner.gradient(packed(pairs, length_normalised=normalised))
    added = jax.jit(jax.grad(likelihood))(first_params())
    expected = jax.tree.map(lambda a, b: a + 0.7 * np.asarray(b), without, added)
    split = packed(
        pairs, micro_rows=2, length_normalised=normalised
    )  # some micro-batches are empty
    found, both = Learner(likelihood_coef=0.7).gradient(split)
    assert_close(found, expected, tolerance=1e-4)
    term = 0.7 * float(likelihood(first_params()))
    assert both["loss"] == pytest.approx(metrics["loss"] + term, rel=1e-5)


@pytest.mark.parametrize("normalised", [False, True])
def test_micro_batch_split_leaves_the_gradient_unchanged(learner, normalised):
    pairs = some_pairs()
    whole = packed(pairs, length_normalised=normalised)
    split = packed(pairs, micro_rows=2, length_normalised=normalised)
    count = lambda batch: int((batch.pair_weights != 0).any(1).sum())  # noqa: E731
    assert count(whole) < count(split)
    expected, metrics = learner.gradient(whole)
    found, split_metrics = learner.gradient(split)
    assert_close(found, expected)
    assert split_metrics == pytest.approx(metrics, rel=1e-5)


@pytest.mark.slow
def test_eight_devices_equal_one(learner):
    batch = packed(some_pairs())
    expected, metrics = learner.gradient(batch)
    layout = Layout(make_mesh(data=2, fsdp=2, tensor=2), TRAIN_RULES)
    found, sharded = Learner(layout=layout).gradient(batch)
    assert_close(found, expected, tolerance=1e-4)
    assert sharded == pytest.approx(metrics, rel=1e-4)


def test_training_steps_prefer_chosen_over_rejected_conversations(learner):
    batch = packed(on_policy(some_pairs()))
    state, _ = learner.step(batch)
    for _ in range(9):
        state, metrics = learner.step(batch, state)
    assert metrics["accuracy"] == 1 and metrics["loss"] < 0.9 * np.log(2)
    assert metrics["chosen_reward"] > 0 > metrics["rejected_reward"]
    assert metrics["margin"] == pytest.approx(
        metrics["chosen_reward"] - metrics["rejected_reward"], rel=1e-5
    )


def test_ipo_has_no_gradient_at_its_target():
    """Checks that IPO's gradient is 0 at h = 1 / (2 beta); DPO has no minimum there."""
    h = jnp.array([0.5 / BETA, 1.0 / BETA])
    slopes = {name: jax.grad(lambda h, f=f: f(h, BETA).sum())(h) for name, f in LOSSES.items()}
    np.testing.assert_allclose(slopes["ipo"], [0.0, 1.0 / BETA], atol=1e-6)
    np.testing.assert_allclose(
        slopes["sigmoid"], -BETA / (1 + np.exp(BETA * np.asarray(h))), rtol=1e-5
    )


def test_values_off_the_mask_do_not_affect_the_gradient(learner):
    pairs = some_pairs()
    soiled = [
        tuple(
            Member(
                one.tokens,
                one.action_mask,
                np.where(one.action_mask, one.reference_logprobs, np.float32(np.nan)),
            )
            for one in pair
        )
        for pair in pairs
    ]
    assert learner.step(packed(soiled))[1] == learner.step(packed(pairs))[1]


def test_an_update_that_is_not_finite_is_skipped_and_reported(learner):
    batch = packed(some_pairs())
    state, _ = learner.step(batch)
    before = on_host(state)
    tokens = batch.tokens
    reference = np.where(tokens.action_mask, np.float32(np.nan), tokens.reference_logprobs)
    spoiled = batch.replace(tokens=tokens.replace(reference_logprobs=reference))
    after, metrics = learner.step(spoiled, state)
    chex.assert_trees_all_equal(after, before)
    assert metrics["skipped"] == 1 and metrics["loss"] == 0


def test_one_program_serves_pairs_of_all_lengths(learner):
    learner.step(packed(some_pairs()))
    programs = learner._update._cache_size()
    for seed in (1, 2):
        learner.step(packed(some_pairs(seed=seed)))
    assert learner._update._cache_size() == programs


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(2, 5), st.integers(0, 99))
def test_every_pair_is_whole_in_one_micro_batch(count, micro_rows, seed):
    rng = np.random.default_rng(seed)
    pairs = [(member(rng, longest=ROW), member(rng, longest=ROW)) for _ in range(count)]
    batch = packed(pairs, micro_rows)
    batch.check()
    assert batch.tokens.tokens.shape == (math.ceil(count / (micro_rows // 2)), micro_rows, ROW)
    np.testing.assert_allclose(batch.pair_weights.sum(), 1.0, rtol=1e-6)
    found = []
    for m in range(batch.pair_weights.shape[0]):
        here = np.flatnonzero(batch.pair_weights[m])
        ids = batch.tokens.sequence_ids[m]
        assert ids.max() + 1 == 2 * len(here)
        for p in here:
            found.append(
                tuple(batch.tokens.tokens[m][ids == 2 * p + side].tobytes() for side in (0, 1))
            )
    assert sorted(found) == sorted(tuple(one.tokens.tobytes() for one in pair) for pair in pairs)


def test_weights_of_a_length_normalised_conversation_sum_to_one():
    for normalised in (True, False):
        tokens = packed(some_pairs(), length_normalised=normalised).tokens
        for m in range(tokens.tokens.shape[0]):
            for i in range(tokens.sequence_ids[m].max() + 1):
                here = tokens.sequence_ids[m] == i
                count = tokens.action_mask[m][here].sum()
                expected = 1.0 if normalised else float(count)
                np.testing.assert_allclose(tokens.weights[m][here].sum(), expected, rtol=1e-6)
