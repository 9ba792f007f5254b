"""Scores of a batch before its first update, and the loss computed from them."""

import functools
import math
import types

import jax
import numpy as np
import pytest

from agentgym_jax.config import sections
from agentgym_jax.episodes import batch as batching
from agentgym_jax.learner import optimizer, train_state, update
from agentgym_jax.models.policy import Policy
from agentgym_jax.rl import rl_config as rl
from agentgym_jax.rl import step_scores, update_step
from configs import common, quickstart
from tests.builders import decoder_config

CONFIG = decoder_config(
    vocab_size=64, intermediate_size=64, num_heads=2, num_kv_heads=1, head_size=16
)


def logprobs_in_bfloat16(params, batch):
    """Returns log-probabilities as a bfloat16 sampler with these weights would record them."""
    policy = Policy(CONFIG, dtype="bfloat16")
    score = update.make_score(policy, temperature=1.0, logprob_chunk=64)
    return np.asarray(score(params, update.put_batch(batch))[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gspo", "gspo_token"])
def test_rounding_in_the_sampler_clips_no_episode_before_the_first_update(name):
    config = quickstart.get_config("smoke")
    config.algorithm = getattr(common, name)()
    settings = rl.parse(sections.plain(config))
    policy = Policy(CONFIG)
    # Initial weights times ten give logits as large as those of a trained model.
    params = jax.tree.map(lambda x: 10 * x, jax.jit(policy.init)(jax.random.key(0)))
    rng = np.random.default_rng(0)
    mask = np.arange(12) >= 4
    sequences = [
        {
            "tokens": rng.integers(0, CONFIG.vocab_size, 12),
            "action_mask": mask,
            "weights": mask / (8 * 16),
            "advantages": mask * (-1.0) ** i,
            "old_logprobs": np.zeros(12),
        }
        for i in range(16)
    ]
    packed = batching.pack(sequences, row_length=12, rows_multiple=settings.learner.micro_rows)
    sampled = logprobs_in_bfloat16(params, packed)
    packed = packed.replace(old_logprobs=sampled)

    built = optimizer.make_optimizer(**settings.optimizer, total_steps=10)
    numerics = dict(temperature=1.0, logprob_chunk=64)
    parts = types.SimpleNamespace(
        settings=settings,
        model=types.SimpleNamespace(layout=None, attach=lambda trained: trained),
        score=update.make_score(policy, **numerics),
    )
    state = train_state.create(policy, built, params)
    learner = np.asarray(parts.score(params, update.put_batch(packed))[0])
    by_episode = (learner - sampled).mean(axis=-1, where=packed.action_mask)
    # Rounding alone already moves the log-ratio beyond the clip bounds (3e-4 and 4e-4).
    assert np.mean(np.abs(by_episode) > 4e-4) > 0.2

    batch = step_scores.score_batch(parts, state, None, packed)
    loss = functools.partial(settings.algorithm.row.loss, **settings.algorithm.loss)
    step = update.make_update(policy, built, loss, **settings.algorithm.regularisation, **numerics)
    metrics = jax.device_get(step(state, update.put_batch(batch))[1])
    assert metrics["clip_fraction"] == 0.0
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)


def test_the_padding_of_a_step_is_that_of_all_its_mini_batches():
    packed = [
        batching.pack([dict(tokens=np.arange(n))], row_length=4, rows_multiple=1) for n in (4, 1, 4)
    ]
    assert update_step._batch_metrics(packed)["batch/padding_share"] == 0.25


def _run_epochs(steps, limits=(1.0, math.inf), gap=0.0):
    """Runs PPO's updates of some steps with one mini-batch; returns the calls of its updates.

    The first step updates only the critic. `gap` is the difference between sampler and learner.
    """
    config = quickstart.get_config("smoke")
    config.algorithm = common.ppo()
    config.algorithm.critic.warmup_steps = 1
    config.learner.epochs = 2
    settings = rl.parse(sections.plain(config))
    calls: dict[str, list[int]] = {"policy": [], "critic": []}

    def update_policy(state, batch, grad_limit, position, base, gap_limit):
        calls["policy"].append(int(position))
        return state, dict(
            skipped=float(gap > gap_limit),
            nonfinite=0.0,
            ratio_max=1.0,
            grad_norm=1.0,
            logprob_gap_mean=gap,
            logprob_gap_max=gap,
        )

    def update_critic(state, batch, position):
        calls["critic"].append(int(position))
        return state, {}

    parts = types.SimpleNamespace(
        settings=settings,
        model=types.SimpleNamespace(layout=None, base=None),
        critic=types.SimpleNamespace(update=update_critic),
        update=update_policy,
    )

    def ignore(*_):
        pass

    run = types.SimpleNamespace(begin=ignore, console=types.SimpleNamespace(phase=ignore))
    state = train_state.TrainState(0, {}, {}, train_state.TrainState(0, {}, {}))
    sequence = dict(tokens=np.arange(4), action_mask=np.arange(4) > 1)
    batch = batching.micro_batches(batching.pack([sequence], row_length=4, rows_multiple=1), 1)
    for step in steps:
        update_step._run_epochs(run, parts, state, {1: batch}, step, limits)
    return calls


def test_every_update_is_numbered_by_its_position_in_the_run():
    """Checks three steps with an empty mini-batch each."""
    assert _run_epochs((0, 1, 2)) == {"critic": [1, 3, 5, 7, 9, 11], "policy": [1, 3, 5, 7]}


def test_a_gap_above_the_limit_ends_the_updates_of_a_step():
    assert _run_epochs((2,), (1.0, 0.1), gap=0.2) == {"critic": [], "policy": [5]}
    assert _run_epochs((2,), (1.0, 0.2), gap=0.2) == {"critic": [9, 11], "policy": [5, 7]}
    assert _run_epochs((2,), gap=0.2) == {"critic": [9, 11], "policy": [5, 7]}
