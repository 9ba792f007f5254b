"""Episodes as ATIF and as training traces, and their way back."""

import dataclasses
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.data.conversations import read_conversations
from agentgym_jax.data.encoding import encode
from agentgym_jax.episodes.trajectory import Outcome, to_record
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.traces.atif import to_atif
from agentgym_jax.traces.files import export_traces, read_traces
from agentgym_jax.traces.training_trace import from_training_trace, to_training_trace
from agentgym_jax.training.job_kinds import run_job
from configs.sft import trajectories
from tests.builders import experience_of, trajectory, turn

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "traces"
MESSAGES = (
    {"role": "system", "content": "rules"},
    {"role": "user", "content": "a door"},
    {"role": "assistant", "content": "open"},
    {"role": "user", "content": "a key"},
    {"role": "assistant", "content": "take"},
    {"role": "user", "content": "done"},
)


def episode(**changes):
    turns = [
        turn(2, 4, text="open", action="open", observation="a key", is_cut=True),
        turn(6, 7, text="take", action="take", observation="done", reward=1.0),
    ]
    fields = dict(outcome=Outcome.SUCCESS, score=1.0, messages=MESSAGES, version=3)
    return trajectory("ppaaooaoo", turns, **fields | changes)


def same(a, b):
    for field in dataclasses.fields(a):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), field.name)


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.ENV_ERROR])
def test_an_episode_equals_the_episode_of_its_training_trace(outcome):
    old = episode(outcome=outcome, error="x", logprob=-0.123456)
    trace = json.loads(json.dumps(to_training_trace(old)))
    (new,) = from_training_trace(trace, "place")
    same(new, old)


def branched():
    """Returns an episode whose second branch repeats an answer as context."""
    messages = (
        *MESSAGES[1:5],
        {"role": "user", "content": "a summary"},
        {"role": "assistant", "content": "open", "loss": False},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": "stop"},
    )
    turns = [
        turn(2, 4, text="open", observation="a key"),
        turn(6, 7, text="take"),
        turn(9, 10, text="stop", reward=1.0),
    ]
    fields = dict(outcome=Outcome.SUCCESS, score=1.0, messages=messages, version=3)
    return trajectory("ppaaooappa", turns, **fields, branch_starts=(7,))


def test_branches_have_their_own_prompts_in_a_trace():
    old = branched()
    trace = json.loads(json.dumps(to_training_trace(old)))
    assert [len(t["prompt_token_ids"]) for t in trace["turns"]] == [2, 6, 2]
    assert trace["turns"][2]["request"]["messages"][-1]["content"] == "go on"
    (new,) = from_training_trace(trace, "place")
    same(new, old)
    steps = to_atif(old)["steps"]
    assert steps[-1]["metrics"]["prompt_token_ids"] == old.tokens[7:9].tolist()


def test_a_trace_whose_turns_do_not_fit_together_is_refused():
    trace = to_training_trace(branched())
    trace["turns"][1]["prompt_token_ids"][0] += 1
    with pytest.raises(ValueError, match="do not follow each other"):
        from_training_trace(trace, "place")


def test_the_completions_of_an_invalid_episode_are_masked():
    turns = to_training_trace(episode(outcome=Outcome.ENV_ERROR))["turns"]
    assert not any(m for t in turns for m in t["loss_mask"])
    assert sum(to_training_trace(episode())["turns"][0]["loss_mask"]) == 2


def foreign(*turns):
    return {"schema_version": 1, "turns": list(turns)}


def call(prompt, completion, mask=None, **metadata):
    mask = [1] * len(completion) if mask is None else mask
    return {
        "node_id": f"n{len(prompt)}",
        "prompt_token_ids": prompt,
        "completion_token_ids": completion,
        "per_token_logps": [-0.5] * len(completion),
        "loss_mask": [0] * len(prompt) + mask,
        "metadata": metadata,
    }


def test_a_trace_by_another_program_has_an_episode_per_branch_and_trains_each_token_once():
    trace = foreign(call([1, 2], [3]), call([1, 2, 3, 4], [5, 6], [1, 0]), call([9], [8], reward=1))
    first, second = from_training_trace(trace, "a/b.jsonl, line 2")
    assert first.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert first.action_mask.tolist() == [False, False, True, False, True, False]
    assert (second.tokens.tolist(), second.item_id, second.sample) == ([9, 8], "b_2", 1)
    assert (second.outcome, second.reward) == (Outcome.SUCCESS, 1.0)
    assert first.outcome is Outcome.ABORTED, "an unknown reward is not zero"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"loss_mask": [1, 0, 1]}, "0 on the prompt"),
        ({"loss_mask": [0, 1]}, "loss_mask has 2 entries"),
        ({"per_token_logps": []}, "0 log-probabilities"),
        ({"per_token_logps": [0.5]}, "0.5 is not a log-probability"),
        ({"completion_token_ids": [-1]}, "-1 is not a token id"),
        ({"prompt_token_ids": None}, "'prompt_token_ids' is not a list"),
    ],
)
def test_a_damaged_trace_is_refused_with_its_place(change, message):
    with pytest.raises(ValueError, match=rf"f, line 1: turns\[0\]: .*{message}"):
        from_training_trace(foreign(call([1, 2], [3]) | change), "f, line 1")


def test_an_atif_document_has_the_tokens_of_every_turn():
    document = to_atif(episode())
    sources = [step["source"] for step in document["steps"]]
    assert sources == ["system", "user", "agent", "agent"]
    metrics = document["steps"][3]["metrics"]
    assert metrics["prompt_token_ids"] + metrics["completion_token_ids"] == list(range(10, 17))
    assert metrics["logprobs"] == [-0.25]
    assert document["extra"]["agentgym_jax"]["tail_token_ids"] == [17, 18]


def write_episodes(folder, *episodes):
    path = folder / "step_000001.jsonl"
    path.write_text("".join(json.dumps(to_record(e)) + "\n" for e in episodes))
    return path


def test_exported_training_traces_are_read_by_the_learner_and_by_sft(tmp_path):
    group = [episode(), episode(outcome=Outcome.FAILURE, success=False, sample=1)]
    path = write_episodes(tmp_path, *group, trajectory("p", []))
    target, count = export_traces(str(path), str(tmp_path / "out"), form="training_trace")
    assert count == 2
    (pathlib.Path(target) / "._traces.jsonl").write_bytes(b"\0\5\x16\7")  # as macOS writes it
    read = read_traces(target)
    for old, new in zip(group, read, strict=True):
        same(new, old)
    assert experience_of(read, group_size=2, max_tokens=12).counted_B.all()
    conversations = read_conversations(target, bad="fatal")
    (encoded,) = conversations[0].encoded
    np.testing.assert_array_equal(encoded.tokens, group[0].tokens)
    np.testing.assert_array_equal(encoded.action_mask, group[0].action_mask)


@pytest.mark.parametrize("train_on", ["actions", "text"])
def test_each_branch_of_a_trace_is_a_sequence_of_sft(tmp_path, train_on):
    old = branched()
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(to_training_trace(old)) + "\n")
    conversations = read_conversations(path, bad="fatal")
    found = encode(conversations, ChatRenderer(byte_tokenizer()), {}, train_on=train_on)
    assert len(old.branches) == len(found) == 2
    for branch, sequence in zip(old.branches, found, strict=True):
        np.testing.assert_array_equal(sequence.tokens, old.tokens[branch])
        trained = np.arange(len(sequence.tokens)) > 0
        expected = old.action_mask[branch] if train_on == "actions" else trained
        np.testing.assert_array_equal(sequence.action_mask, expected)


def test_sft_trains_on_traces_without_reward_and_not_on_episodes_that_were_stopped(tmp_path):
    traces = [foreign(call([1], [2])), to_training_trace(episode(outcome=Outcome.ABORTED))]
    path = tmp_path / "traces.jsonl"
    path.write_text("".join(json.dumps(trace) + "\n" for trace in traces))
    assert [c.is_valid for c in read_conversations(path, bad="fatal")] == [True, False]


def test_encoding_keeps_the_token_ids_of_a_trace_and_refuses_another_vocabulary(tmp_path):
    renderer = ChatRenderer(byte_tokenizer())
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(foreign(call([7, 5], [3, 4], [0, 1]))) + "\n")
    (encoded,) = encode(read_conversations(path, bad="fatal"), renderer, {}, train_on="actions")
    assert encoded.tokens.tolist() == [7, 5, 3, 4]
    assert encoded.action_mask.tolist() == [False, False, False, True]
    path.write_text(json.dumps(foreign(call([70000], [3]))) + "\n")
    with pytest.raises(ValueError, match="token id 70000 of the trace is not in the vocabulary"):
        encode(read_conversations(path, bad="fatal"), renderer, {}, train_on="actions")


def test_a_job_on_traces_of_another_tokenizer_ends_with_one_line(tmp_path):
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(foreign(call([70000], [3]))) + "\n")
    c = trajectories.get_config("smoke")
    c.mesh.data = -1  # all devices of the tests
    c.sft.rows = c.sft.micro_rows = 8
    c.sft.files = (str(path),)
    with c.unlocked():
        c.sft.demonstrations = {}
    with pytest.raises(ConfigError, match="config.sft: .*token id 70000 of the trace"):
        run_job(plain(c), str(tmp_path / "run"), plots=False)


def test_an_export_leaves_an_existing_directory_and_nothing_after_an_error(tmp_path):
    path = write_episodes(tmp_path, episode())
    with pytest.raises(FileExistsError, match="new directory"):
        export_traces(str(path), str(tmp_path), form="atif")
    path.write_text('{"a": 1}\n')
    with pytest.raises(ValueError, match="line 1: no record of an episode"):
        export_traces(str(path), str(tmp_path / "out"), form="atif")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_exports_equal_the_files_that_the_packages_accepted():
    for name, convert in (("atif", to_atif), ("training_trace", to_training_trace)):
        assert convert(episode()) == json.loads((GOLDEN / f"{name}.json").read_text()), name


@pytest.mark.slow
def test_the_packages_accept_the_exports(tmp_path):
    python = os.environ.get("AGENTGYM_JAX_TRACE_PYTHON", "")
    if not python:
        pytest.skip("AGENTGYM_JAX_TRACE_PYTHON names no Python with openenv and atif")
    subprocess.run([python, str(GOLDEN / "validate.py"), str(GOLDEN)], check=True)
