"""Replays of the recorded episodes of a tiny run, whose environment has known values."""

import io
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import rich.console

from agentgym_jax.config.model import ModelSettings
from agentgym_jax.config.sections import plain
from agentgym_jax.episodes.trajectory import from_record, to_record
from agentgym_jax.learner.stored_weights import fingerprint
from agentgym_jax.models.sources import ModelSource
from agentgym_jax.replays import credit
from agentgym_jax.replays.continuations import (
    Replay,
    ReplayOptions,
    describe_weights,
    open_run_folder,
    replay,
    target_of,
)
from agentgym_jax.replays.recorded_episodes import ReplayError, find_episode
from agentgym_jax.replays.replay_policy import PolicyChoice
from agentgym_jax.rollout.continuation import RecordDiffersError
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.training.job_kinds import run_job
from configs import common
from tests.builders import decoder_config, trajectory
from tests.replays import two_turns

ROOT = pathlib.Path(__file__).parents[2]
ENVIRONMENT = "two_turns"


def tasks(start, stop):
    return dict(kind="residues", start=start, stop=stop, modulus=1, groups={"all": 0})


def run_config():
    """Returns the config of an RL run of two steps with a checkpoint after each."""
    c = common.base()
    c.total_steps = 2
    with c.unlocked():
        c.algorithm = common.grpo()
        c.algorithm.logprob_chunk = 64
        c.model = common.tiny_model()
        c.model.architecture.num_layers = 1
        c.tokenizer.source = "bytes"
        c.mesh = dict(data=-1, fsdp=1, tensor=1, decode_tensor=0)
        c.env_server = dict(transport="inprocess", workers=1)
        c.environments = {
            ENVIRONMENT: common.environment(
                module="tests.replays.two_turns", train=tasks(0, 8), eval=tasks(40, 42)
            )
        }
        c.sampler = dict(
            rows=8,
            decode_rows=0,
            cache_length=192,
            buckets=((16, 8), (64, 2)),
            decode_steps=4,
            return_after_finished=4,
        )
        c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=6, max_tokens=192)
    c.pool.workers = 4
    c.rollout.tasks_per_step = 2
    c.rollout.group_size = 4
    c.rollout.max_parse_errors = 2
    c.learner.row_length = 192
    c.learner.num_row_lengths = 1
    c.learner.micro_rows = 8
    c.learner.min_informative_groups = 0
    c.algorithm.entropy_coef = 0.01
    c.horizon = dict(kind="fixed", turns=3)
    c.optimizer.learning_rate = 3e-2
    c.evaluation = dict(every=0, at_start=True, max_turns=2, samples=1, greedy=True)
    c.checkpoint = dict(every=1, max_to_keep=4, keep_every=0)
    return plain(c)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns the folder of a run whose turns are almost all actions."""
    folder = tmp_path_factory.mktemp("replay") / "run"
    run_job(run_config(), str(folder), plots=False)
    return RunFolder(folder)


def run_replay(folder, episode, **options) -> Replay:
    return replay(
        folder,
        ReplayOptions(episode=episode, **options),
        on_policy=lambda text: None,
        on_progress=lambda *counts: None,
        should_stop=lambda: False,
    )


def continued(folder, episode, **options):
    """Returns the only continuation of a replay."""
    ((_, found),) = run_replay(folder, episode, **options).continuations
    return found


def longest(folder, step, kind="step"):
    """Returns the name of the episode with most turns."""
    records = folder.read_trajectories(step, kind)
    row = max(range(len(records)), key=lambda i: len(records[i]["turns"]))
    return f"{kind}_{step:06d}/{row}"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), [("step", 1), ("step", 2), ("eval", 2)])
def test_the_sampling_weights_and_key_give_the_recorded_tokens_at_every_turn(trained, kind, step):
    name = longest(trained, step, kind)
    recorded = find_episode(trained, name).trajectory
    assert len(recorded.turns) >= 2
    for turn in range(1, len(recorded.turns) + 1):
        version = find_episode(trained, name).version(turn)
        found = continued(trained, name, turn=turn, step=version)
        np.testing.assert_array_equal(found.tokens, recorded.tokens)
        np.testing.assert_array_equal(found.sources, recorded.sources)
        np.testing.assert_array_equal(found.policy_versions, recorded.policy_versions)
        np.testing.assert_allclose(found.logprobs, recorded.logprobs, atol=1e-4)
        assert found.messages == recorded.messages and found.turns == recorded.turns
        assert (found.outcome, found.step) == (recorded.outcome, recorded.step)


@pytest.mark.slow
def test_a_forced_action_changes_the_continuation_and_only_it(trained):
    name = longest(trained, 2)
    recorded = find_episode(trained, name).trajectory
    found = continued(trained, name, turn=2, action="shout", step=1)
    start = recorded.turns[1].action_start
    np.testing.assert_array_equal(found.tokens[:start], recorded.tokens[:start])
    assert found.turns[0] == recorded.turns[0]
    assert (found.turns[1].action, found.turns[1].text) == ("shout", "shout")
    assert not found.logprobs[start : found.turns[1].action_stop].any()
    assert set(found.policy_versions[start : found.turns[1].action_stop]) == {-1}


@pytest.mark.slow
def test_other_weights_or_another_key_continue_with_other_tokens_after_the_same_prefix(trained):
    name = longest(trained, 1)
    recorded = find_episode(trained, name).trajectory
    start = recorded.turns[1].action_start
    by_step = continued(trained, name, turn=2, step=2)
    assert set(by_step.policy_versions[start:]) - {-1} == {2}
    branches = [
        found for _, found in run_replay(trained, name, turn=2, step=0, branches=3).continuations
    ]
    for found in (by_step, *branches):
        np.testing.assert_array_equal(found.tokens[:start], recorded.tokens[:start])
    sampled = {tuple(found.tokens[start:]) for found in (recorded, by_step, *branches)}
    assert len(sampled) == 5


@pytest.mark.slow
def test_a_greedy_replay_repeats_the_greedy_evaluation(trained):
    # samples of a task: 0 is sampled, 1 is greedy
    records = trained.read_trajectories(2, "eval")
    row = next(i for i, record in enumerate(records) if record["sample"] == 1)
    recorded = find_episode(trained, f"eval_000002/{row}").trajectory
    found = continued(trained, f"eval_000002/{row}", turn=1, is_greedy=True)
    np.testing.assert_array_equal(found.tokens, recorded.tokens)


@pytest.mark.slow
def test_the_credit_is_that_of_the_action_that_decides_the_task(trained, tmp_path):
    copy = RunFolder(shutil.copytree(trained.path, tmp_path / "run"))
    solved = run_replay(copy, longest(copy, 1), turn=1, action="win", step=0)
    assert solved.credits[0].before is None and solved.credits[0].after.success == 1.0
    copy.write_trajectories(1, solved.records())
    result = run_replay(copy, "step_000001/0", turn=None, branches=4)
    first, *others = result.document()["turns"]
    assert (first["turn"], first["action"]) == (1, "win")
    assert (first["before"]["success"], first["after"]["success"]) == (0.0, 1.0)
    assert (first["before"]["episodes"], first["credit"], first["score_credit"]) == (4, 1.0, 1.0)
    assert first["credit_interval"][0] > 0 and first["credit_interval"][1] == 1.0
    assert [row["credit"] for row in others] == [0.0] * len(others)
    assert others[-1]["after"]["episodes"] == 0  # the recorded end
    assert len(result.continuations) == 4 * len(result.credits)
    facts = {tuple(r["replay"].items()) for r in result.records()}
    assert len(facts) == len(result.continuations)


@pytest.mark.slow
def test_an_environment_that_answers_differently_is_an_error_with_the_first_difference(
    trained, monkeypatch
):
    monkeypatch.setattr(two_turns.TwoTurns, "greeting", "tusk {}")
    name = longest(trained, 1)
    with pytest.raises(RecordDiffersError, match=r"two_turns_\d, the first observation: at char"):
        run_replay(trained, name, turn=2)
    monkeypatch.undo()
    monkeypatch.setattr(two_turns.TwoTurns, "echo", "herd {}")
    with pytest.raises(RecordDiffersError, match="turn 1: at character 2 the record has 'heard"):
        run_replay(trained, name, turn=2)
    monkeypatch.undo()
    monkeypatch.setattr(two_turns.TwoTurns, "num_turns", 1)
    with pytest.raises(RecordDiffersError, match="turn 1: at character"):
        run_replay(trained, name, turn=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(episode="step_000009/3", turn=1), "no such file; the nearest is step_000002/3"),
        (dict(episode="eval_9/0", turn=1), "the nearest is eval_000002/0"),
        (dict(episode="12", turn=1), "named as in the viewer, such as step_000012/3"),
        (dict(episode="step_1/99", turn=1), "has 8 episodes, from 0; the nearest is step_000001/7"),
        (dict(episode="step_1/0", turn=9), r"--turn=9: step_000001/0 has turns 1 to \d"),
        (
            dict(episode="step_1/0", turn=1, step=7),
            r"--step=7: the run has checkpoints of \[1, 2\]",
        ),
        (dict(episode="step_1/0", turn=1, model="expert"), "--model=expert has no weights"),
        (dict(episode="step_1/0", turn=2, max_turns=1), "--max_turns=1 is below turn 2"),
    ],
)
def test_a_wrong_request_is_refused_with_one_line(trained, options, message):
    with pytest.raises(ReplayError, match=message) as error:
        run_replay(trained, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(turn=None, action="a"), "--action replaces the action of one turn"),
        (dict(turn=1, model="m", step=1), "--model and --step"),
        (dict(turn=1, is_greedy=True, branches=2), "greedy continuations are all the same"),
    ],
)
def test_contradictory_options_are_refused(options, message):
    with pytest.raises(ReplayError, match=message):
        ReplayOptions(episode="step_1/0", **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(outcome="env_error", error="the server is gone"), "failed: its outcome is env_error"),
        (dict(branch_starts=[3]), "has rewritten history"),
    ],
)
def test_failed_and_rewritten_episodes_are_refused(trained, tmp_path, changes, message):
    copy = RunFolder(shutil.copytree(trained.path, tmp_path / "run"))
    records = copy.read_trajectories(1)
    copy.write_trajectories(1, [record | changes for record in records])
    with pytest.raises(ReplayError, match=message):
        run_replay(copy, "step_1/0", turn=1)


@pytest.mark.slow
def test_episodes_of_an_agent_program_are_refused(trained, tmp_path):
    copy = RunFolder(shutil.copytree(trained.path, tmp_path / "run"))
    config = copy.config() | {"program": {"command": "true"}}
    copy.config_path.write_text(json.dumps(config))
    with pytest.raises(ReplayError, match="was played by an agent program"):
        run_replay(copy, "step_1/0", turn=1)


@pytest.mark.slow
def test_the_command_writes_both_files_and_overwrites_nothing(trained):
    command = [sys.executable, "-m", "agentgym_jax.replay", str(trained.path)]
    command += ["--episode=step_1/0", "--every_turn", "--branches=2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    target = trained.path / "replays" / "step_000001_0.jsonl"
    records = [json.loads(line) for line in target.read_text().splitlines()]
    recorded = find_episode(trained, "step_1/0").trajectory
    assert len(records) == 2 * len(recorded.turns)
    assert {from_record(record).item_id for record in records} == {recorded.item_id}
    table = json.loads(target.with_suffix(".json").read_text())
    assert table["episode"] == "step_000001/0" and len(table["turns"]) == len(recorded.turns)
    assert "credit" in done.stdout and str(target) in done.stdout
    assert "sampled by the weights of step 0; continued by those of step 2" in done.stderr
    before = target.read_bytes()
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 1 and "give another --out, or --overwrite" in again.stderr
    assert target.read_bytes() == before


def test_the_replay_of_an_evaluation_names_the_evaluated_weights(tmp_path):
    weights = tmp_path / "tiny"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"old")
    source = ModelSource("tiny", "hf_dir", weights, decoder_config())
    settings = ModelSettings(source="tiny", dtype="float32", decode_dtype="float32", remat="none")
    folder = RunFolder(tmp_path)
    folder.write_trajectories(0, [to_record(trajectory())], "eval")
    episode = find_episode(folder, "eval_0/0")

    def described(**changes):
        document = {"identity": {"agent": fingerprint(source) | changes}}
        folder.evaluation_path.write_text(json.dumps(document))
        return describe_weights(folder, episode, [1], PolicyChoice(settings, source))

    same, other = described(), described(weights="none")
    assert same == "eval_000000/0: sampled by tiny; continued by tiny"
    assert other == f"{same} with other weights"
    assert "sampled by runs/a, step 3; continued by tiny" in described(name="runs/a", step=3)


def test_another_replay_of_a_turn_gets_another_file(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_trajectories(1, [to_record(trajectory())])
    one_turn = ReplayOptions("step_1/0", turn=1)
    first = target_of(folder, one_turn, None, overwrite=False)
    first.parent.mkdir()
    first.touch()
    second = target_of(folder, one_turn, None, overwrite=False)
    assert (first.name, second.name) == (
        "step_000001_0_turn_1.jsonl",
        "step_000001_0_turn_1_2.jsonl",
    )
    assert target_of(folder, one_turn, None, overwrite=True) == first


def test_a_file_with_the_name_of_the_table_is_refused(tmp_path):
    folder, one_turn = RunFolder(tmp_path), ReplayOptions("step_1/0", turn=1)
    with pytest.raises(ReplayError, match="the table of the turns gets this name"):
        target_of(folder, one_turn, "found.json", overwrite=True)
    assert target_of(folder, one_turn, "a.b", overwrite=True) == pathlib.Path("a.b")


def test_the_credit_interval_is_newcombes():
    # the example of table II (a) of Newcombe 1998: 56/70 - 48/80 gives 0.0524 to 0.3339
    def value(successes, n):
        low, high = credit.wilson_interval(successes, n)
        return credit.Value(n, successes / n, 0.0, (low, high))

    row = credit.TurnCredit(1, "go", value(48, 80), value(56, 70)).to_row()
    assert row["credit"] == pytest.approx(0.2)
    np.testing.assert_allclose(row["credit_interval"], (0.0524, 0.3339), atol=5e-5)


def test_the_table_of_credits_is_complete_in_80_columns():
    low, high = {"episodes": 16, "success": 0.44}, {"episodes": 0, "success": 1.0}
    row = dict(turn=12, action="toggle and go through red closed door 1", score_credit=0.56)
    row |= dict(before=low | {"interval": (0.23, 0.67)}, after=high | {"interval": None})
    row |= dict(credit=0.56, credit_interval=(0.33, 0.77))
    console = rich.console.Console(width=80, record=True, file=io.StringIO())
    console.print(credit.credit_table("a title", [row]))
    text = console.export_text()
    for shown in ("turn", "12", "door 1", "44 (23, 67)", "100 end", "+56 (+33, +77)", "+0.56"):
        assert shown in text


def test_a_bucket_is_refused():
    with pytest.raises(ReplayError, match="needs a local run folder"):
        open_run_folder("gs://bucket/run")
