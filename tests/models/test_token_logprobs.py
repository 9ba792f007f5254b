import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.episodes.batch import TokenMasks
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.token_logprobs import token_logprobs
from tests.builders import decoder_config
from tests.models.decoder_parts import equations

TIED = decoder_config(vocab_size=257, hidden_size=16, intermediate_size=24, head_size=4)
CONFIGS = {"tied": TIED, "untied": dataclasses.replace(TIED, tie_embeddings=False)}
B, T, V = 3, 11, 257


@pytest.fixture(params=CONFIGS)
def case(request):
    """Returns a policy, weights that give logits of very different size, hidden states and tokens."""
    policy = Policy(CONFIGS[request.param])
    params = jax.tree.map(lambda x: 20.0 * x, policy.init(jax.random.key(0)))
    hidden = jax.random.normal(jax.random.key(1), (B, T, 16))
    tokens = jax.random.randint(jax.random.key(2), (B, T), 0, V)
    return policy, params, hidden, tokens


def _direct(policy, params, hidden, tokens, temperature):
    logprobs = jax.nn.log_softmax(policy.logits(params, hidden) / temperature)
    chosen = jnp.take_along_axis(logprobs[:, :-1], tokens[:, 1:, None], axis=-1)[..., 0]
    entropy = -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)[:, :-1]
    return jnp.pad(chosen, ((0, 0), (1, 0))), jnp.pad(entropy, ((0, 0), (1, 0)))


def _assert_values_and_gradients_equal(ours, direct, params, hidden):
    """Compares log-probabilities, entropies and the gradients of a weighted sum of both."""
    weight = 1.0 + jnp.arange(B * T, dtype=jnp.float32).reshape(B, T) / (B * T)

    def loss(f, *x):
        logprobs, entropies = f(*x)
        return jnp.sum(weight * (logprobs - entropies))

    def values_and_gradients(f):
        gradients = jax.grad(functools.partial(loss, f), argnums=(0, 1))
        return jax.jit(f)(params, hidden), jax.jit(gradients)(params, hidden)

    (values, gradients), (wanted, wanted_gradients) = map(values_and_gradients, (ours, direct))
    chex.assert_tree_all_finite(gradients)
    chex.assert_trees_all_close(values, wanted, rtol=1e-5, atol=1e-5)
    chex.assert_trees_all_close(gradients, wanted_gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "chunk_size", "temperature"),
    [
        ("tied", 1, 1.0),
        ("untied", 9, 0.7),
        ("tied", 12, 0.7),  # a chunk size that does not divide the number of tokens
        ("untied", 1000, 1.0),  # a single chunk for all tokens
    ],
    indirect=["case"],
)
def test_chunks_equal_the_softmax_of_all_logits_with_gradients(case, chunk_size, temperature):
    policy, params, hidden, tokens = case

    def ours(params, hidden):
        out = token_logprobs(
            policy, params, hidden, tokens, temperature=temperature, chunk_size=chunk_size
        )
        return out.logprob_BT, out.entropy_BT

    def direct(params, hidden):
        return _direct(policy, params, hidden, tokens, temperature)

    assert {x.dtype for x in jax.eval_shape(ours, params, hidden)} == {jnp.dtype("float32")}
    _assert_values_and_gradients_equal(ours, direct, params, hidden)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "chunk_size"), [("tied", 3), ("untied", 12)], indirect=["case"])
def test_only_wanted_tokens_get_values(case, chunk_size):
    """Checks that tokens outside the wanted ones get 0 and contribute no gradient."""
    policy, params, hidden, tokens = case
    wanted = jax.random.bernoulli(jax.random.key(3), 0.3, (B, T)).at[0].set(False)

    def few(params, hidden):
        out = token_logprobs(
            policy, params, hidden, tokens, wanted_BT=wanted, chunk_size=chunk_size
        )
        return out.logprob_BT, out.entropy_BT

    def masked(params, hidden):
        out = token_logprobs(policy, params, hidden, tokens, chunk_size=chunk_size)
        return jnp.where(wanted, out.logprob_BT, 0.0), jnp.where(wanted, out.entropy_BT, 0.0)

    _assert_values_and_gradients_equal(few, masked, params, hidden)


@pytest.mark.slow
def test_chunks_without_wanted_tokens_are_not_computed(case):
    """Marks the hidden states of unused positions with NaN.

    If they were used, logits and gradients would be NaN.
    """
    policy, params, hidden, tokens = case
    wanted = jnp.zeros((B, T), bool).at[:, 7].set(True)
    hidden = jnp.where((jnp.arange(T) == 6)[None, :, None], hidden, jnp.nan)

    def loss(params, wanted):
        out = token_logprobs(policy, params, hidden, tokens, wanted_BT=wanted, chunk_size=B)
        return jnp.sum(jnp.where(wanted, out.logprob_BT, 0.0))

    def is_sound(wanted):
        gradient = jax.grad(loss)(params, wanted)
        return all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))

    assert is_sound(wanted)
    assert not is_sound(wanted.at[0, 9].set(True))


def test_the_loop_over_chunks_ends_with_the_last_wanted_token():
    """The loop must not add zeros to the gradient for the remaining chunks."""
    policy = Policy(TIED)
    hidden = jax.ShapeDtypeStruct((B, T, 16), jnp.float32)
    tokens = jax.ShapeDtypeStruct((B, T), jnp.int32)

    def loss(params, hidden, tokens):
        out = token_logprobs(policy, params, hidden, tokens, wanted_BT=tokens > 0, chunk_size=B)
        return jnp.sum(out.logprob_BT)

    jaxpr = jax.make_jaxpr(jax.grad(loss, (0, 1)))(policy.abstract_params(), hidden, tokens)
    names = {equation.primitive.name for equation in equations(jaxpr.jaxpr)}
    assert names & {"while", "scan", "cond"} == {"while"}


@pytest.mark.slow
def test_index_t_has_the_log_probability_of_token_t(case):
    """Checks that a changed token changes only its own log-probability; a row's first one is 0."""
    policy, params, hidden, tokens = case
    before = token_logprobs(policy, params, hidden, tokens, chunk_size=8).logprob_BT
    changed = tokens.at[1, 5].set((tokens[1, 5] + 1) % V)
    after = token_logprobs(policy, params, hidden, changed, chunk_size=8).logprob_BT
    np.testing.assert_array_equal(np.argwhere(np.asarray(before != after)), [[1, 5]])
    np.testing.assert_array_equal(before[:, 0], 0.0)
    # The token is predicted from the hidden state of the token before it.
    moved = token_logprobs(policy, params, hidden.at[1, 4].add(1.0), tokens, chunk_size=8)
    np.testing.assert_array_equal(np.argwhere(np.asarray(before != moved.logprob_BT)), [[1, 5]])


def test_bfloat16_weights_still_give_float32_results(case):
    policy, params, hidden, tokens = case
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    out = token_logprobs(policy, params, hidden.astype(jnp.bfloat16), tokens, chunk_size=8)
    assert out.logprob_BT.dtype == out.entropy_BT.dtype == jnp.float32


def test_no_array_of_all_logits_exists_in_forward_or_backward_pass():
    policy = Policy(TIED)
    rows, length, chunk = 4, 64, 16
    params = policy.abstract_params()
    hidden = jax.ShapeDtypeStruct((rows, length, 16), jnp.float32)
    tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32)

    def loss(params, hidden, tokens, chunk_size):
        out = token_logprobs(policy, params, hidden, tokens, chunk_size=chunk_size)
        return jnp.sum(out.logprob_BT) + jnp.sum(out.entropy_BT)

    def largest(chunk_size):
        program = jax.grad(loss, argnums=(0, 1))
        jaxpr = jax.make_jaxpr(program, static_argnums=3)(params, hidden, tokens, chunk_size)
        return max(v.aval.size for eqn in equations(jaxpr.jaxpr) for v in eqn.outvars)

    assert largest(chunk) == chunk * V
    # With one chunk for all tokens, the search finds an array of all logits.
    assert largest(rows * length) == rows * length * V


def test_a_chunk_size_of_zero_is_refused(case):
    policy, params, hidden, tokens = case
    with pytest.raises(ValueError, match="chunk_size is 0"):
        token_logprobs(policy, params, hidden, tokens, chunk_size=0)


@pytest.mark.parametrize(("case", "chunk_size"), [("tied", 9)], indirect=["case"])
def test_masked_tokens_have_no_share_in_log_probabilities_entropies_and_gradients(case, chunk_size):
    policy, params, hidden, tokens = case
    rng = np.random.default_rng(0)
    allowed = rng.random((B, 3, V)) < 0.1
    allowed[:, 0] = True
    ids = rng.integers(0, 3, (B, T))
    bit_BTV = np.take_along_axis(allowed, ids[..., None], axis=1)
    bit_BTV[np.arange(B)[:, None], np.arange(T), tokens] = True  # sampled tokens were allowed
    allowed = np.concatenate([np.ones((B, 1, V), bool), bit_BTV], axis=1)  # a mask for each token
    ids = np.tile(1 + np.arange(T), (B, 1))
    bits = np.packbits(np.pad(allowed, ((0, 0), (0, 0), (0, -V % 32))), -1, bitorder="little")
    masks = TokenMasks(jnp.asarray(ids), jnp.asarray(bits.view(np.uint32)))
    temperature = 0.7

    def ours(params, hidden):
        out = token_logprobs(
            policy,
            params,
            hidden,
            tokens,
            temperature=temperature,
            masks=masks,
            chunk_size=chunk_size,
        )
        return out.logprob_BT, out.entropy_BT

    def direct(params, hidden):
        """Computes the softmax of the allowed tokens alone."""
        logits = policy.logits(params, hidden)[:, :-1] / temperature
        bit = jnp.asarray(bit_BTV)[:, 1:]
        mass = jnp.where(
            bit,
            jnp.exp(logits - jnp.max(logits, where=bit, initial=-1e9, axis=-1, keepdims=True)),
            0.0,
        )
        probs = mass / jnp.sum(mass, axis=-1, keepdims=True)
        logprobs = jnp.log(jnp.where(bit, probs, 1.0))
        chosen = jnp.take_along_axis(logprobs, tokens[:, 1:, None], axis=-1)[..., 0]
        pad = lambda x: jnp.pad(x, ((0, 0), (1, 0)))
        return pad(chosen), pad(-jnp.sum(probs * logprobs, axis=-1))

    params = jax.tree.map(lambda x: 0.2 * x, params)  # no probability may underflow
    _assert_values_and_gradients_equal(ours, direct, params, hidden)
