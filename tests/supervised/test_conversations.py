"""Loading and checking the conversations and pairs that a job trains on."""

import dataclasses
import json
import pathlib
import resource
import signal
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.data import demonstrations
from agentgym_jax.data.conversations import Conversation, read_conversations, sampled_sequences
from agentgym_jax.data.demonstrations import record, record_sets
from agentgym_jax.data.preferences import Preference
from agentgym_jax.data.tasks import Task, count_earlier
from agentgym_jax.episodes.trajectory import Outcome, to_record
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.supervised import agentevol, dpo, imitation_data
from agentgym_jax.supervised.dpo import encode_pairs, load_preferences, parse
from agentgym_jax.supervised.imitation_data import load_conversations
from agentgym_jax.text.chat import ChatRenderer, Message
from agentgym_jax.text.tokenizer import byte_tokenizer
from configs.dpo import trajectories
from tests import waiting
from tests.builders import trajectory

MESSAGES = (Message("user", "a door"), Message("assistant", "open", True))


def settings(path, **changes):
    config = trajectories.get_config("smoke")
    config.dpo.files = (str(path),)
    with config.unlocked():
        config.dpo.demonstrations = {}
    config.dpo.update(changes)
    return parse(plain(config)).learning


def write(path, outcomes):
    turns = lambda answer: [  # noqa: E731
        {"from": "human", "value": "a door", "loss": None},
        {"from": "gpt", "value": answer, "loss": True},
    ]
    rows = [
        {"item_id": "door_1", "conversations": turns(f"{i}"), "outcome": outcome, "reward": reward}
        for i, (outcome, reward) in enumerate(outcomes)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_episodes_whose_environment_failed_are_not_training_data(tmp_path):
    path = write(tmp_path / "a.jsonl", [("success", 1.0), ("env_error", 0.0), ("failure", 0.0)])
    found = load_conversations(settings(path), RunFolder(tmp_path), None)
    assert [c.messages[-1].content for c in found] == ["0", "2"]


@pytest.mark.parametrize(
    ("own", "used"),
    [
        ({}, {"module": "houses", "options": {"size": 3}}),
        ({"module": "", "options": None}, {"module": "houses", "options": {"size": 3}}),
        ({"options": {"size": 5}}, {"module": "houses", "options": {"size": 5}}),
    ],
)
def test_demonstrations_are_recorded_in_the_environment_of_the_run(
    tmp_path, monkeypatch, own, used
):
    recorded = []
    monkeypatch.setattr(imitation_data, "record_sets", lambda sets, *_: recorded.append(sets) or [])
    tasks = dict(kind="residues", start=0, stop=2, modulus=1, groups={"all": 0})
    plays = dict(agent="expert", epsilon=0.0, max_turns=2, seed=0)
    options = settings(tmp_path)
    entry = dict(environment="house", tasks=tasks, **plays, **own)
    options = dataclasses.replace(options, files=(), demonstrations={"shown": entry})
    started = {"house": {"module": "houses", "options": {"size": 3}}}
    load_conversations(options, RunFolder(tmp_path), SimpleNamespace(clients={}, started=started))
    assert recorded[0]["shown"][1] == plays | used


def test_an_unreadable_file_is_a_config_error(tmp_path):
    path = write(tmp_path / "a.jsonl", [("lost", 1.0)])
    with pytest.raises(ConfigError, match="config.dpo.files: .*a.jsonl, line 1: field 'outcome'"):
        load_conversations(settings(path), RunFolder(tmp_path), None)


def test_a_reference_that_does_not_fit_the_disk_is_one_line(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(RunFolderError, match="cannot write .*/reference/a.npy"):
            dpo._save(tmp_path / "reference" / "a.npy", np.zeros(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_error_for_missing_pairs_counts_the_episodes(tmp_path):
    path = write(tmp_path / "a.jsonl", [("success", 1.0), ("success", 0.95)])
    options = settings(path)
    episodes = load_conversations(options, RunFolder(tmp_path), None)
    with pytest.raises(ConfigError, match="there is no pair.*conversations=2.*pairs=0"):
        load_preferences(options, episodes, seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(micro_rows=1), "micro_rows=1: expected a whole number, at least 2"),
        (dict(loss="hinge"), "loss='hinge': expected one of sigmoid, ipo"),
        (dict(beta=0.0), "beta=0.0: expected a number, above 0"),
        (dict(files=()), "there is nothing to pair"),
        (dict(steps=9), "must be the same number in job 'dpo'"),
        (dict(too_long="cut"), "too_long='cut'"),
    ],
)
def test_an_invalid_value_is_refused_before_anything_starts(change, message):
    with pytest.raises(ConfigError, match=message):
        settings("nowhere", **change)


def test_demonstrations_of_a_custom_environment_are_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parents[2])
    path = tmp_path / "play.jsonl"
    tasks = [Task("bandit", 3, "red"), Task("bandit", 4, "green")]
    options = dict(agent="random", epsilon=0.0, max_turns=2, seed=0)
    record(tasks, path, **options, module="configs.rl.bandit")
    found = read_conversations(path, bad="fatal")
    assert [c.item_id for c in found] == ["bandit_3", "bandit_4"]
    with pytest.raises(RuntimeError, match="bandit"):
        record(tasks, path, **options)


def test_ctrl_c_during_a_recording_is_no_failure_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(demonstrations, "_run", lambda *arguments: 128 + signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        record(
            [Task("bandit", 3, "red")],
            tmp_path / "play.jsonl",
            agent="random",
            epsilon=0.0,
            max_turns=2,
            seed=0,
        )


# An environment whose second episode begins when a file exists.
GATED = """
import pathlib, time
from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import standard_environment

class Gate(Environment):
    def reset(self, data_idx):
        limit = time.monotonic() + {seconds}
        while data_idx and not pathlib.Path({gate!r}).exists() and time.monotonic() < limit:
            time.sleep(0.01)
        return StepResult("go", 0, 0, False)

    def step(self, action):
        return StepResult("done", 1, 1, True)

    def expert_action(self):
        return "go"

def make_served_environment():
    tasks = [dict(data_idx=i, split="train") for i in range(2)]
    return standard_environment(
        Gate, tasks, name="gate", version="1", instructions="Go.", max_turns=2
    )
"""


def test_the_progress_of_a_recording_counts_finished_episodes_of_all(tmp_path, monkeypatch):
    gate = tmp_path / "open"
    code = GATED.format(gate=str(gate), seconds=waiting.PATIENCE_S)
    (tmp_path / "gated.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(demonstrations, "_PROGRESS_S", 0.05)
    shown = []

    def show(done, total):
        shown.append((done, total))
        if done == 1:
            gate.touch()

    options = dict(agent="expert", epsilon=0.0, max_turns=2, seed=0, module="gated")
    sets = {name: ([Task("gate", i, "all") for i in range(2)], options) for name in ("a", "b")}
    folder = RunFolder(tmp_path / "run")
    assert len(record_sets(sets, folder, show)) == 4
    assert (1, 4) in shown and shown.index((0, 4)) < shown.index((1, 4)) < shown.index((2, 4))
    assert {total for _, total in shown} == {4} and shown == sorted(shown)
    shown.clear()
    assert len(record_sets(sets, folder, show)) == 4 and not shown  # nothing is recorded again


def test_a_conversation_of_several_sequences_is_no_side_of_a_pair(tmp_path):
    plain_side, branches = (
        Conversation("door_1", messages=MESSAGES, encoded=sampled_sequences(t))
        for t in (trajectory("pa"), trajectory("papa", branch_starts=(2,)))
    )
    path = write(tmp_path / "a.jsonl", [("success", 1.0)])
    with pytest.raises(ConfigError, match="on door_1 is not one sequence of tokens"):
        encode_pairs(
            [Preference(plain_side, branches)], ChatRenderer(byte_tokenizer()), settings(path)
        )
    (sequence,) = plain_side.encoded
    foreign = dataclasses.replace(sequence, tokens=sequence.tokens + 70_000)
    side = dataclasses.replace(plain_side, encoded=(foreign,))
    with pytest.raises(ConfigError, match="config.dpo: door_1: token id 70.* of the trace is not"):
        encode_pairs([Preference(side, side)], ChatRenderer(byte_tokenizer()), settings(path))


def test_a_task_explored_twice_in_a_round_has_different_samples():
    found = []

    def collect(requests, **_):
        found.extend(requests)
        return [SimpleNamespace(outcome=Outcome.FAILURE)], CollectStatistics(Counter())

    rollout = SimpleNamespace(max_replacements=1, max_parse_errors=1)
    parts = SimpleNamespace(
        settings=SimpleNamespace(
            agentevol=SimpleNamespace(samples=2, explore={"door": {"max_turns": 1}}),
            sampling=SimpleNamespace(max_tokens=8),
            agent=SimpleNamespace(rollout=rollout),
        ),
        agent=SimpleNamespace(collector=SimpleNamespace(collect=collect)),
    )
    run = SimpleNamespace(seed=0, progress=lambda phase: None, should_stop=lambda: False)
    tasks = [Task("door", i, "doors") for i in (1, 2, 1)]
    for draw in zip(tasks, count_earlier(tasks), strict=True):  # each task in a file of its own
        agentevol._collect(run, parts, [draw], step=4, phase="")
    # a replacement has the number of its episode plus the number of samples
    keys = [(r.task.item_id, r.sample + extra) for r in found for extra in (0, 2)]
    assert len(set(keys)) == len(keys) == 12


def test_files_of_an_exploration_that_lack_episodes_are_refused(tmp_path, monkeypatch):
    tasks = [Task("door", i, "doors") for i in range(3)]
    monkeypatch.setattr(agentevol, "_tasks_of_round", lambda parts, number: tasks)
    learning = SimpleNamespace(steps=4)
    explore = SimpleNamespace(tasks_per_file=2, samples=2)
    parts = SimpleNamespace(settings=SimpleNamespace(agentevol=explore, learning=learning))
    run = SimpleNamespace(folder=RunFolder(tmp_path))
    records = [to_record(trajectory()) for _ in range(4)]
    run.folder.write_trajectories(4, records, "explore00000")
    run.folder.write_trajectories(4, records[:2], "explore00001")
    assert len(agentevol._explore(run, parts, None, 1)) == 6
    run.folder.write_trajectories(4, records[:1], "explore00001")
    with pytest.raises(RunFolderError, match="has 5 of 6 episodes of the exploration after step 4"):
        agentevol._explore(run, parts, None, 1)
