"""Gradients, losses and optimiser steps of a model in training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.learner.stored_weights import make_adapters
from agentgym_jax.mesh import compiler_options
from agentgym_jax.serving.requests import RequestError
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.training_api.data import Datum
from agentgym_jax.training_api.trainer import AdamOptions, Trainer
from tests.builders import tiny_policy

LOW, HIGH, BETA = 0.9, 1.05, 0.05


@pytest.fixture(scope="module")
def parts(compiled_fastest):
    policy = tiny_policy(byte_tokenizer())
    return policy, policy.init(jax.random.key(0))


@pytest.fixture(scope="module")
def trainer(parts):
    return make_trainer(*parts)


def make_trainer(policy, base):
    adapters = make_adapters(policy, rank=3, alpha=32.0, targets=("q", "v", "o", "up"))
    trainer = Trainer(policy, base, adapters, seed=0, context=100, micro_tokens=64)
    # B is 0 in new adapters, which would hide the gradient of A
    trainer.state = trainer.state.replace(
        params=jax.tree.map(
            lambda x: x + 0.01 * jnp.sin(jnp.arange(x.size)).reshape(x.shape), trainer.state.params
        )
    )
    return trainer


def data(*lengths, losses=False):
    """Returns data with random tokens and targets, which are not the next tokens."""
    random = np.random.default_rng(sum(lengths))
    found = []
    for n in lengths:
        fields = {"target_tokens": random.integers(0, 250, n)}
        if losses:
            fields |= {"logprobs": random.normal(-5.5, 0.1, n), "advantages": random.normal(size=n)}
        else:
            fields["weights"] = random.normal(size=n)
        fields = {k: v.astype("i8" if k == "target_tokens" else "f4") for k, v in fields.items()}
        found.append(Datum(random.integers(0, 250, n).astype(np.int32), fields))
    return found


def plain_logprobs(parts, trainer, params, datum):
    """Returns the log-probabilities of the targets, by the definition."""
    policy, base = parts
    weights = trainer.adapters.attach(base, params)
    n = len(datum.tokens)
    hidden = policy.hidden(weights, datum.tokens[None], jnp.arange(n)[None], jnp.ones((1, n), int))
    scores = jax.nn.log_softmax(policy.logits(weights, hidden)[0])
    return scores[jnp.arange(n), datum.fields["target_tokens"]]


def ppo(logprob, old, advantage):
    ratio = jnp.exp(logprob - old)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, LOW, HIGH) * advantage)


def cispo(logprob, old, advantage):
    weight = jax.lax.stop_gradient(jnp.clip(jnp.exp(logprob - old), LOW, HIGH))
    return -weight * advantage * logprob


def dro(logprob, old, advantage):
    return 0.5 * BETA * (logprob - old) ** 2 - advantage * logprob


CLIP = {"clip_low_threshold": LOW, "clip_high_threshold": HIGH}
FORMULAS = {
    "importance_sampling": ({}, lambda new, old, a: -jnp.exp(new - old) * a),
    "ppo": (CLIP, ppo),
    "cispo": (CLIP, cispo),
    "dro": ({"beta": BETA}, dro),
}


def assert_close(found, wanted):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cross_entropy", *FORMULAS])
def test_the_gradient_and_the_loss_are_those_of_the_formula(parts, trainer, name):
    is_rl = name != "cross_entropy"
    options, formula = FORMULAS[name] if is_rl else ({}, None)
    batch = data(7, 20, 40, losses=is_rl)

    def loss(params):
        total = 0.0
        for datum in batch:
            new, fields = plain_logprobs(parts, trainer, params, datum), datum.fields
            if is_rl:
                total += jnp.sum(formula(new, fields["logprobs"], fields["advantages"]))
            else:
                total -= jnp.sum(new * fields["weights"])
        return total

    trainer.replace_state(trainer.state, keep_optimizer=True)  # drops the gradient
    result = trainer.forward_backward(batch, name, options)
    wanted, gradient = jax.jit(jax.value_and_grad(loss))(trainer.state.params)
    assert_close(result.metrics["loss:sum"], wanted)
    assert_close(trainer.gradient, gradient)
    for logprobs, datum in zip(result.logprobs, batch, strict=True):
        assert_close(logprobs, plain_logprobs(parts, trainer, trainer.state.params, datum))


def test_two_calls_add_up_to_one_call_with_both_data(trainer):
    batch = data(5, 9, 30)
    trainer.replace_state(trainer.state, keep_optimizer=True)
    trainer.forward_backward(batch, "cross_entropy", {})
    whole = trainer.gradient
    trainer.replace_state(trainer.state, keep_optimizer=True)
    trainer.forward_backward(batch[:2], "cross_entropy", {})
    trainer.forward_backward(batch[2:], "cross_entropy", {})
    assert_close(trainer.gradient, whole)


def test_a_forward_call_adds_no_gradient(trainer):
    trainer.replace_state(trainer.state, keep_optimizer=True)
    scored = trainer.forward_backward(data(9), "cross_entropy", {}, forward_only=True)
    assert trainer.gradient is None
    trained = trainer.forward_backward(data(9), "cross_entropy", {})
    np.testing.assert_allclose(scored.logprobs[0], trained.logprobs[0], rtol=1e-5)


def options(**changes):
    fields = dict(learning_rate=0.1, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0)
    return AdamOptions(**fields | {"grad_clip_norm": 0.0} | changes)


@pytest.mark.slow
def test_steps_are_those_of_adamw_with_the_options_of_each_call(parts):
    trainer = make_trainer(*parts)
    params = jax.tree.map(np.asarray, trainer.state.params)
    mu = nu = jax.tree.map(np.zeros_like, params)
    for step, rate, decay, limit in ((1, 0.1, 0.0, 0.0), (2, 0.01, 0.2, 0.5)):
        trainer.forward_backward(data(20), "cross_entropy", {})
        gradient = jax.tree.map(np.asarray, trainer.gradient)
        norm = np.sqrt(sum(np.sum(g**2) for g in jax.tree.leaves(gradient)))
        metrics = trainer.step(
            options(learning_rate=rate, weight_decay=decay, grad_clip_norm=limit)
        )
        assert metrics["grad_norm:mean"] == pytest.approx(norm, rel=1e-4)
        if limit:
            assert norm > limit
            gradient = jax.tree.map(lambda g, f=limit / norm: g * f, gradient)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, gradient)
        nu = jax.tree.map(lambda n, g: 0.95 * n + 0.05 * g**2, nu, gradient)

        def move(p, m, n, k=step, lr=rate, wd=decay):
            change = (m / (1 - 0.9**k)) / (np.sqrt(n / (1 - 0.95**k)) + 1e-8)
            return p - lr * (change + wd * p)

        params = jax.tree.map(move, params, mu, nu)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), trainer.state.params, params
        )
    assert trainer.gradient is None


def test_a_gradient_that_is_not_finite_changes_nothing(trainer):
    trainer.replace_state(trainer.state, keep_optimizer=True)
    before = jax.tree.map(np.asarray, trainer.state)
    (datum,) = data(9, losses=True)
    datum.fields["logprobs"][:] = -1e30  # the ratio overflows
    trainer.forward_backward([datum], "importance_sampling", {})
    with pytest.raises(RequestError, match="not finite and was dropped"):
        trainer.step(options())
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, trainer.state))
    with pytest.raises(RequestError, match="call forward_backward first"):
        trainer.step(options())


@pytest.mark.parametrize(
    ("name", "given", "change", "found"),
    [
        ("gspo", {}, {}, "'gspo' is not supported; use one of cross_entropy"),
        ("no", {}, {}, "'no' is unknown"),
        ("ppo", {"epsilon": 0.2}, {}, "no option 'epsilon'; it has clip_low_threshold"),
        ("ppo", {"clip_low_threshold": 1.5}, {}, "0 < clip_low_threshold <= 1"),
        ("ppo", {"clip_low_threshold": "x"}, {}, "give a finite number"),
        ("ppo", {}, {}, "datum 0 lacks logprobs"),
        (
            "cross_entropy",
            {},
            {"mask": np.ones(9)},
            "the input 'mask', which loss_fn cross_entropy",
        ),
        ("cross_entropy", {}, {"weights": np.full(9, np.nan)}, "weights is not finite"),
        ("cross_entropy", {}, {"target_tokens": np.full(9, 10**6)}, "ids outside 0 to"),
        ("cross_entropy", {}, {"target_tokens": np.full(9, 0.5)}, "send token ids as int64"),
    ],
)
def test_wrong_data_are_refused_by_name(trainer, name, given, change, found):
    trainer.replace_state(trainer.state, keep_optimizer=True)
    (datum,) = data(9)
    if name == "ppo":
        change = {"weights": None}
    fields = {k: v for k, v in {**datum.fields, **change}.items() if v is not None}
    with pytest.raises(RequestError, match=found):
        trainer.forward_backward([Datum(datum.tokens, fields)], name, given)
    assert trainer.gradient is None


def test_long_and_empty_data_are_refused(trainer):
    for batch in (data(101), [Datum(np.zeros(0, np.int32), {"target_tokens": np.zeros(0, "i8")})]):
        with pytest.raises(RequestError, match="1 to 100, see --context"):
            trainer.forward_backward(batch, "cross_entropy", {})


@pytest.mark.parametrize("forward_only", [True, False])
def test_options_of_the_chip_reach_the_compiler(monkeypatch, parts, forward_only):
    options = {"xla_option_of_no_compiler": "1"}
    table = {jax.devices()[0].device_kind: {"update": options, "score": options}}
    monkeypatch.setattr(compiler_options, "TABLE", table)
    trainer = make_trainer(*parts)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_option_of_no_compiler"):
        trainer.forward_backward(data(5), "cross_entropy", {}, forward_only=forward_only)
