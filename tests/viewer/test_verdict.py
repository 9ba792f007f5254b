import pytest

from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.evaluation.scores import write_scores
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.viewer.comparison import comparison_of
from agentgym_jax.viewer.report import read_run
from agentgym_jax.viewer.run_summary import page_of
from tests.builders import episode_score

LEVELS = {"kind": "residues", "modulus": 40, "groups": {"Unlock": 24, "Pickup": 25}}
CONFIG = {
    "environments": {"babyai": {"eval": LEVELS}},
    "evaluation": {"samples": 1, "greedy": True},
}
DECODING = {"mode": "sampled", "max_turns": {"babyai": 5}}


@pytest.fixture
def evaluated(make_run, make_record):
    """Returns a function that writes a run from the solved tasks of every evaluation.

    `solved` maps steps to pairs: tasks solved sampled and tasks solved greedily. Of 20 tasks, those
    with an even number have the level Unlock and the others Pickup.
    """

    def write(solved, config=CONFIG, name="run"):
        def episode(number, sample, is_solved):
            return make_record(
                item=f"babyai_{40 * number + 24 + number % 2}",
                sample=sample,
                turns=[("go", "gone", 0.9 * is_solved)],
                outcome=Outcome.SUCCESS if is_solved else Outcome.FAILURE,
            )

        files = {
            f"eval_{step:06d}": [
                episode(number, sample, number in tasks)
                for number in range(20)
                for sample, tasks in enumerate(modes)
            ]
            for step, modes in solved.items()
        }
        return read_run(make_run(files, {0: {"rollout/success": 0.5}}, config, name=name))

    return write


def test_a_run_that_solves_more_held_out_tasks_has_learned(evaluated):
    run = evaluated({0: (range(2), ()), 5: (range(9), ()), 8: (range(16), range(3))})
    verdict = page_of(run)["verdict"]
    assert (verdict["level"], verdict["title"]) == ("good", "Learned")
    assert "went from 10 % (step 0) to 80 % (step 8) on 20 tasks: +70 points" in verdict["text"]
    assert "The greedy episodes say otherwise: +15 points" in verdict["text"]
    sampled, greedy = verdict["changes"]
    assert (sampled["mode"], sampled["success_a"], sampled["success_b"]) == ("sampled", 0.1, 0.8)
    assert (greedy["mode"], greedy["success_b"], greedy["level"]) == ("greedy", 0.15, "open")
    low, high = sampled["interval"]
    assert 0.4 < low < 0.7 < high < 1


def test_groups_have_their_own_difference_and_intervals(evaluated):
    solved = set(range(0, 20, 2)) | {1}
    changes = page_of(evaluated({0: ((), ()), 4: (solved, ())}))["verdict"]["changes"]
    groups = {group["group"]: group for group in changes[0]["groups"]}
    assert (groups["Unlock"]["success_b"], groups["Unlock"]["level"]) == (1, "good")
    assert (groups["Pickup"]["success_b"], groups["Pickup"]["level"]) == (0.1, "open")
    assert groups["Unlock"]["tasks"] == 10 and groups["Unlock"]["interval_b"][0] > 0.7


def test_a_run_that_forgets_is_called_worse(evaluated):
    verdict = page_of(evaluated({0: (range(18), ()), 4: (range(3), ())}))["verdict"]
    assert (verdict["level"], verdict["title"]) == ("bad", "Got worse")


def test_a_difference_of_few_tasks_is_no_verdict(make_run, make_record):
    def evaluation(outcome):
        return [make_record(item=f"babyai_{40 * i + 24}", outcome=outcome) for i in range(4)]

    files = {
        "eval_000000": evaluation(Outcome.FAILURE),
        "eval_000003": evaluation(Outcome.SUCCESS),
    }
    verdict = page_of(read_run(make_run(files)))["verdict"]
    assert (verdict["level"], verdict["title"]) == ("open", "No clear change")
    assert "+100 points, too few tasks for a verdict" in verdict["text"]


def test_a_single_evaluation_shows_no_change(evaluated):
    verdict = page_of(evaluated({7: (range(5), range(10))}))["verdict"]
    assert (verdict["level"], verdict["title"]) == ("open", "25 % solved")
    assert [result["success_b"] for result in verdict["results"]] == [0.25, 0.5]
    assert {group["group"] for group in verdict["results"][0]["groups"]} == {"Pickup", "Unlock"}


@pytest.mark.parametrize(
    "name, words",
    [
        ("sft/loss", "training loss per token went from 2 nats to 0.5 nats"),
        ("dpo/accuracy", "share of preference pairs in the right order went from 200 % to 50 %"),
    ],
)
def test_a_run_without_evaluation_is_described_by_its_training(make_run, name, words):
    values = [2.0] * 5 + [1.0] + [0.5] * 5
    run = make_run({}, {step: {name: value} for step, value in enumerate(values, 1)})
    verdict = page_of(read_run(run))["verdict"]
    assert verdict["title"] == "No evaluation" and words in verdict["text"]


def test_the_table_of_evaluations_separates_the_decoding_modes(evaluated):
    table = page_of(evaluated({0: (range(2), ()), 8: (range(16), range(3))}))["evaluations"]
    assert [(row["step"], row["mode"], row["success"]) for row in table] == [
        (0, "sampled", 0.1),
        (0, "greedy", 0.0),
        (8, "sampled", 0.8),
        (8, "greedy", 0.15),
    ]
    assert all(row["tasks"] == row["episodes"] == 20 for row in table)


def test_all_episodes_of_a_run_at_temperature_0_are_greedy(evaluated):
    config = CONFIG | {"sampling": {"temperature": 0}, "evaluation": {"samples": 2}}
    (row,) = page_of(evaluated({0: ((), range(20))}, config))["evaluations"]
    assert (row["mode"], row["tasks"], row["episodes"], row["success"]) == ("greedy", 20, 40, 0.5)


def test_groups_that_the_config_does_not_define_are_those_of_the_scores(evaluated):
    config = CONFIG | {"environments": {"babyai": {"eval": {"kind": "split"}}}}
    run = evaluated({0: (range(20), ())}, config)
    assert {row["group"] for row in run.rows[0]} == {"babyai"}
    folder = RunFolder(run.folder.path)
    episode = episode_score(run.rows[0][0]["item"], True, group="Doors")
    write_scores(folder.scores_path, [episode], model="m", decoding=DECODING, manifests={})
    assert {row["group"] for row in read_run(folder.path).rows[0]} == {"babyai", "Doors"}


def test_two_runs_are_compared_on_the_same_tasks(evaluated):
    a = evaluated({0: ((), ()), 6: (range(4), range(4))}, name="a")
    b = evaluated({6: (range(2, 18), range(4))}, CONFIG | {"seed": 3}, name="b")
    found = comparison_of(a, b)
    comparison = found["comparison"]
    assert comparison["verdict"]["title"] == "B is better"
    assert "B solves 80 % (step 6) and A 20 % (step 6)" in comparison["verdict"]["text"]
    assert comparison["config"] == [["seed", "absent", "3"]]
    assert [file["name"] for file in found["files"]] == [
        "a.eval_000000",
        "a.eval_000006",
        "b.eval_000006",
    ]
    sampled = comparison["tasks"][0]
    assert sampled["counts"] == [14, 2] and len(sampled["lost"]) == 2
    items = found["episodes"]["item"]["index"]
    success = found["episodes"]["success"]
    for left, right in sampled["gained"]:
        assert items[left] == items[right] and 40 <= left < 80 <= right
        assert (success[left], success[right]) == (0, 1)


def test_two_runs_without_common_tasks_are_not_comparable(evaluated, make_run, make_record):
    a = evaluated({0: ((), ())}, name="a")
    other = make_run({"eval_000000": [make_record(item="maze_3")]}, name="b")
    verdict = comparison_of(a, read_run(other))["comparison"]["verdict"]
    assert verdict["title"] == "Not comparable" and "no task with valid" in verdict["text"]
    empty = make_run({"step_000001": [make_record()]}, name="c")
    verdict = comparison_of(a, read_run(empty))["comparison"]["verdict"]
    assert verdict["text"] == "There is no evaluation in c."


def test_runs_on_other_versions_of_the_tasks_are_not_comparable(evaluated):
    runs = [evaluated({0: (range(3), ())}, name=name) for name in "ab"]
    for run, digest in zip(runs, ("1" * 64, "2" * 64), strict=True):
        about = dict(model="m", decoding=DECODING, manifests={"babyai": digest})
        write_scores(run.folder.scores_path, [], **about)
    verdict = comparison_of(*runs)["comparison"]["verdict"]
    assert verdict["title"] == "Not comparable" and "the task manifest is 1111" in verdict["text"]


def test_runs_with_the_same_folder_name_are_named_by_their_path(evaluated):
    a, b = (evaluated({0: ((), ())}, name=name) for name in ("x/run", "y/run"))
    assert comparison_of(a, b)["name"] == "x/run and y/run"
