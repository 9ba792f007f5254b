"""Import of question files in FlashRAG's layout, with the item ids of AgentGym-RL."""

import json

import pytest

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa import flashrag
from agentgym_envs.searchqa.questions import import_questions
from tests.envs.searchqa import topics


def rows(name, count):
    return [
        {
            "id": f"{name}_{i}",
            "question": f"who is number {i} of {name}?",
            "golden_answers": [f"{name} {i}"],
            "metadata": {"context": "long " * 1000},
        }
        for i in range(count)
    ]


@pytest.fixture
def sets(tmp_path):
    """Returns a folder with excerpts of four of the nine question files."""
    for name, count in {"nq/test": 3, "hotpotqa/dev": 2, "2wiki/dev": 1, "nq/train": 4}.items():
        topics.write_rows(tmp_path / "sets" / f"{name}.jsonl", rows(name, count))
    return tmp_path / "sets"


def test_the_question_sets_have_the_item_ids_of_agentgym():
    ends = [part.first + part.rows for part in flashrag.SETS]
    assert [part.first for part in flashrag.SETS] == [0, *ends[:-1]]
    by_split = {
        split: sum(part.rows for part in flashrag.SETS if part.split == split)
        for split in ("test", "train")
    }
    assert by_split == {"test": 51_713, "train": 169_615} and ends[-1] == 221_328


def test_a_folder_of_question_sets_is_read_in_the_order_of_agentgym(sets, tmp_path, caplog):
    questions = import_questions(sets, tmp_path / "data")
    assert [(t["dataset"], t["split"], t["upstream_idx"]) for t in questions.tasks] == [
        *[("nq", "test", i) for i in range(3)],
        *[("hotpotqa", "test", 29_190 + i) for i in range(2)],
        ("2wikimultihopqa", "test", 36_595),
        *[("nq", "train", 51_713 + i) for i in range(4)],
    ]
    assert questions[3].question == "who is number 0 of hotpotqa/dev?"
    assert questions[3].golden_answers == ("hotpotqa/dev 0",)
    assert "metadata" not in questions[3].row
    assert manifest.sha256(questions.tasks) == questions.metadata["manifest_sha256"]
    assert "nq/test.jsonl has 3 rows; AgentGym-RL's item ids are those of 3610" in caplog.text


def test_questions_are_imported_again_only_if_they_changed(sets, tmp_path):
    first = import_questions(sets, tmp_path / "data")
    assert import_questions(sets, tmp_path / "data").tasks == first.tasks
    assert len(list((tmp_path / "data").glob("questions-*[0-9a-f]"))) == 1
    changed = rows("nq/test", 3)
    changed[1]["golden_answers"] = ["somebody else"]
    topics.write_rows(sets / "nq/test.jsonl", changed)
    second = import_questions(sets, tmp_path / "data")
    different = [a["data_idx"] for a, b in zip(first.tasks, second.tasks, strict=True) if a != b]
    assert different == [1]
    assert first.metadata["manifest_sha256"] != second.metadata["manifest_sha256"]


def test_a_custom_file_gives_the_split_of_each_row(tmp_path):
    path = topics.write_rows(tmp_path / "mine.jsonl", topics.QUESTIONS)
    tasks = import_questions(path, tmp_path / "data").tasks
    assert [task["split"] for task in tasks[:3]] == ["test", "train", "test"]
    assert tasks[0]["dataset"] == "mine" and tasks[0]["kind"] == "single_hop"
    assert "upstream_idx" not in tasks[0]


def test_parquet_and_json_lines_give_the_same_questions(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow to read parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    lines = topics.write_rows(tmp_path / "a" / "set.jsonl", rows("nq", 5))
    table = pyarrow.Table.from_pylist(rows("nq", 5))
    parquet.write_table(table, tmp_path / "set.parquet")
    read = [
        [(q.id, q.question, q.golden_answers) for q in import_questions(path, tmp_path / "data")]
        for path in (lines, tmp_path / "set.parquet")
    ]
    assert read[0] == read[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no json\n", "line 1: no JSON"),
        (json.dumps({"question": "who?"}) + "\n", "no question with golden_answers"),
        (json.dumps({"question": "", "golden_answers": ["x"]}) + "\n", "no question with"),
        ("[1]\n", r"row 1 is \[1\], expected an object"),
        (
            json.dumps({"question": "who?", "golden_answers": [None]}) + "\n",
            "row 1 has no question",
        ),
        (
            json.dumps({"question": "who?", "golden_answers": ["x"], "split": "valid"}) + "\n",
            "row 1 has the split 'valid', expected one of",
        ),
        ("", "has no questions"),
    ],
)
def test_an_unreadable_file_is_reported_and_leaves_no_import(tmp_path, text, told):
    path = tmp_path / "questions.jsonl"
    path.write_text(text)
    with pytest.raises(SetupError, match=told):
        import_questions(path, tmp_path / "data")
    assert not [p for p in (tmp_path / "data").glob("questions-*") if p.suffix == ""]


def test_a_folder_without_question_sets_is_refused(tmp_path):
    with pytest.raises(SetupError, match="no folder with one of .*nq/test"):
        import_questions(tmp_path, tmp_path / "data")
