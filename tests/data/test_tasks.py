import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.textcraft.tasks import content_manifest
from agentgym_jax.data import tasks
from agentgym_jax.data.tasks import MixtureSchedule, Task, TaskSchedule, group_label
from agentgym_jax.telemetry.metrics import lookup
from configs import quickstart


def some_tasks(environment, count, groups=("a", "b", "c")):
    return [Task(environment, i, groups[i % len(groups)]) for i in range(count)]


def alone(chosen, weights=None, *, seed):
    """Returns the schedule of a run whose only environment has these tasks."""
    name = chosen[0].environment
    return MixtureSchedule({name: TaskSchedule(chosen, weights or {}, seed=seed)}, {name: 1})


def mixture(weights, *, count=7, seed=5):
    schedules = {
        name: TaskSchedule(some_tasks(name, count), {}, seed=seed)
        for name, weight in weights.items()
        if weight
    }
    return MixtureSchedule(schedules, weights)


def indices(chosen):
    return [task.data_idx for task in chosen]


weights_of_three = st.tuples(*[st.integers(0, 9)] * 3).filter(any)


def test_an_epoch_has_every_task_once_and_spreads_its_groups():
    schedule = alone(some_tasks("babyai", 7), seed=5)  # 3 tasks of group a, 2 of b, 2 of c
    first, second = schedule.at(0, 7), schedule.at(1, 7)
    assert [task.group for task in first] == [task.group for task in second] == list("abcaabc")
    assert sorted(indices(first)) == sorted(indices(second)) == list(range(7))
    assert indices(first) != indices(second)


@pytest.fixture(scope="module")
def textcraft_tasks():
    """Returns as many TextCraft training tasks as AgentGym-RL has; few have a deep recipe."""
    return tasks.from_split(
        "textcraft", content_manifest(), split="train", group_by="depth", where={}, limit=374
    )


def test_a_task_of_a_small_group_is_drawn_as_often_as_any_other(textcraft_tasks):
    sizes = collections.Counter(task.group for task in textcraft_tasks)
    assert sizes["depth 4"] == 7 and max(sizes.values()) > 20 * sizes["depth 4"]
    schedule = alone(textcraft_tasks, seed=0)
    drawn = [task for step in range(300) for task in schedule.at(step, 32)]
    visits = collections.Counter(drawn)
    epochs = len(drawn) // len(textcraft_tasks)
    assert {visits[task] for task in textcraft_tasks} == {epochs, epochs + 1}


def test_every_step_has_groups_in_proportion_to_their_tasks(textcraft_tasks):
    schedule = alone(textcraft_tasks, seed=0)
    share = collections.Counter(task.group for task in textcraft_tasks)
    for step in range(30):
        drawn = collections.Counter(task.group for task in schedule.at(step, 32))
        for group, size in share.items():
            assert abs(drawn[group] - 32 * size / len(textcraft_tasks)) < 2


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1),
    st.integers(0, 3),
)
def test_every_epoch_has_every_task_once_for_any_groups(sizes, seed, epoch):
    groups = [str(group) for group, size in enumerate(sizes) for _ in range(size)]
    schedule = alone([Task("x", i, group) for i, group in enumerate(groups)], seed=seed)
    assert sorted(indices(schedule.at(epoch, len(groups)))) == list(range(len(groups)))


def test_weights_change_the_frequency_of_groups():
    chosen = some_tasks("babyai", 7)
    drawn = alone(chosen, {"a": 6}, seed=5).at(0, 10)  # 6 tasks of group a, 2 of b, 2 of c
    assert "".join(task.group for task in drawn) == "aabacaabac"
    assert {task.group for task in alone(chosen, {"b": 0, "c": 1}, seed=5).at(0, 30)} == {"a", "c"}
    uniform = alone(chosen, {"a": 1, "b": 1, "c": 1}, seed=5).at(0, 6)
    assert "".join(task.group for task in uniform) == "abcabc"


def test_the_tasks_of_the_quickstart_do_not_change():
    options = quickstart.tasks(100, 1100, quickstart.LEVELS)
    del options["kind"]
    schedule = alone(tasks.from_residues("babyai", (), **options), seed=0)
    # fmt: off
    assert indices(schedule.at(0, 20)) == [
        16320, 35493, 25459, 17180, 6360, 29893, 36179, 29940, 19200, 33933,
        24659, 26900, 18360, 20893, 15299, 28500, 33040, 39853, 18779, 5820,
    ]
    assert indices(schedule.at(25, 8)) == [23320, 6733, 40379, 25420, 13680, 23573, 8459, 17380]
    # fmt: on


def test_the_number_of_tasks_per_step_does_not_change_their_order():
    schedule = mixture({"x": 1, "y": 2})
    assert schedule.drawn(8, 12) == schedule.at(2, 4) + schedule.at(3, 4) + schedule.at(4, 4)


def test_the_order_of_a_mixture_matches_a_hand_computed_example():
    def order(weights, count):
        return "".join(task.environment for task in mixture(weights).at(0, count))

    assert order({"b": 3, "t": 1}, 8) == "bbbtbbbt"
    # After two draws, b already has its share of three draws (3 * 4/7, rounded up), so the third
    # draw is t.
    assert order({"b": 4, "t": 2, "w": 1}, 7) == "bbtbtbw"


@given(weights_of_three, st.integers(0, 3), st.integers(1, 30))
def test_proportions_are_exact_over_a_cycle_from_any_step(weights, step, count):
    schedule = mixture(dict(zip("xyz", weights, strict=True)))
    cycle = sum(weights)
    drawn = [task for s in range(step, step + cycle) for task in schedule.at(s, count)]
    counts = collections.Counter(task.environment for task in drawn)
    assert [counts[name] for name in "xyz"] == [weight * count for weight in weights]


@given(weights_of_three, st.integers(1, 100))
def test_counts_differ_from_exact_proportions_by_less_than_one_task(weights, length):
    drawn = mixture(dict(zip("xyz", weights, strict=True))).at(0, length)
    counts = collections.Counter(task.environment for task in drawn)
    for name, weight in zip("xyz", weights, strict=True):
        assert abs(counts[name] - length * weight / sum(weights)) < 1


@given(weights_of_three, st.integers(1, 9), st.lists(st.integers(0, 50), max_size=5))
def test_a_step_depends_only_on_its_number(weights, count, asked_before):
    weights = dict(zip("xyz", weights, strict=True))
    ran_through, resumed = mixture(weights), mixture(weights)
    through = [ran_through.at(step, count) for step in range(20)]
    for step in asked_before:
        resumed.at(step, count)
    assert [resumed.at(step, count) for step in range(7, 20)] == through[7:]


@given(weights_of_three)
def test_a_mixture_keeps_the_task_order_of_each_environment(weights):
    weights = dict(zip("xyz", weights, strict=True))
    drawn = mixture(weights).at(0, 60)
    for name in weights:
        own = [task for task in drawn if task.environment == name]
        assert own == alone(some_tasks(name, 7), seed=5).at(0, 60)[: len(own)]


def test_only_proportions_of_the_weights_matter():
    assert mixture({"x": 4, "y": 6}).at(0, 30) == mixture({"x": 2, "y": 3}).at(0, 30)


def test_an_environment_of_weight_0_is_never_drawn():
    assert {t.environment for t in mixture({"x": 1, "y": 0}).at(0, 50)} == {"x"}


def test_every_task_is_drawn_once_before_any_is_repeated():
    drawn = alone(some_tasks("x", 6, groups=("a", "b")), seed=1).at(0, 12)
    assert sorted(indices(drawn[:6])) == sorted(indices(drawn[6:])) == list(range(6))


def test_a_schedule_without_tasks_is_an_error():
    with pytest.raises(ValueError, match="no tasks to draw from"):
        TaskSchedule([], {}, seed=0)


def test_a_weight_of_an_unknown_group_is_an_error():
    with pytest.raises(ValueError, match=r"name groups \['d'\]; there are \['a', 'b', 'c'\]"):
        TaskSchedule(some_tasks("x", 7), {"d": 2}, seed=0)


def test_group_labels_name_the_environment_only_in_a_mixture():
    assert tasks.group_label("textcraft", "depth 2", is_mixture=False) == "depth 2"
    assert tasks.group_label("textcraft", "depth 2", is_mixture=True) == "textcraft depth 2"
    assert tasks.group_label("textcraft", "textcraft", is_mixture=True) == "textcraft"


@pytest.mark.parametrize("is_mixture", [False, True])
@pytest.mark.parametrize("group", ["go to", "reasoning/logic", "/", "", "a\nb", "babyai"])
def test_every_group_has_metrics(group, is_mixture):
    label = group_label("babyai", group, is_mixture=is_mixture)
    for name in ("rollout/success", "eval/score_greedy", "horizon/turns"):
        assert lookup(f"{name}/{label}").description
