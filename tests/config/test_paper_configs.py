"""The configs of configs/paper, which have the values of the scripts released with AgentGym-RL.

The tables below were copied from scripts in the repository WooooDyy/AgentGym-RL; each row names its
source.
"""

import importlib
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import aggregation
from agentgym_jax.config.sections import plain
from agentgym_jax.data.tasks import Task
from agentgym_jax.rl import rl_config as rl

# Values that all scripts have in common. Values that no script sets are the defaults of
# ppo_trainer.yaml or of the code.
SHARED = [
    ("model.source", "Qwen/Qwen2.5-7B-Instruct", "pure_agent_model_name"),
    ("model.remat", "block", "ppo_trainer.yaml: enable_gradient_checkpointing"),
    ("model.decode_dtype", "bfloat16", "ppo_trainer.yaml: rollout.dtype"),
    ("algorithm.name", "grpo", "algorithm.adv_estimator"),
    ("algorithm.advantage", {"std_normalize": True, "eps": 1e-6}, "ppo/core_algos.py"),
    ("algorithm.loss", {"clip_low": 0.2, "clip_high": 0.2}, "ppo_trainer.yaml: actor.clip_ratio"),
    ("algorithm.aggregation", {"mode": "sequence_mean"}, "ppo_micro_batch_size_per_gpu=1"),
    ("algorithm.kl_coef", 1e-3, "actor.kl_loss_coef"),
    ("algorithm.kl_kind", "k3", "actor.kl_loss_type=low_var_kl"),
    ("algorithm.kl_reward", {"kind": "none"}, "actor.use_kl_loss=True"),
    ("algorithm.entropy_coef", 1e-3, "ppo_trainer.yaml: actor.entropy_coeff"),
    ("algorithm.correction", {"kind": "none"}, "agent_actor/dp_actor.py"),
    ("algorithm.zero_variance", "keep", "ppo/ray_trainer.py: no filter"),
    ("optimizer.name", "adamw", "workers/agent_fsdp_workers.py"),
    ("optimizer.learning_rate", 1e-6, "policy_learning_rate"),
    ("optimizer.schedule", "constant", "ppo_trainer.yaml: optim.warmup_style"),
    ("optimizer.warmup_steps", 0, "ppo_trainer.yaml: optim.lr_warmup_steps_ratio"),
    ("optimizer.b1", 0.9, "workers/agent_fsdp_workers.py: betas"),
    ("optimizer.b2", 0.999, "workers/agent_fsdp_workers.py: betas"),
    ("optimizer.weight_decay", 1e-2, "workers/agent_fsdp_workers.py: weight_decay"),
    ("optimizer.max_grad_norm", 1.0, "ppo_trainer.yaml: actor.grad_clip"),
    ("sampling.temperature", 1.0, "ppo_trainer.yaml: rollout.temperature"),
    ("sampling.top_k", 0, "ppo_trainer.yaml: rollout.top_k=-1, which is off"),
    ("sampling.top_p", 1.0, "ppo_trainer.yaml: rollout.top_p"),
    ("learner.epochs", 1, "agent_actor/dp_actor.py: one pass, whatever ppo_epochs is"),
    ("algorithm.old_logprobs_from", "learner", "ppo/ray_trainer.py: old_log_probs of the actor"),
    ("learner.min_informative_groups", 0, "ppo/ray_trainer.py: no step is skipped"),
    ("rollout.truncation", "fail", "vllm_rollout.py: reward of the last step"),
    ("rollout.failed_turn_penalty", 0.0, "vllm_rollout.py: no shaping"),
    ("rollout.show_turn_budget", "none", "vllm_rollout.py"),
    ("rollout.max_off_policy_steps", 0, "ppo/ray_trainer.py: one batch after another"),
    ("checkpoint.every", 25, "trainer.save_freq"),
]

# Values of each script in examples/train: rounds, steps_scaling_inter, train_batch_size, rollout.n,
# ppo_mini_batch_size, max_prompt_length, max_response_length, rollout.max_tokens, total_epochs.
SCRIPTS = {
    "AgentGym-RL/textcraft_train.sh": (30, None, 32, 8, 8, 512, 10240, 512, 30),
    "AgentGym-RL/babyai_train.sh": (20, None, 16, 8, 8, 1024, 4096, 200, 10),
    "AgentGym-RL/sciworld_train.sh": (20, None, 16, 8, 8, 1024, 4096, 200, 10),
    "AgentGym-RL/searchqa_train.sh": (5, None, 32, 4, 8, 1024, 8192, 512, 20),
    "AgentGym-RL/webarena_train.sh": (15, None, 32, 4, 4, 750, 14098, 512, 25),
    "ScalingInter-RL/textcraft_train.sh": ((10, 20, 30), 100, 32, 8, 8, 512, 10240, 512, 30),
    "ScalingInter-RL/babyai_train.sh": ((6, 13, 20), 100, 32, 4, 8, 512, 8192, 512, 20),
    "ScalingInter-RL/sciworld_train.sh": ((10, 20, 30), 100, 16, 8, 8, 1024, 8192, 200, 10),
    "ScalingInter-RL/searchqa_train.sh": ((5, 8, 10), 100, 32, 4, 8, 1024, 8192, 512, 20),
    "ScalingInter-RL/webarena_train.sh": ((8, 12, 15), 80, 32, 4, 4, 750, 14098, 512, 25),
}

# For each environment: number of training ids in the release, reward, and max_rounds of
# examples/eval/<env>_eval.sh. The number of questions is not published. AgentGym's clients use the
# score as reward in BabyAI and SciWorld.
ENVIRONMENTS = {
    "textcraft": (374, "success", 30),
    "babyai": (810, "score", 20),
    "sciworld": (2120, "score", 30),
    "searchqa": (None, "success", 30),
    "webarena": (372, "success", 15),
}


def load(script, size="7b"):
    """Returns the config of a training script, and its environment."""
    folder, file = script.split("/")
    horizon = {"AgentGym-RL": "fixed", "ScalingInter-RL": "scaling"}[folder]
    name = file.removesuffix("_train.sh")
    module = importlib.import_module(f"configs.paper.{name}")
    return plain(module.get_config(f"size={size},horizon={horizon}")), name


def value_at(config, path):
    for key in path.split("."):
        config = config[key]
    return config


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_config_has_the_values_shared_by_all_scripts(script):
    config, _ = load(script)
    found = {path: value_at(config, path) for path, _, _ in SHARED}
    assert found == {path: expected for path, expected, _ in SHARED}


@pytest.mark.parametrize(("script", "row"), SCRIPTS.items())
def test_every_config_has_the_values_of_its_script(script, row):
    rounds, period, batch, samples, mini_batch, prompt, response, max_tokens, epochs = row
    config, environment = load(script)
    ids, reward, max_rounds = ENVIRONMENTS[environment]
    fixed = dict(kind="fixed", turns=rounds)
    growing = dict(kind="periodic", turns=rounds, period=period)
    assert config["horizon"] == (fixed if period is None else growing)
    assert config["rollout"]["tasks_per_step"] == batch
    assert config["rollout"]["group_size"] == samples
    assert batch / config["learner"]["mini_batches"] == mini_batch
    assert config["sampling"]["max_tokens"] == prompt + response
    assert config["sampling"]["max_turn_tokens"] == max_tokens
    assert config["rollout"]["reward"] == reward
    assert config["evaluation"]["max_turns"] == max_rounds
    if ids is None:
        assert config["total_steps"] == 350  # the curves in figure 7 of the paper end at this step
    else:
        # the last batch of an epoch is dropped if it is incomplete
        assert config["total_steps"] == epochs * (ids // batch)
    assert list(config["environments"]) == [environment]
    # data.shuffle draws ids with equal probability
    assert not config["environments"][environment]["weights"]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_turn_limit_rises_after_every_period(environment):
    script = f"ScalingInter-RL/{environment}_train.sh"
    limits, period = SCRIPTS[script][:2]
    horizon = rl.parse(load(script)[0]).horizon
    task = Task(environment, 0, "")
    at = [0, period - 1, period, 2 * period - 1, 2 * period, 10 * period]
    found = [horizon.limits([task], steps_done, {}, seed=0)[0].turns for steps_done in at]
    assert found == [limits[0], limits[0], limits[1], limits[1], limits[2], limits[2]]


def test_every_config_of_the_paper_covers_two_scripts():
    folder = importlib.import_module("configs.paper").__path__[0]
    names = {path.stem for path in pathlib.Path(folder).glob("*.py")}
    assert names - {"__init__", "common"} == set(ENVIRONMENTS)
    assert {load(script)[1] for script in SCRIPTS} == set(ENVIRONMENTS)


def test_the_option_size_changes_only_the_model():
    large, _ = load("ScalingInter-RL/babyai_train.sh")
    small, _ = load("ScalingInter-RL/babyai_train.sh", size="3b")
    assert small["model"].pop("source") == "Qwen/Qwen2.5-3B-Instruct"
    del large["model"]["source"]
    assert small == large


@pytest.mark.parametrize("option", ["size=70b", "horizon=growing"])
def test_the_error_for_an_unknown_option_lists_the_known_ones(option):
    name, value = option.split("=")
    module = importlib.import_module("configs.paper.textcraft")
    with pytest.raises(ValueError, match=f"unknown {name} '{value}'.*Known: "):
        module.get_config(option)


def test_published_grpo_weighs_episodes_of_any_length_equally():
    options = rl.parse(load("AgentGym-RL/textcraft_train.sh")[0]).algorithm.aggregation
    # Two episodes are solved in 2 tokens; two episodes fail after 6 tokens.
    mask_BT = np.arange(6) < np.array([2, 2, 6, 6])[:, None]
    weight_BT = aggregation.token_weights(jnp.asarray(mask_BT), jnp.ones(4, bool), **options)
    np.testing.assert_allclose(np.asarray(weight_BT).sum(axis=1), [0.25] * 4, rtol=1e-6)
