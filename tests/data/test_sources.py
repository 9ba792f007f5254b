"""Equal rows from every file format."""

import errno
import gzip
import json
import os
import pathlib
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


GOOD = "".join(json.dumps(record) + "\n" for record in RECORDS)


def test_hidden_files_of_a_folder_are_no_data(tmp_path):
    for folder in (tmp_path / "rows", tmp_path / "ids"):
        folder.mkdir()
        for ending in (".jsonl", ".json"):
            (folder / f"._a{ending}").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X")
    as_lines(tmp_path / "rows" / "a", RECORDS)
    assert len(read_conversations(tmp_path / "rows", bad="fatal")) == len(RECORDS)
    as_json(tmp_path / "ids" / "a", ["babyai_3"])
    assert len(tasks.from_item_files("babyai", (), path=str(tmp_path / "ids"))) == 1
    with pytest.raises(FileNotFoundError, match="no .json"):
        (tmp_path / "ids" / "a.json").unlink()
        read_conversations(tmp_path / "ids", bad="fatal")


@pytest.mark.parametrize("name", ["A.JSONL", "a.Parquet", "A.JSON"])
def test_the_case_of_an_ending_has_no_meaning(tmp_path, name):
    write = {".jsonl": as_lines, ".parquet": as_parquet, ".json": as_json}
    path = tmp_path / "data" / name
    path.parent.mkdir()
    write[path.suffix.lower()](path, RECORDS).rename(path)
    assert len(read_conversations(path, bad="fatal")) == len(RECORDS)
    assert len(read_conversations(path.parent, bad="fatal")) == len(RECORDS)


def test_an_entry_of_a_folder_that_is_no_file_is_named_with_the_remedy(tmp_path):
    as_lines(tmp_path / "a", RECORDS)
    odd = tmp_path / "b.jsonl"
    for make, remedy in (
        (lambda: odd.mkdir(), "a folder with the ending of a file: rename it, or name it instead"),
        (lambda: odd.symlink_to(tmp_path / "gone"), f"a link to {tmp_path}/gone: mend or remove"),
        (lambda: odd.symlink_to(odd), f"a link to {odd}: mend or remove"),
        (lambda: os.mkfifo(odd), "no file on a disk, such as a pipe: remove it"),
    ):
        make()
        with pytest.raises(ValueError, match=f"b.jsonl is .*{remedy}"):
            read_conversations(tmp_path, bad="skip")
        odd.rmdir() if odd.is_dir() else odd.unlink()


def test_a_source_that_is_a_pipe_or_a_broken_link_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(ValueError, match="pipe.jsonl is no file on a disk, .*: write the rows to"):
        read_conversations(tmp_path / "pipe.jsonl", bad="fatal")
    (tmp_path / "link.jsonl").symlink_to("gone.jsonl")
    with pytest.raises(FileNotFoundError, match="link.jsonl, a link to gone.jsonl"):
        read_conversations(tmp_path / "link.jsonl", bad="fatal")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", gzip.compress(GOOD.encode()), "a.jsonl, line 1: .* with gzip: decompress it"),
        ("a.json", b"PK\3\4\0", "a.json: the file is a zip archive: unpack it"),
        ("a.jsonl", b"PAR1\x15", "the file is a table: give it the ending .parquet"),
        ("a.jsonl.gz", b"", "it has the ending .gz; expected .* or .json: decompress it"),
        ("a", b"", "it has no ending; expected .jsonl, .parquet or .json: convert it"),
        ("a.jsonl", GOOD.encode("utf-16"), "byte 0xff is not UTF-8 .*; save the file as UTF-8"),
        ("a.jsonl", GOOD.encode("utf-16-le"), "line 1: .* UTF-16; save the file as UTF-8"),
        (
            "a.jsonl",
            json.dumps(RECORDS, indent=1).encode(),
            "one row per line; one list .* is .json",
        ),
        ("a.jsonl", json.dumps(RECORDS).encode(), "found a list; a file that is one list .* .json"),
        ("a.json", GOOD.encode(), "expected one list of rows; rows in lines are .jsonl"),
        ("a.json", b'{"data": []}', "expected a JSON list, found dict with the fields .'data'."),
        ("a.json", b"\n", "a.json: the file is empty; expected one list of rows"),
        ("a.json", b"[]", "a.json has no conversation: there is no row in it"),
        ("a.jsonl", b"\n\n", "a.jsonl has no conversation: there is no row in it"),
    ],
)
def test_a_file_of_another_format_is_named_with_the_remedy(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        read_conversations(tmp_path / name, bad="fatal")
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_without_data_shows_what_is_in_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="no .parquet or .json file; it is empty"):
        read_conversations(tmp_path, bad="fatal")
    (tmp_path / "a.jsonl.gz").touch()
    with pytest.raises(FileNotFoundError, match="no .jsonl file in .*; it has a.jsonl.gz"):
        read_conversations(tmp_path, bad="fatal")


def test_a_file_that_may_not_be_read_is_one_line_with_the_remedy(tmp_path, monkeypatch):
    path = as_lines(tmp_path / "a", RECORDS)

    def refuse(self, *_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(pathlib.Path, "open", refuse)  # permissions do not bind the superuser
    with pytest.raises(ValueError, match="a.jsonl cannot be read .Permission denied.: make it"):
        read_conversations(path, bad="skip")


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
