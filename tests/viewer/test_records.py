import copy
import math

import pytest

from agentgym_jax.runs.json_lines import DamagedFileError, parse_line
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.viewer.records import (
    Bundle,
    _as_bytes,
    environment_of,
    goal_of,
    read_records,
    repeated_turns,
    row_of,
    token_pieces,
    trajectory_files,
)
from agentgym_jax.viewer.report import packed


def restored(document, number):
    """Returns the texts of an episode's turns, and its token runs, from the tables of a document."""
    episode = document["episodes"][number]
    texts = document["texts"]
    turns = [(texts[t], texts[a] if a >= 0 else None, texts[o]) for t, a, o, *_ in episode["turns"]]
    return turns, [document["runs"][run] for run in episode["runs"]]


def test_a_bundle_restores_texts_and_tokens_in_order(make_record):
    record = make_record(turns=[("left", "wall", 0.0), (None, "", 0.0), ("open", "done", 0.9)])
    bundle = Bundle()
    bundle.add(record)
    turns, runs = restored(bundle.document(), 0)
    assert turns == [
        ("Action:\nleft", "left", "wall"),
        ("Action:\nNone", None, ""),
        ("Action:\nopen", "open", "done"),
    ]
    assert [token for run in runs for token in run] == record["tokens"]
    # one run for the prompt, then an action run and an observation run for each of 3 turns
    assert len(runs) == 1 + 2 * 3
    assert bytes(runs[1]).decode() == "Action:\nleft"
    assert bundle.token_ids == set(record["tokens"])


def test_samples_of_a_group_share_their_prompt(make_record):
    bundle = Bundle()
    for sample in range(8):
        bundle.add(make_record(sample=sample))
    document = bundle.document()
    assert len(document["runs"]) == 3 and len(document["texts"]) == 4
    assert len({tuple(episode["runs"]) for episode in document["episodes"]}) == 1


def test_values_of_the_learner_are_only_kept_for_sampled_tokens(make_record):
    record = make_record()
    n = len(record["tokens"])
    (turn,) = record["turns"]
    advantages = [0.0] * n
    advantages[turn["action_start"]] = 1.2345
    bundle = Bundle()
    bundle.add(record | {"advantages": advantages, "reference_logprobs": None})
    (episode,) = bundle.document()["episodes"]
    count = turn["action_stop"] - turn["action_start"]
    assert episode["advantages"] == [1234] + [0] * (count - 1)
    assert episode["logprobs"] == [-500] * count
    assert "reference_logprobs" not in episode


def test_the_score_of_a_judge_is_kept_with_its_reason(make_record):
    bundle = Bundle()
    bundle.add(make_record())
    bundle.add(make_record() | {"judge_score": 0.123456, "judge_reason": "slow"})
    plain, judged = bundle.document()["episodes"]
    assert "judge" not in plain and judged["judge"] == [0.1235, "slow"]


def test_equal_world_states_are_stored_once(make_record):
    bundle = Bundle()
    bundle.add(make_record(), worlds=[{"grid": ["a"]}, {"grid": ["a"]}])
    bundle.add(make_record() | {"worlds": [{"grid": ["a"]}, {"grid": ["b"]}]})
    document = bundle.document()
    assert document["worlds"] == [{"grid": ["a"]}, {"grid": ["b"]}]
    assert [episode["worlds"] for episode in document["episodes"]] == [[0, 0], [0, 1]]


def test_a_repeated_turn_has_the_same_action_and_answer():
    def turn(action, observation):
        return {"action": action, "observation": observation}

    assert repeated_turns([turn("left", "a"), turn("left", "b")]) == 0
    assert repeated_turns([turn("left", "a"), turn("go", "b"), turn("left", "a")]) == 1
    assert repeated_turns([turn(None, ""), turn(None, "")]) == 0


def test_a_row_counts_its_errors(make_record):
    record = make_record(turns=[("left", "wall", 0.0), ("left", "wall", 0.0), (None, "", 0.25)])
    record["turns"][1]["is_rejected"] = True
    row = row_of(record)
    assert (row["turns"], row["parse_errors"], row["rejected"], row["repeated"]) == (3, 1, 1, 1)
    assert (row["environment"], row["number"], row["reward"]) == ("babyai", 24, 0.25)
    assert row["entropy"] == 0.5 and row["tokens"] == sum(map(len, ["Action:\nleft"] * 2)) + 12


def test_records_without_rejection_marks_have_no_rejection_count(make_record):
    record = make_record()
    del record["turns"][0]["is_rejected"]
    assert row_of(record)["rejected"] is None
    Bundle().add(record)


@pytest.mark.parametrize(
    ("opening", "goal"),
    [
        ("Your goal: open the red door\nIn front of you", "open the red door"),
        (
            "OBSERVATION:\n[1] page\nURL: http://a.b\nOBJECTIVE: Find the mug\nPREVIOUS",
            "Find the mug",
        ),
        ("Question: Where is Lund?", "Where is Lund?"),
        ("Crafting commands:\ncraft 1 a using 1 b\n\nGoal: craft a.", "craft a."),
        ("Your task is to boil lead. For compounds", "boil lead. For compounds"),
        ("What is 1 + 1?\nAnswer.", "What is 1 + 1?"),
    ],
)
def test_the_goal_is_found_in_the_first_observation(make_record, opening, goal):
    assert goal_of(make_record(opening=opening)) == goal


def test_an_item_id_is_split_into_environment_and_number():
    assert environment_of("my_env_17") == ("my_env", 17)
    assert environment_of("oddly-named") == ("oddly-named", None)


def test_files_are_ordered_by_step_and_kind(make_run, make_record):
    names = ("step_000010", "eval_000010", "step_000002", "explore_000002")
    folder = make_run({name: [make_record()] for name in names})
    for other in ("notes.jsonl", "._step_000002.jsonl"):
        (folder / "trajectories" / other).write_text("")
    found = [file.name for file in trajectory_files(folder / "trajectories")]
    assert found == ["explore_000002", "step_000002", "step_000010", "eval_000010"]


def test_the_error_for_a_damaged_line_names_it(tmp_path):
    path = tmp_path / "step_000001.jsonl"
    path.write_text('{"a": 1}\n{"a":\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        list(read_records(path))


def places(value, path=()):
    """Yields the paths of all values in lists (of each list only the first) and objects."""
    entries = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, entry in entries:
        yield (*path, key)
        if isinstance(entry, dict | list):
            yield from places(entry, (*path, key))


@pytest.mark.parametrize(
    "wrong",
    [None, "x", [], {"a": 1}, 1.5, -1, math.nan, pytest.param(10**400, id="huge")],
    ids=repr,
)
def test_a_record_with_a_wrong_value_is_refused_or_shown(make_record, tmp_path, wrong):
    right = make_record(judge_score=0.5, judge_reason="good", worlds=[{"a": 1}] * 2)
    is_text = {key: isinstance(value, str) for key, value in row_of(right).items()}
    byte_tokenizer().save(tmp_path)

    def show(record):
        row, bundle = row_of(record), Bundle()
        bundle.add(record)
        return row, bundle

    refused = 0
    for path in places(right):
        record = part = copy.deepcopy(right)
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = wrong
        try:
            row, bundle = parse_line("line 1", b"{}", lambda _, changed=record: show(changed))
        except DamagedFileError:
            refused += 1
            continue
        assert packed([row, bundle.document()])  # no NaN
        assert {key: isinstance(value, str) for key, value in row.items()} == is_text, path
        hash(tuple(row.values()))  # the page stores equal texts once
        token_pieces(tmp_path, sorted(bundle.token_ids))
    assert refused > 10


def test_token_pieces_concatenate_to_the_bytes_of_the_text(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.save(tmp_path)
    text = "a é 漢\n<|user|>"
    ids = tokenizer.encode(text)
    pieces = token_pieces(tmp_path, ids)
    assert "".join(pieces[i] for i in ids).encode("latin-1").decode() == text


def test_special_tokens_have_pieces_and_unknown_tokens_have_none(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.save(tmp_path)
    end = tokenizer.special_tokens["<|im_end|>"]
    assert token_pieces(tmp_path, [end, 99_999]) == {end: "<|im_end|>"}


def test_spaces_and_bytes_in_sentencepiece_notation_are_decoded():
    assert _as_bytes("\N{LOWER ONE EIGHTH BLOCK}door", is_byte_level=False) == b" door"
    assert _as_bytes("<0xE6>", is_byte_level=False) == b"\xe6"
    assert _as_bytes("<0xE6>", is_byte_level=True) == b"<0xE6>"


def test_a_folder_without_a_tokenizer_has_no_token_pieces(tmp_path):
    assert token_pieces(tmp_path, [1, 2]) == {}
