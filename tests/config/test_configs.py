"""Config files: each variant loads, and every section fits the function that reads it."""

import importlib
import json
import pathlib

import jax
import jax.numpy as jnp
import pytest

from agentgym_jax.config.config_files import resolve
from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.jobs import evaluation
from agentgym_jax.rl import rl_config as rl
from agentgym_jax.sweeps.configs import check_runs
from agentgym_jax.training.job_kinds import JOBS
from tests.builders import policy_tokens
from tests.run_python import output_of

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
FILES = sorted(
    p.relative_to(CONFIGS).with_suffix("").as_posix().replace("/", ".")
    for p in CONFIGS.rglob("*.py")
    if p.name not in ("__init__.py", "common.py", "algorithm_sections.py")
)
SWEEPS = [name for name in FILES if name.startswith("sweeps.")]
RUNS = [name for name in FILES if name not in SWEEPS]


def load(name, arg=None):
    return plain(importlib.import_module(f"configs.{name}").get_config(arg))


def parse(name, config):
    if name.startswith("eval."):
        return evaluation.parse(config)
    return JOBS[config["job"]].parse(config)


@pytest.mark.parametrize("arg", [None, "smoke"])
@pytest.mark.parametrize("name", RUNS)
def test_every_section_of_every_config_binds(name, arg):
    parse(name, load(name, arg))


@pytest.mark.parametrize("arg", [None, "smoke"])
@pytest.mark.parametrize("name", SWEEPS)
def test_every_run_of_every_sweep_binds(name, arg):
    sweep = importlib.import_module(f"configs.{name}").get_config(arg)
    runs, total_steps = check_runs(sweep)
    assert len(runs) == len(total_steps) >= 2 * len(sweep.seeds)


# Source code of a program that loads every config; argv[1] is a list of module names in JSON.
LOAD_ALL = """
import importlib, json, sys

for name in json.loads(sys.argv[1]):
    importlib.import_module(f"configs.{name}").get_config("smoke")
assert "jax" not in sys.modules
"""


def test_a_config_loads_without_jax():
    output_of("-c", LOAD_ALL, json.dumps(FILES), PYTHONPATH=str(CONFIGS.parent))


@pytest.mark.parametrize("name", FILES)
def test_every_config_documents_its_command_requirements_and_result(name):
    text = importlib.import_module(f"configs.{name}").__doc__
    path = f"configs/{name.replace('.', '/')}.py"
    assert f"--config={path}" in text
    for word in ("python -m agentgym_jax.", "Needs:", "Result:", "Source:"):
        assert word in text


@pytest.mark.parametrize("name", [name for name in RUNS if not name.startswith("eval.")])
def test_a_flag_adds_adapters_to_every_training_config(name):
    settings = parse(name, resolve(load(name), {"model.lora.rank": 4})).model
    assert settings.lora_settings.rank == 4
    assert parse(name, resolve(load(name), {"model.lora.rank": 0})).model.lora_settings is None


def changed(path, value):
    config = load("quickstart")
    *parents, last = path.split(".")
    section = config
    for parent in parents:
        section = section[parent]
    section[last] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("optimzer", {}, "config.optimzer: there is no such key"),
        ("rollout.group_sise", 8, "did you mean 'group_size'"),
        ("rollout.group_size", 1, "group_size=1"),
        ("learner.mini_batches", 7, "does not divide"),
        ("algorithm.old_logprobs_from", "nobody", "old_logprobs_from='nobody'"),
        ("sampling.max_tokens", 4096, "an episode must fit"),
        ("sampling.max_turn_tokens", 1024, "no room for a prompt"),
        ("sampling.temperature", 0.0, "temperature must be positive"),
        ("sampling.top_k", 5, "top_k and top_p must be off"),
        ("horizon", {"kind": "stepwise", "turns": (9, 3), "boundaries": (5,)}, "config.horizon"),
        ("horizon.kind", "growing", "config.horizon.kind='growing'"),
        ("algorithm.name", "grop", "config.algorithm.name='grop'"),
        ("algorithm.loss", {"clip": 0.2}, "config.algorithm.loss.clip"),
        ("algorithm.aggregation", {"mood": "token_mean"}, "config.algorithm.aggregation.mood"),
        ("algorithm.aggregation", {"mode": "fixed_length", "length": 0}, "length=0, expected"),
        ("algorithm.aggregation", {"mode": "fixed_length", "length": -9}, "length=-9, expected"),
        (
            "algorithm.correction",
            {"kind": ["none"]},
            "config.algorithm.correction.kind=['none'] is none",
        ),
        ("algorithm.loss.clip_low", 2**40, "needs 0 <= clip_low < 1"),
        ("rollout.overlong", {}, "overlong.kind is None"),
        (
            "sft.demonstrations.expert",
            3,
            "config.sft.demonstrations.expert is 3, expected a section",
        ),
        (
            "environments.babyai",
            3,
            "babyai is 3, expected a section; flags set its keys one by one",
        ),
        ("optimizer.name", "adam", "config.optimizer.name='adam': expected one of adamw, muon"),
        ("environments", {}, "config.environments is empty"),
        ("environments.babyai.train", {}, "has no train tasks"),
        (
            "client.step_timeout_s",
            1e12,
            "step_timeout_s=1000000000000.0: expected a number, above 0",
        ),
        ("environments", {"baby/ai": {}}, "the name 'baby/ai' is empty or has a slash"),
        ("environments.babyai.eval.kind", "all", "kind='all'"),
        ("sft", {}, "config.sft lacks steps"),
        ("sft.rows", 12, "micro_rows"),
        ("sft.demonstrations.expert.agent_name", "x", "agent_name"),
        ("model.architecture", {}, "architecture"),
        ("tokenizer.template", "odd", "template='odd'"),
        ("evaluation.samples", -1, "config.evaluation.samples=-1"),
    ],
)
def test_the_error_for_an_invalid_value_names_its_key(path, value, message):
    with pytest.raises(ConfigError) as error:
        rl.parse(changed(path, value))
    assert message in str(error.value)


def test_whole_numbers_of_any_size_are_coefficients_of_a_loss():
    config = changed("algorithm.loss.clip_high", 2**40)
    config["algorithm"]["kl_coef"] = config["algorithm"]["entropy_coef"] = 2**40
    found = rl.parse(config).algorithm
    zero_BT = jnp.zeros((1, 2))
    tokens = policy_tokens(zero_BT, zero_BT, zero_BT + 1.0, jnp.ones((1, 2), int))
    assert jnp.all(jnp.isfinite(jax.jit(found.token_loss)(tokens).loss_BT))
    weighted = jax.jit(lambda x: x * found.regularisation["kl_coef"])
    assert weighted(1.0) == 2.0**40


def test_one_error_names_all_values_that_contradict_each_other():
    config = changed("learner.mini_batches", 7)
    config["sampling"]["top_k"] = 5
    with pytest.raises(ConfigError, match=r"mini_batches=7 does not divide[^\n]*\n.*top_k"):
        rl.parse(config)


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith(("rl.", "paper."))])
def test_every_training_config_can_be_evaluated_on_its_held_out_tasks(name):
    assert evaluation.parse(load("eval.held_out", f"of=configs/{name.replace('.', '/')}.py:smoke"))


def test_held_out_takes_the_tasks_and_limits_of_a_training_config():
    trained = load("rl.bandit")
    assert trained["environments"]["bandit"]["weights"]
    config = load("eval.held_out", "of=configs/rl/bandit.py:algorithm=rloo")
    for section in ("client", "env_server", "sampling", "rollout", "pool"):
        assert config[section] == trained[section]
    assert config["environments"]["bandit"] == trained["environments"]["bandit"] | {
        "train": {},
        "weights": {},
    }
    assert evaluation.parse(config)
