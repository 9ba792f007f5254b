"""Comparison of results: comparable task sets, leakage, suite scores and the results page."""

import dataclasses
import functools
import json

import pytest

from agentgym_jax import results
from agentgym_jax.data import suite
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.evaluation import compare, score_plots, score_report, scores
from agentgym_jax.evaluation.contamination import (
    describe_leakage,
    find_leakage,
    read_training_data,
)
from agentgym_jax.evaluation.suite_results import NOT_EVALUATED, describe_coverage, suite_scores
from agentgym_jax.evaluation.task_identity import item_facts
from tests.builders import episode_score

scored = functools.partial(episode_score, group="all", turns=3)

save = score_plots._save
HASH = {"textcraft": "a" * 64, "maze": "b" * 64}
MANIFESTS = {
    "textcraft": [{"data_idx": i, "split": "test", "goal": f"g{i}", "depth": 1} for i in range(9)],
    "maze": [{"data_idx": i, "split": "test", "start": [1, i]} for i in range(4)],
}
TASKS = [Task(name, row["data_idx"], "all") for name, rows in MANIFESTS.items() for row in rows]


def write(
    path,
    solved,
    *,
    samples=1,
    model="tiny",
    manifests=HASH,
    lists=MANIFESTS,
    mode="sampled",
    solving=range(99),
):
    """Writes a result file in which the items `solved` are solved in the samples `solving`."""
    items = item_facts(TASKS, lists)
    episodes = [scored(i, i in solved and s in solving, s) for i in items for s in range(samples)]
    facts = score_report.score_facts(
        episodes,
        items,
        max_turns={"textcraft": 5, "maze": 5},
        show_turn_budget="none",
        is_sampled=True,
        leakage=find_leakage(items, [], episodes, None),
    )
    path.mkdir(parents=True, exist_ok=True)
    return scores.write_scores(
        path / "scores.json",
        episodes,
        model=model,
        decoding={"mode": mode, "max_turns": {"textcraft": 5, "maze": 5}, "temperature": 1.0},
        manifests=manifests,
        facts=facts,
    )


GOOD = {t.item_id for t in TASKS if t.data_idx != 0}
BAD = {t.item_id for t in TASKS if t.data_idx == 1}


def test_the_command_writes_a_page_of_two_results(tmp_path):
    write(tmp_path / "a", BAD, samples=2)
    write(tmp_path / "b", GOOD, samples=2, model="better")
    out = tmp_path / "page" / "results.md"
    text = results.write(
        [str(tmp_path / "a"), str(tmp_path / "b/scores.json")], out, 1, with_plots=True
    )
    assert out.read_text() == text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    places = [i for i, row in enumerate(rows) if row.startswith(("| better |", "| tiny |"))]
    assert rows[places[0]].startswith("| better |")  # the row of the better result is first
    # solved tasks: 11 of 13 and 2 of 13
    assert "84.6 (" in rows[places[0]] and "15.4 (" in rows[places[1]]
    assert "## better against tiny" in text and "+69.2" in text
    assert "pass@2" in text and "majority of 2" in text and "## Files" in text
    assert "| all | 13 | 15.4 | 84.6 | +69.2 |" in text
    assert "Evaluated under other conditions" not in text
    for figure in ("success", "turn_budgets", "samples"):
        assert f"(results_plots/{figure}.png)" in text
        assert (out.parent / "results_plots" / f"{figure}.png").stat().st_size > 5000


def test_the_page_shows_leakage_and_evaluation_settings(tmp_path):
    trained = [row | {"split": "train"} for row in MANIFESTS["maze"]]
    write(tmp_path / "a", BAD, model="a|b")
    write(
        tmp_path / "b", GOOD, samples=2, solving=[0], lists=MANIFESTS | {"maze": trained}, mode="x"
    )
    text = results.write([tmp_path / "a", tmp_path / "b"], tmp_path / "r.md", 1, with_plots=False)
    assert "- tiny: 4 evaluated tasks are of the manifest's training split; the training of" in text
    assert "success without leaked items: 44.4 % of 9 tasks" in text
    assert "- a|b:" not in text and "a\\|b" in text
    assert "Evaluated under other conditions: mode: sampled before, x after." in text
    # One of two samples solves 11 of 13 tasks. The columns are pass@1, pass@2, majority of 1 and
    # majority of 2.
    assert "| tiny | 42.3 | 84.6 | 42.3 | 42.3 |" in text


def test_results_without_common_tasks_are_listed_but_not_compared(tmp_path):
    write(tmp_path / "a", BAD)
    only_maze = [
        e for e in scores.read_scores(tmp_path / "a/scores.json")[1] if "maze" in e.item_id
    ]
    (tmp_path / "b").mkdir()
    decoding = {"mode": "sampled", "max_turns": {"maze": 5}}
    for name, part in (("b", only_maze), ("c", [scored("wordle_1", True)])):
        (tmp_path / name).mkdir(exist_ok=True)
        scores.write_scores(
            tmp_path / name / "scores.json", part, model=name, decoding=decoding, manifests={}
        )
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    text = results.write(paths, tmp_path / "r.md", 1, with_plots=False)
    assert "## b against tiny" in text and "## c against" not in text and "| c |" in text
    assert "| maze success % |" in text
    alone = results.write(paths[1:2], tmp_path / "alone.md", 1, with_plots=False)
    assert "| maze success % |" not in alone and "| maze score |" in alone


def test_the_comparison_is_paired_by_task_and_names_other_differences(tmp_path):
    write(tmp_path / "a", BAD)
    write(tmp_path / "b", GOOD, mode="greedy")
    result = compare.compare(*compare.load([tmp_path / "a", tmp_path / "b"]))
    assert result["overall"]["difference"] == pytest.approx(9 / 13)
    assert result["overall"]["test"] == "mcnemar"
    assert result["overall"]["p_value"] == pytest.approx(2 / 2**9)
    assert set(result["environments"]) == {"maze", "textcraft"}
    assert set(result["groups"]) == {"maze all", "textcraft all"}
    assert result["decoding"] == {"mode": ("sampled", "greedy")}
    assert (result["a"], result["b"]) == ("tiny", "tiny (greedy)")


def test_the_error_for_results_of_another_manifest_names_the_difference(tmp_path, capsys):
    changed = {**MANIFESTS, "textcraft": [dict(r) for r in MANIFESTS["textcraft"]]}
    changed["textcraft"][4]["goal"] = "a castle"
    write(tmp_path / "a", BAD)
    write(tmp_path / "b", BAD, manifests=HASH | {"textcraft": "c" * 64}, lists=changed)
    with pytest.raises(compare.NotComparableError) as error:
        compare.compare(*compare.load([tmp_path / "a", tmp_path / "b"]))
    message = str(error.value)
    for words in (
        "textcraft",
        "aaaaaaaaaaaa",
        "cccccccccccc",
        "textcraft_4",
        "'g4' and 'a castle'",
    ):
        assert words in message
    assert "maze:" not in message and "1 of 9 common items" in message
    with pytest.raises(compare.NotComparableError):
        results.write([tmp_path / "a", tmp_path / "b"], tmp_path / "r.md", 0, with_plots=False)
    assert not (tmp_path / "r.md").exists()


def test_equal_items_of_different_manifests_are_still_refused(tmp_path):
    write(tmp_path / "a", BAD)
    write(tmp_path / "b", BAD, manifests=HASH | {"maze": "d" * 64})
    with pytest.raises(compare.NotComparableError, match="4 common items are the same"):
        compare.compare(*compare.load([tmp_path / "a", tmp_path / "b"]))


def test_an_environment_without_finished_tasks_on_one_side_has_no_difference(tmp_path):
    write(tmp_path / "a", BAD)
    write(tmp_path / "b", GOOD)
    a, b = compare.load([tmp_path / "a", tmp_path / "b"])
    failed = [
        dataclasses.replace(e, outcome=Outcome.ENV_ERROR) if "maze" in e.item_id else e
        for e in b.episodes
    ]
    result = compare.compare(a, dataclasses.replace(b, episodes=failed))
    assert result["environments"]["maze"] is None and result["overall"]["tasks"] == 9


def test_the_error_for_results_without_common_items_says_so(tmp_path):
    write(tmp_path / "a", BAD)
    later = {"textcraft": [], "maze": []}
    path = str(tmp_path / "a" / "scores.json")
    items = item_facts([Task("maze", 99, "all")], later)
    with pytest.raises(compare.NotComparableError, match="; the results have no item in common"):
        compare.check_same_tasks(path, {"maze": "e" * 64}, items)


def test_an_evaluation_is_refused_if_its_tasks_differ_from_an_older_result(tmp_path):
    write(tmp_path / "a", BAD)
    path = str(tmp_path / "a" / "scores.json")
    items = item_facts(TASKS, MANIFESTS)
    compare.check_same_tasks(path, HASH, items)
    compare.check_same_tasks(str(tmp_path / "a"), HASH, items)
    with pytest.raises(FileNotFoundError, match="name the folder of an evaluation"):
        compare.check_same_tasks(str(tmp_path / "b"), HASH, items)
    compare.check_same_tasks(path, {"maze": HASH["maze"], "wordle": "e" * 64}, items)
    with pytest.raises(compare.NotComparableError, match="maze: the task manifest is bbbbbbbbbbbb"):
        compare.check_same_tasks(path, {"maze": "e" * 64}, items)


def test_a_result_has_the_same_colour_in_every_figure(tmp_path, monkeypatch):
    """Checks that a result has the same colour in every figure, even if some tasks are missing."""
    write(tmp_path / "a", BAD, samples=2)
    write(tmp_path / "b", GOOD, samples=2, model="better")
    both = compare.load([tmp_path / "a", tmp_path / "b"])
    for result, name in zip(both, ("maze", "textcraft"), strict=True):
        for key in ("environments", "turn_budgets", "sample_counts"):
            result.document[key] = {name: result.document[key][name]}
    figures = []
    monkeypatch.setattr(
        score_plots,
        "_save",
        lambda figure, axes, path: figures.append((axes, save(figure, axes, path))),
    )
    score_plots.write_plots(both, tmp_path / "plots")
    assert len(figures) == 3
    for axes, _ in figures:
        (legend,) = axes[0].figure.legends
        words = " ".join(text.get_text() for text in legend.get_texts())
        assert "tiny" in words and "better" in words
        colours = {handle.get_color() for handle in legend.get_lines()}
        assert not colours or colours == {"C0", "C1"}


def test_two_results_of_one_model_are_distinguished(tmp_path):
    write(tmp_path / "a", BAD)
    write(tmp_path / "b", GOOD)
    names = [r.name for r in compare.load([tmp_path / "a", tmp_path / "b"])]
    assert names == [f"tiny, {tmp_path / 'a'}", f"tiny, {tmp_path / 'b'}"]


@pytest.mark.parametrize("text", ["{", "[]", '{"episodes": []}'])
def test_the_error_for_a_file_that_is_not_a_result_names_it(tmp_path, text):
    path = tmp_path / "scores.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"scores.json is no scores.json of this program"):
        compare.load([path])


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("episodes", 0, "success"), "yes", "episodes[0]: success='yes': expected True or False"),
        (("episodes", 1, "turns"), "2", "episodes[1]: turns='2': expected a whole number"),
        (("episodes", 1, "score"), None, "episodes[1]: score=None: expected a number"),
        (("episodes", 0, "outcome"), "won", "'won' is not a valid Outcome"),
        (("episodes", 0), "x", "episodes=['x',"),
        (("episodes",), {}, "episodes={}: expected a sequence"),
        (("decoding",), "greedy", "decoding='greedy': expected a section"),
        (("decoding", "mode"), None, "mode=None: expected a text"),
        (("decoding", "max_turns"), 3, "max_turns=3: expected a section"),
        (("overall", "pass_at_k"), [1.0], "pass_at_k=[1.0]: expected a section"),
        (("overall", "success"), "0.5", "overall: success='0.5': expected a number or None"),
        (("overall", "success_interval"), [0.5], "success_interval=[0.5]: expected a sequence"),
        (("environments", "maze", "tasks"), 1.5, "environments.maze: tasks=1.5"),
        (("groups",), [], "groups=[]: expected a section"),
        (("manifests", "maze"), 7, "manifests={'maze': 7,"),
    ],
)
def test_the_error_for_a_wrong_value_of_a_result_names_its_place(tmp_path, place, value, words):
    write(tmp_path / "a", BAD)
    path = tmp_path / "a/scores.json"
    document = json.loads(path.read_text())
    parent = document
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="is no scores.json of this program") as error:
        compare.load([path])
    assert words in str(error.value) and "\n" not in str(error.value)


# Tests of the suite


def suite_items(environment, n=None):
    """Returns the rows of pinned items by item id, as a server sends them."""
    return {
        f"{environment}_{index}": {"subtask": name, "digest": value, "facts": {"split": "test"}}
        for name, items in suite.pinned(environment).items()
        for index, value in list(items.items())[:n]
    }


def test_unplayed_items_are_missing_instead_of_zero():
    items = suite_items("textcraft")
    played = suite_scores([scored(i, True) for i in items], items)
    assert (played["played_subtasks"], played["of_subtasks"]) == (4, 27)
    assert played["overall"]["success"] == 1.0 and played["overall"]["environment_mean"] == 1.0
    assert not played["is_complete"] and list(played["environments"]) == ["textcraft"]
    reasons = {(r["environment"], r.get("missing")) for r in played["subtasks"]}
    assert reasons == {
        ("textcraft", None),
        ("babyai", NOT_EVALUATED),
        ("sciworld", NOT_EVALUATED),
        ("webarena", NOT_EVALUATED),
        ("searchqa", NOT_EVALUATED),
    }
    told = " ".join(describe_coverage(played))
    assert "4 of the 27" in told and "webarena (Shopping, CMS, Maps, GitLab, Reddit)" in told


def test_suite_questions_are_recognised_by_their_set_and_row():
    index = next(iter(suite.pinned("searchqa")["NQ"]))
    real = {"dataset": "nq", "split": "test", "upstream_idx": index}
    rows = [real, real | {"upstream_idx": index + 1}, {"dataset": "facts", "split": "test"}]
    found = [
        suite_scores([scored(item, True)], {item: {"digest": "x", "facts": facts}})
        for facts in rows
        for item in [f"searchqa_{index}"]
    ]
    assert found[0]["overall"]["success"] == 1.0 and found[1:] == [None, None]


def test_suite_web_tasks_are_recognised_by_webarenas_number():
    number = next(iter(suite.pinned("webarena")["Maps"]))
    real = {"world": "webarena", "task_id": number, "sites": ["map"], "template": 78}
    told = []
    for facts in (real, real | {"world": "embedded"}, real | {"task_id": number + 1}, {}):
        items = {"webarena_3": {"digest": "x", "facts": facts}}
        told.append(suite_scores([scored("webarena_3", True)], items))
    assert told[1:] == [None] * 3
    row = next(r for r in told[0]["subtasks"] if r["subtask"] == "Maps")
    assert (row["played"], row["items"], row["success"]) == (1, 10, 1.0)


def test_the_suite_has_a_mean_over_items_and_a_mean_over_environments():
    items = suite_items("textcraft") | suite_items("babyai")
    episodes = [scored(i, i.startswith("babyai")) for i in items]
    played = suite_scores(episodes, items)
    assert played["overall"]["success"] == pytest.approx(90 / 190)
    assert played["overall"]["environment_mean"] == pytest.approx(0.5)
    assert played["played_subtasks"] == 10


def test_an_evaluation_with_tasks_outside_the_suite_has_no_suite_score():
    items = suite_items("babyai") | {"babyai_0": {"subtask": "GoTo", "digest": "1", "facts": {}}}
    assert suite_scores([scored(i, True) for i in items], items) is None


def test_an_item_with_other_facts_is_not_part_of_the_suite():
    items = suite_items("babyai", 2)
    changed = {i: row | {"digest": "00000000"} for i, row in items.items()}
    assert suite_scores([scored(i, True) for i in items], changed) is None
    part = suite_scores([scored(i, True) for i in items], items)
    goto = next(r for r in part["subtasks"] if r["subtask"] == "GoTo")
    assert (goto["played"], goto["items"], goto["test_items"]) == (2, 55, 55)
    assert part["played_subtasks"] == 0
    assert any("babyai GoTo, 2 of 55" in text for text in describe_coverage(part))


def test_an_item_whose_environment_failed_leaves_its_sub_task_incomplete():
    items = suite_items("textcraft")
    lost = next(i for i in items if items[i]["subtask"] == "depth 4")
    episodes = [scored(i, True, outcome=Outcome.ENV_ERROR if i == lost else None) for i in items]
    played = suite_scores(episodes, items)
    assert played["played_subtasks"] == 3
    assert "evaluated in part: textcraft depth 4, 2 of 3 items" in describe_coverage(played)
    failed = [scored(i, True, outcome=Outcome.ENV_ERROR) for i in items]
    told = describe_coverage(suite_scores(failed, items))
    assert "evaluated in part: textcraft depth 4, 0 of 3 items" in told


# Leakage.


def trained_on(tmp_path):
    records = [
        {"item_id": "maze_1", "conversations": [], "first_observation": 'say "hi"\n', "tokens": []},
        {"item_id": "lmrlgym_maze_9", "conversations": [], "first_observation": "other"},
    ]
    (tmp_path / "trajectories").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    lines = [json.dumps(r) + "\n" for r in records]
    (tmp_path / "trajectories" / "step_000001.jsonl").write_text("".join(lines))
    (tmp_path / "trajectories" / "eval_000001.jsonl").write_text('{"item_id": "maze_3"}\n')
    turn = {"from": "human", "value": "shown"}
    demo = {"item_id": "maze_8", "conversations": [turn]}
    (tmp_path / "data" / "expert.jsonl").write_text(json.dumps(demo) + "\n")
    return read_training_data(tmp_path)


def test_training_tasks_are_read_from_training_records_only(tmp_path):
    trained = trained_on(tmp_path)
    assert trained.items == {"maze_1", "maze_9", "maze_8"} and trained.episodes == 3
    assert trained.observations == {'say "hi"\n', "other", "shown"}


class Seen:
    """The fields of a trajectory that the leakage check reads."""

    def __init__(self, item_id, text):
        self.item_id, self.first_observation = item_id, text


def conversation(text):
    spoken = ("human", "Rules.", None), ("gpt", "OK.", False), ("human", text, None)
    turns = [*spoken, ("gpt", "Action: up", True)]
    return [{"from": a, "value": b, "loss": c} for a, b, c in turns]


def run_with(folder, **config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_data_files_of_a_config_count_as_training_data(tmp_path):
    rows = [{"item_id": f"maze_{i}", "conversations": conversation(f"text {i}")} for i in (3, 4)]
    (tmp_path / "expert.json").write_text(json.dumps(rows))
    prompt = conversation("text 5")
    sides = {"chosen": prompt[3:], "rejected": [prompt[3] | {"value": "Action: down"}]}
    pair = {"item_id": "maze_5", "prompt": prompt[:3], **sides}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    run = run_with(
        tmp_path / "run",
        sft={"files": [str(tmp_path / "expert.json")]},
        dpo={"preferences": [str(tmp_path / "pairs.jsonl")], "files": ["gone.json"]},
        rollout={"files": ["not data"]},
    )
    trained = read_training_data(run)
    assert trained.items == {"maze_3", "maze_4", "maze_5"} and trained.episodes == 3
    assert trained.observations == {"text 3", "text 4", "text 5"}
    assert len(trained.read) == 2
    (unread,) = trained.unread
    assert unread.startswith("gone.json (no conversations at")
    said = describe_leakage(find_leakage({}, [], [], trained))
    assert said == [f"training data that could not be read may hold more: {unread}"]


def test_data_files_of_a_warm_start_without_steps_do_not_count(tmp_path):
    run = run_with(tmp_path / "run", sft={"files": ["gone.json"], "steps": 0})
    assert not read_training_data(run).unread
    run = run_with(tmp_path / "shown", sft={"files": ["gone.json"], "steps": 1})
    assert read_training_data(run).unread


def test_records_of_an_earlier_training_run_count_once(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "checkpoints").mkdir(parents=True)
    trained_on(before)
    (before / "config.json").write_text(json.dumps({"model": {"source": str(before)}}))
    run_with(after, model={"source": str(before)})
    trained = read_training_data(after)
    assert trained.items == {"maze_1", "maze_9", "maze_8"} and trained.episodes == 3
    assert trained.read == [str(before)] and trained.source == str(after)


def test_a_damaged_config_of_a_run_is_reported(tmp_path):
    trained_on(tmp_path)
    (tmp_path / "config.json").write_text("{")
    trained = read_training_data(tmp_path)
    assert trained.episodes == 3 and "config.json" in trained.unread[0]


def test_leaks_are_counted_by_kind_and_success_without_leaks_is_reported(tmp_path):
    lists = {"maze": [{"data_idx": i, "split": "train" if i == 0 else "test"} for i in range(5)]}
    # the manifest lists all tasks except the last two
    tasks = [Task("maze", i, "all") for i in range(7)]
    items = item_facts(tasks, lists)
    seen = [Seen("maze_1", 'say "hi"\n'), Seen("maze_2", "other"), Seen("maze_3", "new")]
    episodes = [scored(f"maze_{i}", i in (0, 1, 2, 3)) for i in range(7)]
    found = find_leakage(items, seen, episodes, trained_on(tmp_path))
    assert found["train_split"] == {"count": 1, "items": ["maze_0"]}
    assert found["trained"] == {"count": 1, "items": ["maze_1"]}
    assert found["same_observation"] == {"count": 1, "items": ["maze_2"]}
    assert found["unlisted"]["count"] == 2
    # The run has a separate test split, so items without a training record have not leaked.
    assert found["success_without"] == pytest.approx(2 / 5) and found["tasks_without"] == 5
    said = describe_leakage(found)
    assert len(said) == 3 and not any("training split" in text for text in said)
    failed = scored("maze_6", False, outcome=Outcome.ENV_ERROR)
    again = find_leakage(items, seen, [*episodes[:6], failed], trained_on(tmp_path / "2"))
    assert again["tasks_without"] == 4
    clean = find_leakage({"maze_5": items["maze_5"]}, [], episodes[5:6], trained_on(tmp_path / "3"))
    assert clean["success_without"] is None and not describe_leakage(clean)
    unknown = find_leakage(items, [], episodes, None)
    assert unknown["trained"]["count"] == 0 and unknown["source"] is None
    assert unknown["success_without"] == pytest.approx(3 / 6)  # all tasks except maze_0
    assert describe_leakage(unknown)[0].startswith("1 evaluated tasks are of the manifest's train")


def test_items_have_their_short_facts_and_a_digest_of_all_facts():
    rows = [{"data_idx": 3, "split": "test", "goal": "x", "commands": "c" * 100}]
    items = item_facts([Task("textcraft", 3, "g")], {"textcraft": rows})
    row = items["textcraft_3"]
    assert row["facts"] == {"split": "test", "goal": "x"} and row["subtask"] is None
    longer = [{**rows[0], "commands": "d" * 100}]
    other = item_facts([Task("textcraft", 3, "g")], {"textcraft": longer})
    assert other["textcraft_3"]["digest"] != row["digest"]
