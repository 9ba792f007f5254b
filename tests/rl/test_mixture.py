import collections
import types

import pytest

from agentgym_jax.config.agent import AgentSettings
from agentgym_jax.config.environment_sections import check_trained, parse_settings
from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.data.tasks import Task
from agentgym_jax.jobs.environments import make_schedule
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.rl.build import open_rl
from agentgym_jax.rl.horizons import check_groups, parse_horizons
from agentgym_jax.rl.rl_config import parse
from configs import common, quickstart
from configs.rl import mixture as mixture_config
from configs.rl import textcraft_horizons

FIXED = dict(kind="fixed", turns=7)


def entry(**changes):
    tasks = quickstart.tasks(0, 1, {"GoTo": 9})
    return common.environment(**dict(train=tasks, eval=tasks) | changes)


def settings(**entries):
    return parse_settings(entries)


def turns(horizons, step, *groups):
    """Returns the turn limit of one task for each of `groups`.

    A group is written as `x.GoTo`: group GoTo of environment x.
    """
    tasks = [Task(x.split(".")[0], i, x.partition(".")[2]) for i, x in enumerate(groups)]
    limits = horizons.limits(tasks, step, {}, seed=0)
    return {group: limit.turns for group, limit in zip(groups, limits, strict=True)}


def test_each_environment_has_its_own_horizon_or_the_shared_one():
    own = dict(kind="periodic", turns=(6, 13), period=2)
    horizons = parse_horizons(FIXED, settings(babyai=entry(horizon=own), textcraft=entry()))
    assert [turns(horizons, step, "babyai", "textcraft") for step in (1, 2)] == [
        {"babyai": 6, "textcraft": 7},
        {"babyai": 13, "textcraft": 7},
    ]


def test_an_environment_that_only_evaluates_has_no_horizon():
    parsed = settings(babyai=entry(), maze=entry(weight=0, train={}))
    check_trained(parsed)
    assert list(parse_horizons(FIXED, parsed).schedules) == ["babyai"]


BY_GROUP = dict(
    kind="by_group",
    each=dict(kind="periodic", turns=(6, 13), period=2),
    groups={
        "GoTo": dict(kind="fixed", turns=4),
        "Open": dict(
            kind="mixed",
            schedules=dict(short=dict(kind="fixed", turns=5), long=dict(kind="fixed", turns=9)),
            weights=dict(short=1, long=2),
        ),
    },
)


def test_groups_without_their_own_horizon_use_the_horizon_each():
    horizons = parse_horizons(BY_GROUP, settings(babyai=entry()))
    found = turns(horizons, 2, "babyai.GoTo", "babyai.Pickup", "babyai.Open")
    assert found["babyai.GoTo"] == 4 and found["babyai.Pickup"] == 13
    assert found["babyai.Open"] in (5, 9)


def test_mixed_turn_limits_are_drawn_in_the_given_shares():
    horizons = parse_horizons(common.mixed_turns({5: 2, 10: 1, 20: 1}), settings(babyai=entry()))
    found = turns(horizons, 0, *(f"babyai.{i}" for i in range(200)))
    shares = collections.Counter(found.values())
    # 100 are expected; the standard deviation is 7
    assert set(shares) == {5, 10, 20} and 80 <= shares[5] <= 120


@pytest.mark.parametrize(
    ("option", "at_start", "at_the_end"),
    [("by_depth", {10}, {10}), ("mixed", {10, 30}, {30})],
)
def test_the_textcraft_config_has_the_chosen_horizon(option, at_start, at_the_end):
    arg = f"horizon={option},tell=every_turn"
    parsed = parse(plain(textcraft_horizons.get_config(arg)))
    groups = [f"textcraft.depth {i % 4}" for i in range(99)]
    limits = [set(turns(parsed.horizon, step, *groups).values()) for step in (0, 299)]
    # without results, the limits of all depths keep their values
    assert limits == [at_start, at_the_end]
    assert parsed.rollout.show_turn_budget == "every_turn"


def test_the_error_for_a_horizon_of_an_unknown_group_lists_the_known_groups():
    horizons = parse_horizons(BY_GROUP, settings(babyai=entry()))
    tasks = [Task("babyai", i, group) for i, group in enumerate(("GoTo", "Open", "Pickup"))]
    check_groups(horizons, tasks)
    with pytest.raises(ConfigError, match=r"horizon of babyai .*'Open'.* Known: 'GoTo', 'Pickup'"):
        check_groups(horizons, [*tasks[::2], Task("maze", 0, "Open")])


def test_evaluation_turns_can_be_set_per_environment():
    parsed = settings(babyai=entry(), textcraft=entry(eval_max_turns=30))
    agent = types.SimpleNamespace(
        environments=parsed, evaluation=types.SimpleNamespace(max_turns=20)
    )
    assert AgentSettings.evaluation_turns.fget(agent) == {"babyai": 20, "textcraft": 30}


def test_the_schedule_follows_the_weights_of_environments_and_of_their_groups():
    tasks = [Task(name, i, f"g{i % 2}") for name in ("x", "y", "z") for i in range(4)]
    schedule = make_schedule(
        settings(x=entry(weight=2, weights={"g0": 0}), y=entry(), z=entry(weight=0)), tasks, seed=0
    )
    drawn = schedule.at(0, 12)
    assert [task.environment for task in drawn] == ["x", "x", "y"] * 4
    assert {task.group for task in drawn if task.environment == "x"} == {"g1"}
    assert {task.group for task in drawn if task.environment == "y"} == {"g0", "g1"}


def test_the_error_for_a_weight_of_an_unknown_group_names_the_environment():
    parsed = settings(x=entry(), y=entry(weights={"typo": 2}))
    with pytest.raises(ConfigError, match=r"config.environments.y: .*typo"):
        make_schedule(parsed, [Task(name, 0, "g") for name in "xy"], seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(weight=0.5), "config.environments.babyai.weight=0.5: expected a whole number"),
        (dict(weight=-1), "config.environments.babyai.weight=-1"),
        (dict(wieght=1), "config.environments.babyai.wieght: there is no such key"),
        (dict(weight=0), "every weight is 0"),
        (dict(train={}), "config.environments.babyai has no train tasks"),
        (dict(eval_max_turns=-1), "config.environments.babyai.eval_max_turns=-1"),
        (dict(horizon=dict(turns=3)), "config.environments.babyai.horizon.kind=None"),
        (
            dict(horizon=dict(kind="fixed", turn=3)),
            "config.environments.babyai.horizon.turn: there is no such key",
        ),
        (
            dict(horizon=dict(kind="periodic", turns=(9, 3), period=5)),
            "config.environments.babyai.horizon: stepwise horizon needs",
        ),
        (
            dict(horizon=dict(kind="by_group", each=FIXED)),
            "config.environments.babyai.horizon lacks groups",
        ),
        (
            dict(horizon=dict(kind="by_group", each=FIXED, groups={"GoTo": dict(kind="odd")})),
            "config.environments.babyai.horizon.groups.GoTo.kind='odd'",
        ),
        (
            dict(horizon=dict(kind="by_group", each=BY_GROUP, groups={})),
            "config.environments.babyai.horizon.each.kind='by_group' is none of fixed",
        ),
        (
            dict(horizon=dict(kind="mixed", schedules=dict(a=FIXED), weights=dict(b=1))),
            "config.environments.babyai.horizon: a drawn horizon needs",
        ),
    ],
)
def test_the_error_for_an_invalid_environment_value_names_its_key(changes, message):
    config = plain(quickstart.get_config())
    config["environments"]["babyai"] |= changes
    with pytest.raises(ConfigError) as error:
        parse(config)
    assert message in str(error.value)


def test_unused_instructions_are_refused_before_a_server_starts(tmp_path):
    config = plain(quickstart.get_config())
    config["environments"]["babyai"]["instructions"] = "Walk."
    with pytest.raises(ConfigError, match="babyai.instructions"):
        with open_rl(config, tmp_path / "run", StopFlag()):
            pass
    assert not list(tmp_path.iterdir())


def test_the_mixture_config_accepts_any_known_environments():
    config = plain(mixture_config.get_config("environments=wordle+maze+babyai"))
    parsed = parse(config)
    limits = turns(parsed.horizon, 100, "babyai", "maze", "wordle")
    assert limits == {"babyai": 13, "maze": 15, "wordle": 8}
    assert parsed.evaluation_turns == {"babyai": 20, "maze": 15, "wordle": 8}
    with pytest.raises(ValueError, match="unknown environment 'webshop'"):
        mixture_config.get_config("environments=webshop")
