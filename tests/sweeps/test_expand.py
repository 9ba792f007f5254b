"""Expansion of sweep files to runs: combinations, names, arguments, and refused sweeps."""

import pathlib
import shlex

import numpy as np
import pytest

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.sweeps.expand import expand, train_command
from agentgym_jax.sweeps.spec import Sweep, grid, label, listed, zipped
from tests.run_python import output_of

ROOT = pathlib.Path(__file__).parents[2]
RATE = "optimizer.learning_rate"


def sweep(*axes, **changes):
    options = dict(config="configs/rl/bandit.py", seeds=(0,), metric="eval/success") | changes
    return Sweep(axes=axes, **options)


def names(*axes, **changes):
    return [run.name for run in expand(sweep(*axes, **changes))]


def test_a_grid_has_every_combination_and_one_seed_of_each_before_the_second():
    axes = grid(":algorithm", ("grpo", "rloo")), grid(RATE, (1e-4, 2e-4))
    found = names(*axes, seeds=(0, 7))
    assert found[:4] == [
        "algorithm=grpo_learning_rate=0.0001_seed=0",
        "algorithm=grpo_learning_rate=0.0002_seed=0",
        "algorithm=rloo_learning_rate=0.0001_seed=0",
        "algorithm=rloo_learning_rate=0.0002_seed=0",
    ]
    assert [name.replace("seed=7", "seed=0") for name in found[4:]] == found[:4]


def test_zipped_keys_change_together():
    axis = zipped({RATE: (1e-4, 2e-4), "total_steps": (10, 5)}, name="pace")
    runs = expand(sweep(axis))
    assert [run.name for run in runs] == ["pace=0.0001-10_seed=0", "pace=0.0002-5_seed=0"]
    assert runs[1].arguments[1:3] == (f"--config.{RATE}=0.0002", "--config.total_steps=5")


def test_an_axis_applies_only_where_its_condition_holds():
    critic = grid("algorithm.critic.warmup_steps", (0, 5), only={"algorithm": ("ppo",)})
    assert names(grid(":algorithm", ("grpo", "ppo")), critic) == [
        "algorithm=grpo_seed=0",
        "algorithm=ppo_warmup_steps=0_seed=0",
        "algorithm=ppo_warmup_steps=5_seed=0",
    ]


def test_options_follow_those_of_the_base_and_other_keys_are_overrides():
    axis = listed("kind", {"a": {":algorithm": "ppo", "horizon.turns": (2, 3)}})
    (run,) = expand(
        sweep(axis, config="configs/rl/bandit.py:smoke", settings={"evaluation.greedy": False})
    )
    assert run.arguments == (
        "--config=configs/rl/bandit.py:smoke,algorithm=ppo",
        "--config.evaluation.greedy=false",
        "--config.horizon.turns=(2, 3)",
        "--config.seed=0",
    )
    assert shlex.join(train_command(run, "w")).endswith(
        "'--config.horizon.turns=(2, 3)' --config.seed=0 --workdir=w"
    )
    assert train_command(run, "w", "py")[:3] == ["py", "-m", "agentgym_jax.train"]


def test_values_of_numpy_are_written_like_those_of_python():
    rates, widths = np.array([1e-4, 2e-4]), [(np.int64(2), np.float64(0.5))]
    axes = grid(RATE, rates), grid("horizon.turns", widths)
    run = expand(sweep(*axes, settings={"total_steps": np.int32(3), "flag": np.bool_(True)}))[1]
    assert run.name == "learning_rate=0.0002_turns=2-0.5_seed=0"
    assert run.arguments[1:-1] == (
        "--config.total_steps=3",
        "--config.flag=true",
        f"--config.{RATE}=0.0002",
        "--config.horizon.turns=(2, 0.5)",
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-4, "0.0001"),
        (0.1 + 0.2, "0.30000000000000004"),
        (True, "True"),
        ((6, 8), "6-8"),
        ("a/b c_d", "a-b-c_d"),
        ("", "none"),
        (-1, "-1"),
    ],
)
def test_a_label_has_only_characters_for_file_names(value, text):
    assert label(value) == text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sweep(metric="eval/sucess"), "eval/success"),
        (lambda: sweep(goal="maximum"), "did you mean 'max'?"),
        (lambda: sweep(step="first"), "unknown step 'first'"),
        (lambda: sweep(seeds=()), "seeds=()"),
        (lambda: sweep(seeds=(1, 1)), "seeds=(1, 1)"),
        (lambda: sweep(seeds=(0.5,)), "seeds=(0.5,)"),
        (lambda: sweep(memory_gib=0), "memory_gib=0"),
        (lambda: grid(RATE, ()), "has no values"),
        (lambda: listed("a", {"x": {"": 1}}), "axis 'a' has an empty key"),
        (lambda: grid(":", (1,)), "axis '' has an empty key"),
        (lambda: grid(RATE, (1e-4, 1e-4)), "has the value 0.0001 twice"),
        (lambda: grid("seed", (0, 1)), "list the seeds in `seeds`"),
        (lambda: sweep(settings={"seed": 1}), "list the seeds in `seeds`"),
        (lambda: zipped({"a": (1, 2), "b": (1,)}), "equally many values; got a 2, b 1"),
        (
            lambda: sweep(grid("a.rate", (1,)), grid("b.rate", (1,))),
            "two axes have the name 'rate'",
        ),
        (lambda: listed("a b", {"x": {}}), "use letters, digits and underscores"),
        (lambda: sweep(grid("a", (1, 2)), baseline={"b": 1}), "unknown axis in the baseline 'b'"),
        (lambda: sweep(grid("a", (10, 20)), baseline={"a": 11}), "did you mean '10'?"),
        (
            lambda: sweep(grid("a", (1,), only={"b": (1,)}), grid("b", (1,))),
            "unknown axis in the condition of axis 'a' 'b'",
        ),
        (
            lambda: expand(sweep(grid("a.x", (1,)), grid("a.x", (2,), name="other"))),
            "axis 'other' sets a.x, which axis 'x' also sets",
        ),
        (lambda: expand(sweep(listed("a", {"x" * 250: {}}))), "use `listed` with short labels"),
    ],
)
def test_a_wrong_sweep_is_refused_in_one_line(make, message):
    with pytest.raises(ConfigError) as error:
        make()
    assert message in str(error.value) and "\n" not in str(error.value)


def test_two_runs_with_the_same_name_are_refused():
    axes = listed("a", {"1": {"x": 1}}), listed("_a", {"1": {"y": 1}})
    twice = sweep(*axes)
    object.__setattr__(twice, "seeds", (3, 3))
    with pytest.raises(ConfigError, match="two runs have the name a=1__a=1_seed=3"):
        expand(twice)


def test_a_sweep_file_needs_no_jax():
    program = (
        "import sys; from configs.sweeps import bandit; bandit.get_config(); "
        "assert 'jax' not in sys.modules"
    )
    output_of("-c", program, PYTHONPATH=str(ROOT))
