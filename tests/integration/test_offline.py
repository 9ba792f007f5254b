"""Whole runs of DPO and AgentEvol in this process, including runs that resume after a crash."""

import json
import pathlib

import jax
import numpy as np
import pytest

from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.jobs import job
from agentgym_jax.jobs.run import Run, StopFlag
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.sources import resolve
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.supervised import agentevol, dpo
from agentgym_jax.supervised.agentevol import open_agentevol
from agentgym_jax.supervised.dpo import open_dpo
from agentgym_jax.text.tokenizer import byte_tokenizer
from configs import common
from configs.agentevol import textcraft_babyai
from configs.dpo import trajectories
from tests.builders import decoder_config
from tests.model_files import save_random_model

HERE = pathlib.Path(__file__).parent
SAMPLER = dict(
    rows=8, cache_length=256, buckets=((64, 8),), decode_steps=4, return_after_finished=4
)


class Crash(Exception):
    """An error that the program does not catch."""


@pytest.fixture(scope="module", autouse=True)
def setup(compiled_fast):
    """Makes the environments importable, also for the process that records demonstrations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        patch.syspath_prepend(str(HERE))
        # The runs use one of the test session's eight devices.
        patch.setattr(job, "build_layouts", lambda mesh, **_: (None, None))
        yield


def run_agentevol(config, workdir):
    with open_agentevol(config, str(workdir), StopFlag()) as (run, parts):
        agentevol.train(run, parts)


def run_dpo(config, workdir):
    with open_dpo(config, str(workdir), StopFlag()) as (run, parts):
        dpo.train(run, parts)


def params(workdir):
    source = resolve(str(workdir))
    with Checkpoints(workdir / "checkpoints", max_to_keep=1, read_only=True) as checkpoints:
        step = checkpoints.latest_step()
        return step, checkpoints.restore_params(step, Policy(source.config).abstract_params())


def lines(workdir):
    """Returns the logged values of each step without clock times."""
    read = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    clock = ("time", "rate", "jax", "system")
    return [{k: v for k, v in x.items() if k.split("/")[0] not in clock} for x in read]


def episodes(workdir):
    """Returns the records of explored episodes by file name."""
    found = {}
    for path in sorted((workdir / "trajectories").glob("explore*")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            del record["seconds"]
        found[path.name] = records
    return found


def assert_same(workdir, reference):
    (step, found), (last, expected) = params(workdir), params(reference)
    assert step == last
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert lines(workdir) == lines(reference)
    assert episodes(workdir) == episodes(reference)


def tosses(start, stop, name):
    return dict(kind="residues", start=start, stop=stop, modulus=1, groups={name: 0})


@pytest.fixture(scope="module")
def evolving():
    c = textcraft_babyai.get_config("smoke")
    c.model.architecture.num_layers = 1
    with c.unlocked():
        c.environments = {
            name: common.environment(
                module=name, train=tosses(0, 6, name), eval=tosses(40, 42, name)
            )
            for name in ("coin", "penny")
        }
        c.agentevol.explore = dict(
            coin=dict(max_turns=1, measure="success", threshold=1.0),
            penny=dict(max_turns=1, measure="reward", threshold=0.5),
        )
        c.sft.demonstrations = {
            name: dict(
                environment=name,
                agent="expert",
                epsilon=0.0,
                max_turns=1,
                seed=0,
                tasks=tosses(20, 23, name),
            )
            for name in ("coin", "penny")
        }
    c.agentevol.tasks_per_file = 5
    c.agentevol.samples = 2
    c.agentevol.weighting = "importance"
    c.agentevol.keep_per_task = 0
    c.sampler = SAMPLER
    c.sampling.max_turn_tokens = 3
    c.sampling.max_tokens = c.sft.row_length = 256
    c.checkpoint.every = 1
    return plain(c)


@pytest.fixture(scope="module")
def evolved(evolving, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("evolved") / "run"
    run_agentevol(evolving, workdir)
    return workdir


@pytest.mark.slow
def test_two_rounds_explore_select_and_fit_again(evolved):
    logged = lines(evolved)
    assert [x["step"] for x in logged] == [1, 2, 3, 4, 5, 6]
    assert [x["agentevol/round"] for x in logged] == [0, 0, 1, 1, 2, 2]
    for x in logged[2:]:
        assert x["agentevol/explored"] == 24 and x["agentevol/demonstrations"] == 6
        assert 0 < x["agentevol/kept"] < 24
    assert all("eval/success" in logged[i] for i in (1, 3, 5))
    # Every fit starts from the base model, so the first loss is about equal in every round.
    assert logged[2]["sft/loss"] == pytest.approx(logged[0]["sft/loss"], abs=0.05)


@pytest.mark.slow
def test_explored_episodes_have_the_ids_of_their_tasks(evolved):
    """Checks that the ids name the environment; AgentGym writes `webshop_N` for every task."""
    for step in (2, 4):
        folder = RunFolder(evolved)
        records = [r for p in range(3) for r in folder.read_trajectories(step, f"explore{p:05d}")]
        ids = [record["item_id"] for record in records]
        assert sorted(ids) == sorted(
            f"{name}_{i}" for name in ("coin", "penny") for i in range(6) for _ in range(2)
        )
        for record in records:
            said = [turn["value"] for turn in record["conversations"] if turn["from"] == "human"]
            assert said[0] == f"toss {record['item_id'].rpartition('_')[2]}"


def crash_at(monkeypatch, where, number):
    """Makes the next run fail at the given call of a method as if killed, without saving anything."""
    original = getattr(*where)
    calls = []

    def dying(*args, **kwargs):
        calls.append(args)
        if len(calls) == number:
            raise Crash
        return original(*args, **kwargs)

    monkeypatch.setattr(*where, dying)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "number"),
    [
        # Round 1 writes the trajectory files 1 to 3, with its evaluations in between.
        pytest.param((RunFolder, "write_trajectories"), 3, id="in the middle of exploring"),
        pytest.param((Run, "log_step"), 4, id="in the middle of a fit"),
    ],
)
def test_a_crashed_run_resumes_to_the_same_result(
    evolving, evolved, tmp_path, monkeypatch, where, number
):
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, where, number)
        run_agentevol(evolving, workdir)
    assert len(lines(workdir)) < 6
    run_agentevol(evolving, workdir)
    assert_same(workdir, evolved)


@pytest.mark.slow
def test_lost_files_of_an_exploration_are_an_error_after_the_policy_changed(
    evolving, tmp_path, monkeypatch
):
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, (Run, "log_step"), 4)
        run_agentevol(evolving, workdir)
    (workdir / "trajectories" / "explore00001_000002.jsonl").unlink()
    with pytest.raises(Exception, match="explore00001_000002.jsonl is missing"):
        run_agentevol(evolving, workdir)


@pytest.fixture(scope="module")
def preferring(tmp_path_factory):
    turns = lambda *said: [  # noqa: E731
        {"from": speaker, "value": value, "loss": speaker == "gpt" or None}
        for speaker, value in said
    ]
    rows = [
        {
            "item_id": f"coin_{i}",
            "prompt": turns(("human", f"toss {i}")),
            "chosen": turns(("gpt", "a" * (i + 1))),
            "rejected": turns(("gpt", "c"), ("human", "no"), ("gpt", "d" * i)),
        }
        for i in range(5)
    ]
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    c = trajectories.get_config("smoke,evaluate=textcraft")
    c.model.architecture.num_layers = 1
    with c.unlocked():
        c.environments = {"coin": common.environment(module="coin", eval=tosses(40, 43, "coin"))}
    c.sampler, c.sampling.max_tokens, c.sampling.max_turn_tokens = SAMPLER, 256, 3
    c.evaluation = dict(every=2, at_start=True, max_turns=1, samples=2, greedy=False)
    c.total_steps = c.dpo.steps = 4
    c.dpo.pairs = 3
    c.dpo.row_length = 64
    c.dpo.optimizer.learning_rate = 1e-2
    with c.unlocked():
        c.dpo.demonstrations = {}
    c.dpo.preferences = (str(path),)
    return plain(c)


@pytest.mark.slow
def test_dpo_learns_the_pairs_and_resumes_to_the_same_result(preferring, tmp_path, monkeypatch):
    run_dpo(preferring, tmp_path / "whole")
    evaluated, *logged = lines(tmp_path / "whole")
    assert [x["step"] for x in logged] == [1, 2, 3, 4]
    assert ["eval/success" in x for x in (evaluated, *logged)] == [True, False, True, False, True]
    assert evaluated["eval/episodes"] == 6
    assert logged[0]["dpo/loss"] == pytest.approx(np.log(2), rel=1e-4)
    assert logged[-1]["dpo/loss"] < 0.5 and logged[-1]["dpo/accuracy"] == 1.0
    workdir = tmp_path / "crashed"
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, (Run, "log_step"), 4)
        run_dpo(preferring, workdir)
    # The resumed run does not compute the reference scores again; otherwise this patch would make
    # it fail.
    monkeypatch.setattr(dpo, "make_score", None)
    run_dpo(preferring, workdir)
    assert_same(workdir, tmp_path / "whole")


@pytest.mark.slow
def test_dpo_has_one_initial_policy_also_if_it_starts_again(preferring, tmp_path, monkeypatch):
    """Checks a run without a checkpoint, whose stored reference is of its first start."""
    config = decoder_config(vocab_size=byte_tokenizer().vocab_size, max_position=256)
    base, workdir = save_random_model(tmp_path, config), tmp_path / "run"
    preferring = {**preferring, "model": {**preferring["model"], "source": str(base)}}
    preferring["model"]["architecture"], preferring["tokenizer"] = {}, {"source": "model"}
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, (Run, "log_step"), 1)
        run_dpo(preferring, workdir)
    assert list((workdir / "reference").iterdir()) and not list((workdir / "checkpoints").iterdir())
    weights = base / "model.safetensors"
    saved = weights.read_bytes()
    weights.write_bytes(saved[:-4] + b"\0\0\0\0")
    with pytest.raises(ConfigError, match="put the old weights back"):
        run_dpo(preferring, workdir)
    weights.write_bytes(saved)
    run_dpo(preferring, workdir)
    assert lines(workdir)[1]["dpo/loss"] == pytest.approx(np.log(2), rel=1e-4)


def test_missing_preference_files_are_a_config_error(preferring, tmp_path):
    with pytest.raises(ConfigError, match="config.dpo.preferences: no preferences at .*none.jsonl"):
        config = preferring | {"dpo": preferring["dpo"] | {"preferences": ("none.jsonl",)}}
        run_dpo(config, tmp_path / "run")
