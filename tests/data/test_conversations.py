import dataclasses
import json

import pytest

from agentgym_jax.data.conversations import (
    Conversation,
    digest,
    read_conversations,
    sampled_sequences,
)
from agentgym_jax.episodes.trajectory import Outcome, to_record
from agentgym_jax.text.chat import Message
from tests.builders import trajectory, turn

TURNS = [
    {"from": "human", "value": "rules", "loss": None},
    {"from": "gpt", "value": "ok", "loss": False},
    {"from": "human", "value": "a door", "loss": None},
    {"from": "gpt", "value": "Action:\ngo", "loss": True},
]
RECORD = {"item_id": "babyai_17", "conversations": TURNS}
CONVERSATION = Conversation(
    "babyai_17",
    (
        Message("user", "rules"),
        Message("assistant", "ok", loss=False),
        Message("user", "a door"),
        Message("assistant", "Action:\ngo", loss=True),
    ),
)


def write(path, records):
    if path.suffix == ".json":
        path.write_text(json.dumps(records))
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("name", ["data.json", "data.jsonl"])
def test_json_lists_and_json_lines_give_equal_conversations(name, tmp_path):
    path = write(tmp_path / name, [RECORD, RECORD | {"reward": 1, "success": 1}])
    first, second = read_conversations(path, bad="fatal")
    assert first == CONVERSATION
    assert (second.reward, second.success) == (1.0, True)


def test_a_directory_is_read_in_the_order_of_names(tmp_path):
    for step in (2, 10, 1):
        write(tmp_path / f"step_{step:06}.jsonl", [RECORD | {"item_id": f"babyai_{step}"}])
    (tmp_path / "notes.txt").write_text("not read")
    found = read_conversations(tmp_path, bad="fatal")
    assert [c.item_id for c in found] == ["babyai_1", "babyai_2", "babyai_10"]


def test_trajectories_of_a_run_are_read_as_conversations(tmp_path):
    solved = trajectory(
        "pa",
        [turn(1, 2, reward=1.0)],
        item_id="babyai_3",
        score=1.0,
        outcome=Outcome.SUCCESS,
        messages=(
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "a door"},
            {"role": "assistant", "content": "go"},
        ),
    )
    path = write(tmp_path / "step.jsonl", [to_record(solved)])
    (conversation,) = read_conversations(path, bad="fatal")
    assert conversation.messages == (
        Message("system", "be brief"),
        Message("user", "a door"),
        Message("assistant", "go", loss=True),
    )
    assert conversation.success is True


def changed(turn, **fields):
    turns = [dict(entry) for entry in TURNS]
    turns[turn] |= fields
    return {"item_id": "a_1", "conversations": turns}


def without(turn, field):
    record = changed(turn)
    del record["conversations"][turn][field]
    return record


BAD = [
    ([], "expected a row, found a list; a file that is one list has the ending .json"),
    (3, "expected an object, found int"),
    ({"conversations": TURNS}, "'item_id' is missing"),
    ({"item_id": 3, "conversations": TURNS}, "'item_id' is int, expected str"),
    ({"item_id": "a_1", "conversations": None}, "'conversations' is NoneType"),
    ({"item_id": "a_1", "conversations": []}, "conversations: roles are"),
    ({"item_id": "a_1", "conversations": TURNS[1:]}, "conversations: roles are"),
    ({"item_id": "a_1", "conversations": ["hello"]}, r"conversations\[0\]: expected an object"),
    (changed(2, value=5), r"conversations\[2\]: field 'value' is int"),
    (changed(2, **{"from": "user"}), r"conversations\[2\]: 'from' is 'user'"),
    (without(2, "value"), r"conversations\[2\]: field 'value' is missing"),
    (without(3, "loss"), r"conversations\[3\]: field 'loss' is missing"),
    (changed(3, loss=None), r"conversations\[3\]: 'loss' is None; expected true or false"),
    (changed(3, loss=1), r"conversations\[3\]: 'loss' is 1"),
    (changed(0, loss=True), r"conversations\[0\]: 'loss' is True; expected null"),
    (RECORD | {"reward": "1"}, "'reward' is '1', expected a number"),
    (RECORD | {"reward": True}, "'reward' is True"),
    (RECORD | {"success": 0.5}, "'success' is 0.5"),
    (changed(3, value="", tool_calls=[{"id": "1"}]), r"\[3\]: field 'tool_calls' would be lost"),
    (RECORD | {"images": ["a.png"]}, "field 'images' would be lost, .* or remove the field"),
    (RECORD | {"tools": '[{"name": "look"}]'}, "field 'tools' would be lost"),
]


@pytest.mark.parametrize(("record", "reason"), BAD)
def test_the_error_for_a_bad_record_names_file_line_and_field(record, reason, tmp_path):
    path = write(tmp_path / "data.jsonl", [RECORD, record])
    with pytest.raises(ValueError, match=f"data.jsonl, line 2.*{reason}"):
        read_conversations(path, bad="fatal")


def test_bad_records_are_skipped_and_reported_on_request(tmp_path, caplog):
    path = tmp_path / "data.jsonl"
    with path.open("w") as file:
        file.write('{"item_id": "a_1", "conver\n')  # an incomplete line
        file.write("".join(json.dumps(r) + "\n" for r in [*(bad for bad, _ in BAD), RECORD]))
    assert read_conversations(path, bad="skip") == [CONVERSATION]
    assert f"{len(BAD) + 1} rows left out, the first: {path}, line 1: not JSON" in caplog.text


def test_empty_fields_of_other_formats_lose_nothing(tmp_path):
    record = changed(3, tool_calls=[]) | {"item_id": "babyai_17", "images": None, "tools": "[]"}
    (found,) = read_conversations(write(tmp_path / "data.jsonl", [record]), bad="fatal")
    assert found.messages == CONVERSATION.messages


def test_the_digest_of_conversations_has_all_that_a_job_learns_from():
    encoded = sampled_sequences(trajectory("pa"))
    (whole,) = encoded
    other = dataclasses.replace(whole, action_mask=~whole.action_mask)
    cases = [
        [CONVERSATION],
        [CONVERSATION, CONVERSATION],
        [dataclasses.replace(CONVERSATION, reward=0.25)],
        [dataclasses.replace(CONVERSATION, messages=CONVERSATION.messages[:2])],
        [dataclasses.replace(CONVERSATION, encoded=encoded)],
        [dataclasses.replace(CONVERSATION, encoded=[other])],
    ]
    assert len({digest(case) for case in cases}) == len(cases)
    assert digest(cases[4]) == digest([dataclasses.replace(CONVERSATION, encoded=list(encoded))])


def test_blank_lines_are_ignored(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("\n" + json.dumps(RECORD) + "\n\n")
    assert read_conversations(path, bad="fatal") == [CONVERSATION]


def test_a_folder_has_files_of_one_kind(tmp_path, caplog):
    write(tmp_path / "a.json", [RECORD])
    write(tmp_path / "b.json", [RECORD, RECORD])
    assert len(read_conversations(tmp_path, bad="fatal")) == 3 and not caplog.text
    write(tmp_path / "c.jsonl", [RECORD])
    assert len(read_conversations(tmp_path, bad="fatal")) == 1
    assert "only its 1 .jsonl files are read, not those with the ending .json" in caplog.text


def test_missing_data_are_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_conversations(tmp_path / "missing.jsonl", bad="fatal")
    with pytest.raises(FileNotFoundError, match="no .jsonl file"):
        read_conversations(tmp_path, bad="fatal")
    with pytest.raises(ValueError, match="no usable conversation"):
        read_conversations(write(tmp_path / "data.jsonl", [[]]), bad="skip")
    with pytest.raises(ValueError, match="expected a JSON list"):
        read_conversations(write(tmp_path / "data.json", RECORD), bad="skip")
    (tmp_path / "data.csv").write_text("a")
    with pytest.raises(
        ValueError, match="ending .csv; expected .jsonl, .parquet or .json: convert"
    ):
        read_conversations(tmp_path / "data.csv", bad="skip")
    with pytest.raises(ValueError, match="'fatal' or 'skip'"):
        read_conversations(tmp_path / "data.jsonl", bad="ignore")


@pytest.mark.parametrize("info", [{}, {"features": {"item_id": {"dtype": "string"}}}, None])
def test_a_folder_of_another_datasets_package_is_one_line_with_the_remedy(tmp_path, info):
    """Such folders have a dataset_info.json too."""
    text = "not JSON" if info is None else json.dumps({**info, "version": {"version_str": "0.0.0"}})
    (tmp_path / "dataset_info.json").write_text(text)
    with pytest.raises(ValueError, match=r"cannot read it .*to_json, to_parquet") as raised:
        read_conversations(tmp_path, bad="fatal")
    assert str(raised.value).startswith(f"{tmp_path}: ")
