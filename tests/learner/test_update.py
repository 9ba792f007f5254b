import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import losses
from agentgym_jax.episodes import batch as batching
from agentgym_jax.learner import update
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from tests.builders import pack_sequences, token_sequences
from tests.learner.learner_parts import CONFIG, assert_close, gradient, make_learner, on_host

pytestmark = pytest.mark.usefixtures("compiled_fast")


def test_micro_batch_split_leaves_the_gradient_unchanged(learner):
    """Checks splits with empty micro-batches: the eight sequences fill fewer than eight rows."""
    made = token_sequences()
    whole, metrics = gradient(learner, pack_sequences(made, micro_rows=8))
    split, split_metrics = gradient(learner, pack_sequences(made, micro_rows=2))
    assert not pack_sequences(made, micro_rows=2).segment_ids[-1].any()
    assert_close(split, whole)
    assert_close(split_metrics, metrics)


def test_packing_leaves_the_gradient_unchanged(learner):
    made = token_sequences()
    rows = [batching.pack([s], row_length=32, rows_multiple=1) for s in made[::-1]]
    one_a_row = jax.tree.map(lambda *x: np.concatenate(x), *rows)
    alone, metrics = gradient(learner, batching.micro_batches(one_a_row, 2))
    together, packed_metrics = gradient(learner, pack_sequences(made))
    assert pack_sequences(made).segment_ids.max() > 1
    assert_close(together, alone)
    assert_close(packed_metrics, metrics)


@pytest.mark.slow
def test_the_gradient_equals_that_of_a_plain_implementation(learner):
    """Checks the gradient against a loss without packing, scan or chunks, one episode at a time."""
    made, policy = token_sequences(3, shortest=12, longest=12), learner.policy

    def loss_of_one(params, s):
        tokens_1T = s["tokens"][None]
        n = tokens_1T.shape[1]
        hidden = policy.hidden(params, tokens_1T, jnp.arange(n)[None], jnp.ones((1, n), int))
        logprobs = jax.nn.log_softmax(policy.logits(params, hidden)[0, :-1] / 0.7)
        new = logprobs[jnp.arange(n - 1), tokens_1T[0, 1:]]
        entropy = -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)
        ratio = jnp.exp(new - s["old_logprobs"][1:])
        advantage = s["advantages"][1:]
        surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
        log_r = s["reference_logprobs"][1:] - new
        kl = jnp.exp(log_r) - 1 - log_r
        return jnp.sum(s["weights"][1:] * (-surrogate + 0.05 * kl - 0.01 * entropy))

    of_one = jax.jit(jax.value_and_grad(loss_of_one))
    params = learner.state().params
    values, gradients = zip(*[of_one(params, s) for s in made], strict=True)
    found, metrics = gradient(learner, pack_sequences(made))
    np.testing.assert_allclose(metrics["loss"], sum(values), rtol=1e-5)
    assert_close(found, jax.tree.map(lambda *x: np.sum(x, axis=0), *gradients), tolerance=1e-4)


def test_failed_rows_do_not_change_the_gradient_of_other_rows(learner):
    made = token_sequences(6)
    expected, _ = gradient(learner, pack_sequences(made))
    failed = {
        k: np.zeros_like(v) if k == "weights" else v
        for k, v in token_sequences(1, seed=9)[0].items()
    }
    found, metrics = gradient(learner, pack_sequences([*made[:3], failed, *made[3:]]))
    assert_close(found, expected)
    assert metrics["skipped"] == 0


def test_values_off_the_mask_do_not_affect_the_update(learner):
    batch = pack_sequences(token_sequences())
    expected, metrics = gradient(learner, batch)

    def dirty(values):
        return np.where(batch.action_mask, values, np.float32(np.nan))

    names = ("weights", "advantages", "old_logprobs", "reference_logprobs", "sampler_logprobs")
    soiled = batch.replace(**{name: dirty(getattr(batch, name)) for name in names})
    found, soiled_metrics = gradient(learner, soiled)
    chex.assert_trees_all_equal(found, expected)
    chex.assert_trees_all_equal(soiled_metrics, metrics)


def test_an_unchanged_policy_has_ratio_one(learner):
    """Checks that scoring and updating use the same numerics for any split into micro-batches."""
    score = update.make_score(learner.policy, temperature=0.7, logprob_chunk=16)
    batch = pack_sequences(token_sequences())
    state = learner.state()
    old = np.stack(
        [
            score(state.params, jax.tree.map(lambda x, m=m: x[m], batch))[0]
            for m in range(batch.tokens.shape[0])
        ]
    )
    _, metrics = learner.update(state, update.put_batch(batch.replace(old_logprobs=old)))
    np.testing.assert_allclose(metrics["ratio_mean"], 1.0, atol=1e-6)
    np.testing.assert_allclose(metrics["ratio_max"], 1.0, atol=1e-5)
    assert metrics["clip_fraction"] == 0
    assert abs(metrics["approx_kl"]) < 1e-9


def test_a_step_whose_policy_differs_too_much_from_the_sampler_is_skipped(learner):
    score = update.make_score(learner.policy, temperature=0.7, logprob_chunk=16)
    batch = pack_sequences(token_sequences())
    params = learner.state().params
    scores = np.stack(
        [
            score(params, jax.tree.map(lambda x, m=m: x[m], batch))[0]
            for m in range(len(batch.tokens))
        ]
    )
    rng = np.random.default_rng(0)
    gap = np.where(batch.action_mask, rng.uniform(-1, 1, scores.shape), 0).astype(np.float32)
    batch = update.put_batch(batch.replace(sampler_logprobs=scores + gap))
    mean, largest = np.abs(gap).sum() / (gap != 0).sum(), np.abs(gap).max()

    def step(factor):
        limit = update.put_scalar(np.float32(factor * mean))
        before = on_host(learner.state())
        after, metrics = learner.update(learner.state(), batch, gap_limit=limit)
        np.testing.assert_allclose(metrics["logprob_gap_mean"], mean, rtol=1e-4)
        np.testing.assert_allclose(metrics["logprob_gap_max"], largest, rtol=1e-4)
        return metrics["skipped"], int(after.step - before.step)

    assert step(0.99) == (1, 0)
    assert step(1.01) == step(np.inf) == (0, 1)
    broken = jax.tree.map(jnp.array, batch)
    broken = broken.replace(sampler_logprobs=broken.sampler_logprobs * np.nan)
    _, metrics = learner.update(learner.state(), broken, gap_limit=update.put_scalar(np.float32(9)))
    assert metrics["skipped"] == 1 and metrics["logprob_gap_mean"] > 1e38


def test_scores_are_zero_off_the_action_tokens(learner):
    score = update.make_score(learner.policy, temperature=1.0, logprob_chunk=16)
    batch = jax.tree.map(lambda x: x[0], pack_sequences(token_sequences()))
    logprob_BT, entropy_BT = map(np.asarray, score(learner.state().params, batch))
    assert (logprob_BT[batch.action_mask] < 0).all()
    assert (entropy_BT[batch.action_mask] > 0).all()
    assert not logprob_BT[~batch.action_mask].any()
    assert not entropy_BT[~batch.action_mask].any()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda b: b.replace(weights=b.weights * 0), id="no weight"),
        pytest.param(
            lambda b: b.replace(action_mask=np.zeros_like(b.action_mask)), id="empty mask"
        ),
        pytest.param(lambda b: b.replace(weights=b.weights * np.float32(np.nan)), id="nan weight"),
        pytest.param(
            lambda b: b.replace(advantages=np.where(b.action_mask, np.float32(np.inf), 0)),
            id="infinite advantage",
        ),
        pytest.param(
            lambda b: b.replace(old_logprobs=np.where(b.action_mask, np.float32(-200), 0)),
            id="overflowing ratio",
        ),
    ],
)
def test_an_unusable_batch_is_skipped_and_reported(learner, spoil):
    state, _ = learner.update(learner.state(), update.put_batch(pack_sequences(token_sequences())))
    before = on_host(state)
    after, metrics = learner.update(
        state, update.put_batch(spoil(pack_sequences(token_sequences())))
    )
    chex.assert_trees_all_equal(on_host(after), before)
    assert metrics["skipped"] == 1
    assert metrics["update_norm"] == 0
    assert all(np.isfinite(v) for v in metrics.values())


@pytest.mark.slow
def test_an_update_is_skipped_only_if_its_gradient_exceeds_the_limit(
    learner,
):
    batch = pack_sequences(token_sequences())
    no_limit = update.put_scalar(np.float32(np.inf))  # the limits are arguments of one program
    expected, metrics = learner.update(learner.state(), update.put_batch(batch), no_limit)
    expected, norm = on_host(expected), float(metrics["grad_norm"])
    state = learner.state()
    before = on_host(state)
    state, metrics = learner.update(
        state, update.put_batch(batch), update.put_scalar(np.float32(0.99 * norm))
    )
    chex.assert_trees_all_equal(on_host(state), before)
    assert (metrics["skipped"], metrics["nonfinite"]) == (1, 0)
    assert metrics["grad_norm"] == norm
    state, metrics = learner.update(
        state, update.put_batch(batch), update.put_scalar(np.float32(1.01 * norm))
    )
    chex.assert_trees_all_equal(on_host(state), expected)
    assert (metrics["skipped"], metrics["nonfinite"]) == (0, 0)


def test_steps_lower_the_supervised_loss():
    learner = make_learner(
        token_loss=losses.negative_log_likelihood, kl_coef=0.0, entropy_coef=0.0, temperature=1.0
    )
    batch = pack_sequences(token_sequences())
    mask = batch.action_mask
    batch = batch.replace(weights=(mask / mask.sum()).astype(np.float32))
    state, losses_seen = learner.state(), []
    for _ in range(30):
        state, metrics = learner.update(state, update.put_batch(batch))
        losses_seen.append(float(metrics["loss"]))
    np.testing.assert_allclose(losses_seen[0], np.log(CONFIG.vocab_size), rtol=0.02)
    assert losses_seen[-1] < 0.5 * losses_seen[0]
    assert state.step == 30


def test_metrics_match_hand_computed_values(learner):
    batch = pack_sequences(token_sequences())
    state = learner.state()
    norm = np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(on_host(state.params))))
    score = update.make_score(learner.policy, temperature=0.7, logprob_chunk=16)
    rows = [jax.tree.map(lambda x, m=m: x[m], batch) for m in range(batch.tokens.shape[0])]
    new, entropy = (np.stack(x) for x in zip(*[score(state.params, r) for r in rows], strict=True))
    _, metrics = learner.update(state, update.put_batch(batch))
    mask = batch.action_mask
    ratio = np.exp(new - batch.old_logprobs)[mask]
    log_r = (batch.reference_logprobs - new)[mask]
    advantage = batch.advantages[mask]
    clipped = np.where(advantage > 0, ratio > 1.2, ratio < 0.8)
    expected = {
        "ratio_mean": ratio.mean(),
        "ratio_max": ratio.max(),
        "entropy": entropy[mask].mean(),
        "kl_k3": np.mean(np.exp(log_r) - 1 - log_r),
        "approx_kl": np.mean(ratio - 1 - np.log(ratio)),
        "clip_fraction": clipped.mean(),
        "param_norm": norm,
        "surrogate_loss": -np.sum(
            batch.weights[mask]
            * np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
        ),
    }
    found = {name: float(metrics[name]) for name in expected}
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_updates_cause_no_implicit_transfer_or_compilation(learner):
    batches = [pack_sequences(token_sequences(seed=seed)) for seed in (0, 1)]
    state, _ = learner.update(learner.state(), update.put_batch(batches[0]))
    programs = learner.update._cache_size()
    with jax.transfer_guard("disallow"):
        for batch in batches:
            state, metrics = learner.update(state, update.put_batch(batch))
    assert learner.update._cache_size() == programs
    assert all(v.shape == () and v.dtype == jnp.float32 for v in metrics.values())


def three_updates(learner, layout=None):
    state = learner.state()
    for seed in range(3):
        batch = pack_sequences(token_sequences(seed=seed), micro_rows=8)
        state, metrics = learner.update(state, update.put_batch(batch, layout))
    return on_host(state.params), on_host(metrics)


@pytest.mark.slow
@pytest.mark.parametrize("micro_rows", [4, 8])
def test_scores_do_not_depend_on_the_mesh(learner, micro_rows):
    layout = Layout(make_mesh(data=2, fsdp=2, tensor=2), TRAIN_RULES)
    packed = pack_sequences(token_sequences(), micro_rows=micro_rows)
    found = []
    for own, place in ((learner, None), (make_learner(layout), layout)):
        score = update.make_score(own.policy, temperature=0.7, logprob_chunk=16)
        batch = update.put_batch(jax.tree.map(lambda x: x[0], packed), place)
        found.append(on_host(score(own.state().params, batch)))
    assert_close(*found, tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("adamw", dict(data=2, fsdp=2, tensor=2)),
        ("muon", dict(data=1, fsdp=2, tensor=4)),
    ],
    ids=["adamw", "muon"],
)
def test_eight_devices_equal_one_for_a_full_update(learner, name, sizes):
    alone = learner if name == "adamw" else make_learner(name=name)
    expected_params, expected_metrics = three_updates(alone)
    layout = Layout(make_mesh(**sizes), TRAIN_RULES)
    params, metrics = three_updates(make_learner(layout, name=name), layout)
    # Adam divides by the root of the second moment. If a gradient is nearly zero, rounding
    # therefore decides the sign of a step of about 1e-2 (the learning rate) for single weights.
    assert_close(metrics, expected_metrics, tolerance=1e-3)
    chex.assert_trees_all_close(params, expected_params, rtol=1e-3, atol=2e-4)
