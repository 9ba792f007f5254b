"""Equal rows from every file format."""

import json
import sys

import pyarrow
import pyarrow.parquet as parquet
import pytest

from agentgym_jax.data import tasks
from agentgym_jax.data.conversations import read_conversations
from agentgym_jax.data.preferences import read_preferences

TURNS = [
    {"from": "human", "value": "rules [1, 2]", "loss": None},
    {"from": "gpt", "value": "ok", "loss": False},
    {"from": "human", "value": "a door", "loss": None},
    {"from": "gpt", "value": "Action:\ngo", "loss": True},
]
RECORDS = [
    {"item_id": "babyai_17", "conversations": TURNS, "reward": 0.5},
    {"item_id": "babyai_3", "conversations": TURNS, "reward": None},
]
PAIRS = [
    {
        "item_id": "babyai_3",
        "prompt": TURNS[:3],
        "chosen": TURNS[3:],
        "rejected": [{"from": "gpt", "value": "stay", "loss": True}],
    }
]


def as_json(path, records):
    path = path.with_suffix(".json")
    path.write_text(json.dumps(records))
    return path


def as_lines(path, records):
    path = path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def as_parquet(path, records):
    path = path.with_suffix(".parquet")
    parquet.write_table(pyarrow.Table.from_pylist(records), path)
    return path


def as_parquet_of_text(path, records):
    """Writes records to a table whose text column contains the turns as JSON."""
    lists = lambda record: {  # noqa: E731
        k: json.dumps(v) if isinstance(v, list) else v for k, v in record.items()
    }
    return as_parquet(path, [lists(record) for record in records])


def as_tfds(path, records):
    from agentgym_jax.data import tfds_builders  # noqa: PLC0415 - takes two seconds

    kind = "AgentPreferences" if "chosen" in records[0] else "AgentTrajectories"
    source = as_lines(path, records)
    builder = getattr(tfds_builders, kind)(source=str(source), data_dir=str(path.parent))
    builder.download_and_prepare()
    assert "tensorflow" not in sys.modules
    return builder.data_path


def as_named_tfds(path, records):
    """Returns the name of a dataset in the folder that the fixture `own_datasets` has set."""
    return f"tfds:{as_tfds(path, records).parts[-2]}"


@pytest.fixture(autouse=True)
def own_datasets(monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))


FORMATS = [as_json, as_lines, as_parquet, as_parquet_of_text, as_tfds, as_named_tfds]


@pytest.mark.parametrize("write", FORMATS)
def test_every_format_gives_equal_conversations(write, tmp_path):
    expected = read_conversations(as_json(tmp_path / "expected", RECORDS), bad="fatal")
    found = read_conversations(write(tmp_path / "data", RECORDS), bad="fatal")
    # TFDS shuffles a dataset when it writes it, so the order differs.
    by_id = lambda read: sorted(read, key=lambda c: c.item_id)  # noqa: E731
    assert by_id(found) == by_id(expected)
    assert len(found[0].messages) == 4


@pytest.mark.parametrize("write", FORMATS)
def test_every_format_gives_equal_pairs(write, tmp_path):
    expected = read_preferences(as_json(tmp_path / "expected", PAIRS), bad="fatal")
    assert read_preferences(write(tmp_path / "data", PAIRS), bad="fatal") == expected


@pytest.mark.parametrize("write", FORMATS)
def test_every_format_gives_equal_tasks(write, tmp_path):
    path = str(write(tmp_path / "data", RECORDS))
    found = tasks.from_file("babyai", (), path=path)
    assert sorted(task.data_idx for task in found) == [3, 17]


def test_bare_ids_are_tasks_and_duplicates_are_removed(tmp_path):
    path = as_json(tmp_path / "ids", ["maze_4", {"item_id": "lmrlgym_maze_2"}, "maze_4"])
    assert [task.data_idx for task in tasks.from_file("maze", (), path=str(path))] == [4, 2]


def test_rows_name_the_groups_of_their_tasks(tmp_path):
    rows = [
        "maze_4",
        {"item_id": "maze_2", "group": "wide"},
        {"item_id": "maze_2", "group": "tall"},
    ]
    found = tasks.from_file("maze", (), path=str(as_json(tmp_path / "ids", rows)))
    assert [(task.data_idx, task.group) for task in found] == [(4, "maze"), (2, "wide")]


def test_item_files_of_a_folder_name_the_groups_of_their_tasks(tmp_path):
    for name, ids in {"maze_test": [1, 2, 3, 4], "maze_wide": [4, 2], "Tall": [3]}.items():
        as_json(tmp_path / name, [{"item_id": f"maze_{i}"} for i in ids])
    as_json(tmp_path / "babyai_test", [{"item_id": "babyai_1"}])
    found = tasks.from_item_files("maze", (), path=str(tmp_path))
    assert [(task.data_idx, task.group) for task in found] == [
        (3, "Tall"),
        (1, "test"),
        (2, "wide"),
        (4, "wide"),
    ]
    with pytest.raises(ValueError, match="4 .json files of .* have none; .* of babyai, maze"):
        tasks.from_item_files("textcraft", (), path=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no folder of item ids"):
        tasks.from_item_files("maze", (), path=str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"item_id": "webshop_4"}, "field 'item_id': 'webshop_4' is not a task of babyai"),
        ({"item_id": "babyai_x"}, "field 'item_id': 'babyai_x' is not NAME_NUMBER"),
        ({"item_id": f"babyai_{'1' * 5000}"}, "field 'item_id': 'babyai_1+ is not NAME_NUMBER"),
        ({"id": 4}, "field 'item_id' is missing"),
        ({"item_id": "babyai_2", "group": 3}, "field 'group' is int, expected str"),
    ],
)
def test_a_row_without_a_task_is_an_error_or_is_skipped(row, reason, tmp_path):
    path = str(as_lines(tmp_path / "ids", [{"item_id": "babyai_1"}, row]))
    with pytest.raises(ValueError, match=f"ids.jsonl, line 2: {reason}"):
        tasks.from_file("babyai", (), path=path)
    assert len(tasks.from_file("babyai", (), path=path, bad="skip")) == 1


def test_the_error_for_a_bad_row_of_a_table_names_it(tmp_path):
    path = as_parquet(tmp_path / "data", [RECORDS[0], RECORDS[1] | {"item_id": None}])
    with pytest.raises(ValueError, match="data.parquet, row 1: field 'item_id' is NoneType"):
        read_conversations(path, bad="fatal")


def test_a_split_of_a_named_dataset_is_read(tmp_path):
    name = as_named_tfds(tmp_path / "data", RECORDS)
    whole = read_conversations(f"{name}@train", bad="fatal")
    assert read_conversations(f"{name}@train[:1]", bad="fatal") == whole[:1]


@pytest.mark.parametrize("name", ["tfds:", "tfds:no_such_dataset", "tfds:../up", "tfds:a@b@c"])
def test_a_name_without_a_dataset_is_refused(name):
    with pytest.raises(ValueError, match=r"tfds:.*expected tfds:NAME@SPLIT") as caught:
        read_conversations(name, bad="skip")
    assert "\n" not in str(caught.value)


def test_a_split_that_is_missing_is_refused(tmp_path):
    name = as_named_tfds(tmp_path / "data", RECORDS)
    with pytest.raises(ValueError, match="Unknown split"):
        read_conversations(f"{name}@validation", bad="skip")
