"""Updates on tokens that were sampled under masks, on one device and on several."""

import jax
import numpy as np
import pytest

from agentgym_jax.learner import update
from agentgym_jax.mesh.sharding import TRAIN_RULES, Layout, make_mesh
from tests.builders import pack_sequences, token_sequences
from tests.learner.learner_parts import CONFIG, make_learner

V = CONFIG.vocab_size


def masked_sequences():
    """Returns sequences of which every second has masks that allow its tokens and a few others."""
    sequences = token_sequences()
    rng = np.random.default_rng(0)
    for sequence in sequences[::2]:
        n = len(sequence["tokens"])
        allowed = rng.random((n, V)) < 0.1
        allowed[np.arange(n), sequence["tokens"]] = True
        bits = np.packbits(np.pad(allowed, ((0, 0), (0, -V % 32))), axis=-1, bitorder="little")
        sequence["mask_table"] = bits.view(np.uint32)
        sequence["mask_ids"] = np.where(sequence["action_mask"], np.arange(n) + 1, 0)
    return sequences


def score_of(sequences):
    """Returns log-probabilities and entropies."""
    learner = make_learner()
    score = update.make_score(learner.policy, temperature=0.7, logprob_chunk=16)
    batch = jax.tree.map(lambda x: x[0], pack_sequences(sequences, micro_rows=8))
    return jax.device_get(score(learner.state().params, batch))


def test_masks_that_allow_all_tokens_change_nothing_and_others_do():
    sequences = masked_sequences()
    plain = [{k: v for k, v in s.items() if not k.startswith("mask_")} for s in sequences]
    everything = [
        s | {"mask_table": np.full_like(s["mask_table"], 2**32 - 1)} if "mask_table" in s else s
        for s in sequences
    ]
    expected = score_of(plain)
    for found, value in zip(score_of(everything), expected, strict=True):
        np.testing.assert_allclose(found, value, atol=1e-6)
    logprobs, entropies = score_of(sequences)
    assert logprobs.sum() > 0.9 * expected[0].sum()
    assert entropies.sum() < 0.9 * expected[1].sum()


@pytest.mark.slow
def test_masked_updates_do_not_depend_on_the_mesh():
    layout = Layout(make_mesh(data=2, fsdp=2, tensor=2), TRAIN_RULES)
    found = []
    for place in (None, layout):
        learner = make_learner(place, entropy_coef=0.0)
        batch = update.put_batch(pack_sequences(masked_sequences(), micro_rows=4), place)
        state, metrics = learner.update(learner.state(), batch)
        found.append(jax.device_get((metrics, state.params)))
    (metrics, params), (other, other_params) = found
    for name in ("loss", "grad_norm", "ratio_max"):
        np.testing.assert_allclose(other[name], metrics[name], rtol=1e-4, err_msg=name)
    # Adam divides by the root of the second moment, so rounding matters where gradients are small.
    # A step changes a weight by up to 1e-2.
    for a, b in zip(*map(jax.tree.leaves, (params, other_params)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
