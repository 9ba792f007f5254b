"""Checks of all runs of a sweep before the first run starts."""

import pathlib

import pytest

from agentgym_jax.config.config_files import resolve
from agentgym_jax.config.sections import ConfigError
from agentgym_jax.sweeps.configs import check_runs, load_run, load_sweep
from agentgym_jax.sweeps.spec import Sweep, grid, listed
from configs.rl import bandit

ROOT = pathlib.Path(__file__).parents[2]


def sweep(*axes, config="configs/rl/bandit.py:smoke", seeds=(0,)):
    return Sweep(config=config, axes=axes, seeds=seeds, metric="eval/score")


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([grid("optimizer.learning_rat", (1e-3,))], "did you mean optimizer.learning_rate?"),
        ([grid("rate.learning_rate", (1e-3,))], "did you mean optimizer.learning_rate?"),
        ([grid("algorithm", ("ppo",))], "algorithm is a section of the config: set keys in it"),
        ([grid(":algorithn", ("ppo",))], "did you mean 'algorithm'?"),
        (
            [grid(":algorithm", ("grpo", "a2c"))],
            "run algorithm=a2c_seed=0: unknown algorithm 'a2c'",
        ),
        ([grid("total_steps", (3, 2.5))], "--config.total_steps=2.5"),
        ([grid("optimizer.learning_rate", (1e-3, -1.0))], "learning_rate=-1_seed=0: config.optim"),
        ([grid("learner.mini_batches", (2, 7))], "mini_batches=7_seed=0"),
    ],
)
def test_a_run_with_an_invalid_config_is_named_in_one_line(axes, message):
    with pytest.raises(ConfigError) as error:
        check_runs(sweep(*axes))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rollout.truncation", "mask"),
        ("rollout.overlong.kind", "none"),
        ("guards.window", 3),
        ("reference.source", "tiny"),
    ],
)
def test_a_key_that_the_base_config_leaves_out_can_be_an_axis(key, value):
    """Checks that a run has the config of the training command with the same flags."""
    axis = listed("kind", {"a": {key: value, "algorithm.kl_coef": 0.1}})
    (run,), _ = check_runs(sweep(axis))
    assert load_run(run.arguments) == resolve(
        "configs/rl/bandit.py:smoke", {key: value, "algorithm.kl_coef": 0.1, "seed": 0}
    )


def test_a_wrong_value_of_a_key_that_the_base_config_leaves_out_is_named():
    with pytest.raises(ConfigError, match="run truncation=x_seed=0: config.rollout.truncation='x'"):
        check_runs(sweep(grid("rollout.truncation", ("x",))))


def test_a_missing_base_config_is_named():
    with pytest.raises(ConfigError, match="base config configs/rl/nothing.py: there is no such"):
        check_runs(sweep(config="configs/rl/nothing.py"))
    with pytest.raises(ConfigError, match="config.job must be one of"):
        check_runs(sweep(config="configs/eval/suite.py"))


def test_a_run_has_the_config_of_a_single_run_with_its_values():
    axis = listed("kind", {"a": {":algorithm": "rloo", "optimizer.learning_rate": 5}})
    runs, total_steps = check_runs(sweep(axis, seeds=(3,)))
    expected = bandit.get_config("smoke,algorithm=rloo")
    expected.optimizer.learning_rate = 5.0
    expected.seed = 3
    assert load_run(runs[0].arguments) == expected.to_dict()
    assert total_steps == {"kind=a_seed=3": 3}


def test_a_file_without_a_sweep_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="get_config returned ConfigDict"):
        load_sweep("configs/quickstart.py:smoke")
    path = tmp_path / "empty.py"
    path.write_text("")
    with pytest.raises(ConfigError, match="has no function get_config"):
        load_sweep(str(path))
    with pytest.raises(ConfigError, match="there is no such Python file"):
        load_sweep(str(tmp_path / "missing.py"))


def test_a_shipped_sweep_gets_its_options():
    assert load_sweep("configs/sweeps/bandit.py:smoke").config == "configs/rl/bandit.py:smoke"


@pytest.mark.parametrize("option", ["of=bandit", "of=two_rooms"])
def test_the_comparison_of_all_algorithms_is_a_sweep(option):
    path = "experiments/2026-11-22_every_algorithm/sweep.py"
    runs, total_steps = check_runs(load_sweep(f"{path}:{option}"))
    assert len(runs) == 42 and total_steps["algorithm=reinforce_seed=2"] == 90


def test_the_comparison_of_horizons_is_a_sweep(monkeypatch):
    folder = "experiments/2026-11-22_horizons"
    monkeypatch.syspath_prepend(ROOT / folder)
    runs, total_steps = check_runs(load_sweep(f"{folder}/sweep.py"))
    assert len(runs) == 12 and set(total_steps.values()) == {60}
