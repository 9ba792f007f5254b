"""Interrupted evaluations, which must resume and end with the result of an uninterrupted one."""

import json

import pytest

from agentgym_jax.client.oracle_clients import ValidActionsClient
from agentgym_jax.episodes.trajectory import Outcome, from_record
from agentgym_jax.evaluation import score_report, scores
from agentgym_jax.evaluation.contamination import find_leakage
from agentgym_jax.evaluation.journal import Journal
from agentgym_jax.evaluation.task_identity import item_facts
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.runs.run_folder import RunFolder
from tests.evaluation.playing_parts import ALL_TASKS, maze, play, stumbling

IDENTITY = {
    "agent": {"name": "random"},
    "manifests": {"maze": "ab"},
    "items": {"maze_1": "cd"},
}


class Stop:
    """A stop request that becomes true after a number of recorded episodes."""

    def __init__(self, journal, after):
        self.journal, self.left = journal, after

    def append(self, trajectory):
        self.left -= trajectory.outcome.is_valid
        self.journal.append(trajectory)

    def __call__(self):
        return self.left <= 0


def evaluation(folder, samples=2, stop_after=10**9, **options):
    """Evaluates all episodes that the folder does not contain yet.

    Returns the bytes of scores.json, or None if the evaluation was stopped.
    """
    folder.trajectories.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder, IDENTITY)
    journal.open()
    finished = journal.finished(samples)
    stop = Stop(journal, stop_after)
    with maze("random", **options) as collector:
        result = play(
            collector, samples=samples, finished=finished, on_episode=stop.append, stop=stop
        )
    if stop():
        return None
    journal.finish(result.trajectories)
    items = item_facts(ALL_TASKS, {"maze": []})
    facts = score_report.score_facts(
        result.sampled,
        items,
        max_turns={"maze": 15},
        show_turn_budget="none",
        is_sampled=True,
        leakage=find_leakage(items, result.trajectories, result.sampled, None),
    )
    path = folder.path / "scores.json"
    scores.write_scores(
        path, result.sampled, model="random", decoding={}, manifests={"maze": "ab"}, facts=facts
    )
    return path.read_bytes()


def test_an_interrupted_and_resumed_evaluation_equals_an_uninterrupted_one(tmp_path):
    whole = evaluation(RunFolder(tmp_path / "whole"))
    parts = RunFolder(tmp_path / "parts")
    assert evaluation(parts, stop_after=3) is None
    assert evaluation(parts, stop_after=4) is None
    kept = (parts.trajectories / "eval_000000.jsonl.partial").read_text().splitlines()
    assert len(kept) >= 7 and len(
        {(json.loads(x)["item_id"], json.loads(x)["sample"]) for x in kept}
    ) == len(kept)
    assert evaluation(parts) == whole
    both = [RunFolder(tmp_path / f).read_trajectories(0, "eval") for f in ("whole", "parts")]
    episodes = [[from_record(r) for r in records] for records in both]
    for a, b in zip(*episodes, strict=True):
        assert (a.item_id, a.sample, a.turns, a.messages) == (
            b.item_id,
            b.sample,
            b.turns,
            b.messages,
        )
    assert not list(parts.trajectories.glob("*.partial"))


def test_a_finished_evaluation_is_not_played_again(tmp_path):
    folder = RunFolder(tmp_path)
    before = evaluation(folder)
    stop = tmp_path / "trajectories" / "eval_000000.jsonl"
    written = stop.stat().st_mtime_ns
    journal = Journal(folder, IDENTITY)
    journal.open()
    assert len(journal.finished(2)) == 12
    assert stop.stat().st_mtime_ns == written
    assert evaluation(folder) == before


@pytest.fixture
def begun(tmp_path):
    folder = RunFolder(tmp_path)
    assert evaluation(folder, stop_after=3) is None
    return folder


def partial(folder):
    return folder.trajectories / "eval_000000.jsonl.partial"


def test_the_episode_of_an_incomplete_line_is_played_again(begun):
    path = partial(begun)
    data = path.read_bytes()
    lines = data.count(b"\n")
    path.write_bytes(data[: len(data) - 40])
    journal = Journal(begun, IDENTITY)
    assert len(journal.finished(2)) == lines - 1
    assert path.read_bytes().endswith(b"\n")


def test_the_error_for_a_damaged_line_names_it(begun):
    path = partial(begun)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + '{"item_id": 3}\n' + "".join(lines[1:]))
    with pytest.raises(ValueError, match=r"partial, line 2, is no episode .*Delete the line"):
        Journal(begun, IDENTITY).finished(2)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("agent", {"name": "gpt"}, 'agent.name: "random" in the folder, "gpt" now'),
        ("manifests", {"maze": "xy"}, 'manifests.maze: "ab" in the folder, "xy" now'),
        ("items", {"maze_1": "cd", "maze_2": "ef"}, 'items.maze_2: absent in the folder, "ef" now'),
    ],
)
def test_the_error_for_a_folder_of_another_evaluation_names_the_difference(
    begun, key, value, message
):
    with pytest.raises(ValueError, match=message) as error:
        Journal(begun, IDENTITY | {key: value}).open()
    assert "--workdir" in str(error.value)


def test_an_invalid_evaluation_json_is_refused(begun):
    (begun.path / "evaluation.json").write_text("{")
    with pytest.raises(ValueError, match=r"evaluation.json is not JSON.*--workdir"):
        Journal(begun, IDENTITY).open()
    for text in ('{"format": 99}', '{"format": 2}', "[]"):
        (begun.path / "evaluation.json").write_text(text)
        with pytest.raises(ValueError, match="another version"):
            Journal(begun, IDENTITY).open()
    (begun.path / "evaluation.json").unlink()
    with pytest.raises(ValueError, match=r"evaluation.json is missing"):
        Journal(begun, IDENTITY).open()


def test_an_episode_whose_environment_failed_is_not_kept(tmp_path, begun):
    line = partial(begun).read_text().splitlines()[0]
    for outcome in (Outcome.ENV_ERROR, Outcome.ABORTED):
        bad = from_record(json.loads(line) | {"outcome": str(outcome), "item_id": "maze_77"})
        Journal(begun, IDENTITY).append(bad)
    assert "maze_77" not in partial(begun).read_text()


def test_an_episode_whose_environment_failed_is_played_again_after_the_end(tmp_path):
    folder = RunFolder(tmp_path)
    evaluation(folder)
    path = folder.trajectories / "eval_000000.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    record = json.loads(first) | {"outcome": str(Outcome.ENV_ERROR)}
    path.write_text(json.dumps(record) + "\n" + "".join(others))
    finished = Journal(folder, IDENTITY).finished(2)
    assert len(finished) == 11 and (record["item_id"], record["sample"]) not in finished


def test_a_resumed_evaluation_with_only_unplayable_tasks_left_writes_scores(
    tmp_path,
):
    folder = RunFolder(tmp_path)
    evaluation(folder)
    final = folder.trajectories / "eval_000000.jsonl"
    lines = final.read_text().splitlines(keepends=True)
    final.unlink()
    partial(folder).write_text("".join(lines[:8]))  # the episodes of tasks 0 to 3, two per task
    (folder.path / "scores.json").unlink()
    faulty = stumbling({4: 10**6, 5: 10**6}, ValidActionsClient)
    outage = dict(client_class=faulty, patience_s=0.2)  # reached
    document = json.loads(evaluation(folder, **outage))
    assert (document["overall"]["tasks"], document["overall"]["invalid"]) == (4, 4)
    assert document["overall"]["outcomes"]["env_error"] == 4
    (told,) = [s for s in score_report.score_notes(document) if s.startswith("invalid")]
    assert "4 episodes" in told and "maze_4, maze_5." in told and "maze_3" not in told
    # After the environment has recovered, only the failed episodes are repeated.
    again = json.loads(evaluation(folder))
    assert again["overall"]["invalid"] == 0
    assert [s for s in score_report.score_notes(again) if s.startswith("invalid")] == []


def test_a_journal_that_cannot_be_written_is_an_error(begun):
    line = json.loads(partial(begun).read_text().splitlines()[0])
    partial(begun).unlink()
    partial(begun).mkdir()
    with pytest.raises(RunFolderError, match=r"cannot write .*partial: Is a directory"):
        Journal(begun, IDENTITY).append(from_record(line))


def test_a_replacement_counts_for_the_requested_sample(begun):
    record = json.loads(partial(begun).read_text().splitlines()[0])
    record |= {"item_id": "maze_77", "sample": 2 * 3 + 1}
    Journal(begun, IDENTITY).append(from_record(record))
    assert ("maze_77", 1) in Journal(begun, IDENTITY).finished(2)


def test_unicode_line_separators_in_a_text_do_not_end_a_line(begun):
    record = json.loads(partial(begun).read_text().splitlines()[0])
    record |= {"item_id": "maze_77", "sample": 0}
    said = record["conversations"][-1]["value"] = "one\u2028two\x85three\x0bfour"
    Journal(begun, IDENTITY).append(from_record(record))
    kept = Journal(begun, IDENTITY).finished(2)["maze_77", 0]
    assert kept.messages[-1]["content"] == said
