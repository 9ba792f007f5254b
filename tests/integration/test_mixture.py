"""One policy that trains on two environments in one run, each with a horizon and a weight."""

import json

import pytest

from agentgym_jax.config.sections import plain
from agentgym_jax.jobs import job
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.training.job_kinds import run_job
from configs.rl import mixture

pytestmark = pytest.mark.slow

OVERRIDES = {
    "environments.babyai.weight": 3,
    # The instructions are short, so prompts are short and fit into short rows.
    "environments.babyai.instructions": "Walk.",
    "environments.textcraft.instructions": "Craft.",
    "model.architecture.num_layers": 1,
    "rollout.max_parse_errors": 9,  # so that only the turn limit ends the episodes
    "sampler.rows": 8,
    "sampler.buckets": ((256, 8),),
    "sampling.max_tokens": 2048,
    "sampler.cache_length": 2048,
    "learner.row_length": 2048,
    "learner.mini_batches": 1,
    "learner.epochs": 2,
    "learner.micro_rows": 4,
    "algorithm.kl_coef": 0.0,
    "evaluation.at_start": False,
    "env_server.transport": "inprocess",
}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, compiled_fastest):
    """Runs two steps on one of the test session's eight devices; returns the run folder."""
    workdir = tmp_path_factory.mktemp("mixture") / "run"
    config = mixture.get_config("smoke")
    config.update_from_flattened_dict(OVERRIDES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "build_layouts", lambda mesh, **_: (None, None))
        run_job(plain(config), str(workdir))
    return workdir


@pytest.fixture(scope="module")
def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def turns(records):
    """Returns the set of turn counts of all episodes, by environment."""
    found = {"babyai": set(), "textcraft": set()}
    for record in records:
        found[record["item_id"].rpartition("_")[0]].add(len(record["turns"]))
    return found


def test_environments_are_trained_on_in_proportion_to_their_weights(lines):
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert line["policy/grad_norm"] > 0
        # A step has four tasks with two episodes each; three of the four are BabyAI tasks.
        assert line["rollout/babyai/episodes"] == 6
        assert line["rollout/textcraft/episodes"] == 2
        assert line["rollout/textcraft/success"] == line["rollout/babyai/success"] == 0.0


def test_every_epoch_has_one_update_per_mini_batch(lines):
    for line in lines:
        assert line["policy/updates"] + line["policy/skipped"] == 2


def test_each_environment_has_its_own_horizon(workdir, lines):
    # An untrained policy produces only parse errors, so every episode lasts until its turn limit.
    assert [(x["horizon/babyai/turns"], x["horizon/textcraft/turns"]) for x in lines] == [
        (1, 2),
        (3, 2),
    ]
    folder = RunFolder(workdir)
    assert turns(folder.read_trajectories(1)) == {"babyai": {1}, "textcraft": {2}}
    assert turns(folder.read_trajectories(2)) == {"babyai": {3}, "textcraft": {2}}
    assert lines[0]["jax/compilations"] == lines[1]["jax/compilations"]


def test_each_environment_has_its_own_evaluation(workdir, lines):
    assert (lines[1]["eval/babyai/turns_mean"], lines[1]["eval/textcraft/turns_mean"]) == (3, 1)
    scores = json.loads((workdir / "scores.json").read_text())
    assert scores["decoding"]["max_turns"] == {"babyai": 3, "textcraft": 1}
    assert set(scores["environments"]) == set(scores["manifests"]) == {"babyai", "textcraft"}
    assert all(group.split()[0] in scores["environments"] for group in scores["groups"])
    assert (workdir / "plots" / "environments.png").exists()


def test_each_environment_has_its_own_instructions(workdir):
    said = {
        record["item_id"].rpartition("_")[0]: record["conversations"][0]["value"]
        for record in RunFolder(workdir).read_trajectories(1)
    }
    assert said == {"babyai": "Walk.", "textcraft": "Craft."}
