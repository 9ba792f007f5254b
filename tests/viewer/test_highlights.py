from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.viewer.report import read_run
from agentgym_jax.viewer.run_summary import page_of

LOST = [("turn left", "wall", 0.0)]
WON = [("open the door", "The task is completed.", 0.9)]


def found(run):
    """Returns the highlights of a run by their titles."""
    return {item["title"]: item for item in page_of(read_run(run))["highlights"]}


def test_tasks_that_were_won_and_lost_are_linked_to_their_first_evaluation(make_run, make_record):
    def evaluation(*solved):
        return [
            make_record(
                item=f"babyai_{i}",
                turns=WON if i in solved else LOST,
                outcome=Outcome.SUCCESS if i in solved else Outcome.FAILURE,
            )
            for i in range(4)
        ]

    items = found(make_run({"eval_000000": evaluation(0, 1), "eval_000009": evaluation(1, 2, 3)}))
    assert (items["Regression"]["episode"], items["Regression"]["other"]) == (4, 0)
    assert (items["Newly solved"]["episode"], items["Newly solved"]["other"]) == (6, 2)
    assert items["Newly solved"]["why"].startswith("2 of 4 tasks were unsolved at evaluation 0")


def test_the_first_solved_episode_of_a_group_is_listed_if_earlier_steps_failed(learning_run):
    items = found(learning_run)
    assert items["First solved"]["episode"] == 3
    assert items["First solved"]["why"] == (
        "first solved episode of Unlock, step 2, after 3 unsolved ones"
    )
    assert items["Informative group"]["other"] == 4
    assert "1 of 2 samples" in items["Informative group"]["why"]


def test_a_group_that_was_solved_at_once_has_no_first_solved_episode(make_run, make_record):
    records = [make_record(), make_record(turns=WON, outcome=Outcome.SUCCESS, sample=1)]
    assert "First solved" not in found(make_run({"step_000001": records}))


def test_parse_errors_loops_and_errors_are_listed(make_run, make_record):
    loop = [("turn left", "wall", 0.0)] * 4
    records = [
        make_record(turns=[(None, "", 0.0)] * 2),
        make_record(turns=loop, sample=1),
        make_record(sample=2, outcome=Outcome.ENV_ERROR),
    ]
    items = found(make_run({"step_000001": records}))
    assert items["Parse errors"]["episode"] == 0 and "2 turns" in items["Parse errors"]["why"]
    assert items["Loop"]["episode"] == 1 and "3 turns repeat" in items["Loop"]["why"]
    assert items["Error"]["episode"] == 2 and "env error" in items["Error"]["why"]
    assert "Longest episode" not in items  # the loop is the longest and is listed already


def test_the_episode_with_the_highest_advantage_is_listed(make_run, make_record):
    def record(advantage, sample):
        plain = make_record(sample=sample)
        turn, values = plain["turns"][0], [0.0] * len(plain["tokens"])
        values[turn["action_start"]] = advantage
        return plain | {"advantages": values}

    items = found(make_run({"step_000001": [record(0.2, 0), record(1.5, 1), record(-3.0, 2)]}))
    assert items["Highest advantage"]["episode"] == 1
    assert "advantage 1.5 at step 1" in items["Highest advantage"]["why"]


def test_a_run_without_episodes_has_no_highlights(make_run):
    assert page_of(read_run(make_run({}, {1: {"sft/loss": 1.0}})))["highlights"] == []
