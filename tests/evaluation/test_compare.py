"""Comparison of results: comparable task sets, leakage, suite scores and the results page."""

import dataclasses
import functools
import json

import pytest

from agentgym_jax import results
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.evaluation import compare, score_plots, score_report, scores
from agentgym_jax.evaluation.contamination import (
    find_leakage,
)
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
