"""Damaged data files: the rows are read, or one line names the file, and nothing is written."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_jax.data.conversations import read_conversations
from agentgym_jax.data.preferences import read_preferences
from agentgym_jax.data.tasks import from_file
from agentgym_jax.traces.files import read_traces
from agentgym_jax.traces.training_trace import to_training_trace
from tests.builders import trajectory, turn
from tests.examples import fixed, searches

ASK = {"from": "human", "value": "ein Häuschen, 門", "loss": None}
GOOD = {"from": "gpt", "value": "go", "loss": True}
ROW = {"item_id": "maze_3", "conversations": [ASK, GOOD], "reward": 0.5, "success": 1}
PAIR = {"item_id": "maze_3", "chosen": [ASK, GOOD], "rejected": [ASK, GOOD | {"value": "stop"}]}
SAID = ({"role": "user", "content": "門"}, {"role": "assistant", "content": "go"})
PLAYED = trajectory("ppa", [turn(2, 3, reward=1.0)], item_id="maze_3", messages=SAID)
TRACE = to_training_trace(PLAYED)
READERS = {
    "conversations": (ROW, lambda path, bad: read_conversations(path, bad=bad)),
    "preferences": (PAIR, lambda path, bad: read_preferences(path, bad=bad)),
    "tasks": ({"item_id": "maze_3"}, lambda path, bad: from_file("maze", (), path=path, bad=bad)),
    "traces": (TRACE, lambda path, bad: read_traces(path)),
}
PIECES = [
    b"\xff",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\0",
    b"NaN",
    b"1e999",
    b"-1",
    b"null",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 5000,
    b"\n",
    b"\r",
    b'"',
    b"}",
    b"\xef\xbb\xbf",
    "\u2028".encode(),
]
SEARCHES = searches(60, 1500)


def changed_values(row):
    """Returns a strategy of rows in which one value at any depth has been replaced."""
    wild = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=3),
        st.just([]),
        st.just({}),
        st.just([[0, 10**12]]),
        st.just(-(10**400)),
    )

    def replace(value, path, new):
        if not path or not value or not isinstance(value, dict | list):
            return new
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = keys[path[0] % len(keys)]
        copy = dict(value) if isinstance(value, dict) else list(value)
        copy[key] = replace(value[key], path[1:], new)
        return copy

    return st.builds(replace, st.just(row), st.lists(st.integers(0, 30), max_size=7), wild)


def edits():
    """Returns a strategy of changes: a place, the number of bytes to remove, and a new piece."""
    piece = st.integers(0, len(PIECES) - 1)
    edit = st.tuples(st.integers(0, 10_000), st.integers(0, 12), piece)
    return st.lists(edit, min_size=1, max_size=3)


def edited(data, changes):
    for place, length, piece in changes:
        place %= len(data) + 1
        data = data[:place] + PIECES[piece] + data[place + length :]
    return data


def check(read, path, bad):
    before = sorted(path.parent.iterdir())
    try:
        found = read(path, bad)
    except ValueError as error:
        assert path.name in str(error) and "\n" not in str(error) and len(str(error)) < 2000
    else:
        assert found
        for row in found:
            text = repr(row)
            text.encode("utf-8")
            reward = getattr(row, "reward", None)
            assert reward is None or math.isfinite(reward)
    assert sorted(path.parent.iterdir()) == before


@SEARCHES
@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_file_is_read_or_named(tmp_path, kind, suffix, examples):
    row, read = READERS[kind]
    if kind == "traces" and suffix == ".json":
        whole = json.dumps(row)
    else:
        whole = json.dumps([row, row]) if suffix == ".json" else f"{json.dumps(row)}\n" * 2
    path = tmp_path / f"rows{suffix}"

    @fixed(examples, checks=False)
    @given(
        changes=edits(),
        changed=changed_values(json.loads(json.dumps(row))),
        is_damaged=st.booleans(),
        bad=st.sampled_from(["fatal", "skip"]),
    )
    def search(changes, changed, is_damaged, bad):
        text = json.dumps(changed)
        text = f"[{text}]" if suffix == ".json" and kind != "traces" else text
        path.write_bytes(edited(whole.encode(), changes) if is_damaged else text.encode())
        check(read, path, bad)

    search()


@pytest.mark.parametrize("kind", READERS)
def test_a_byte_order_mark_costs_no_row(tmp_path, kind):
    row, read = READERS[kind]
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(row)}\n" * 2, encoding="utf-8-sig")
    assert len(read(path, "fatal")) == (1 if kind == "tasks" else 2)


@pytest.mark.parametrize("bad_line", [b"\xff\n", b"[" * 100_000 + b"\n"])
def test_a_line_that_cannot_be_parsed_is_named_or_left_out(tmp_path, bad_line):
    path = tmp_path / "rows.jsonl"
    good = json.dumps(ROW).encode() + b"\n"
    path.write_bytes(good + bad_line + good)
    assert len(read_conversations(path, bad="skip")) == 2
    with pytest.raises(ValueError, match="rows.jsonl, line 2: "):
        read_conversations(path, bad="fatal")
