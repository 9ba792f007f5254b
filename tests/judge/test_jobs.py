"""Training jobs with a judge: refused configs, rewards of a run, a resumed run, a judge that fails."""

import hashlib
import json
import pathlib
import shutil

import pytest

from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.config.settings import JudgeSettings
from agentgym_jax.jobs.sampled_agents import build_judge
from agentgym_jax.rl.rl_config import parse
from agentgym_jax.supervised import sft as sft_job
from configs.sft import trajectories as sft
from tests.integration import tiny
from tests.judge.judge_parts import verdict
from tests.processes import launch

ROOT = pathlib.Path(__file__).parents[2]
JUDGE = dict(url="http://127.0.0.1:9/v1", model="grader", rubric="Be brief.")


def config(reward="judge", **judge):
    """Returns the tiny config with a judge."""
    c = tiny.get_config()
    c.rollout.reward = reward
    c.judge = JUDGE | judge
    return c


def test_a_section_has_defaults_for_everything_but_address_model_and_rubric():
    settings = parse(plain(config()))
    assert (settings.judge.max_score, settings.judge.attempts) == (10.0, 3)
    assert settings.experience_options["reward"] == "judge"


@pytest.mark.parametrize(
    ("judge", "found"),
    [
        (dict(url="http://me:pw@h/v1"), "key_variable"),
        (dict(url="h:8000"), "expected an address"),
        (dict(url=""), "expected an address"),
        (dict(model=" "), "model is empty"),
        (dict(rubric=""), "rubric is empty"),
        (dict(max_score=0.0), "max_score"),
        (dict(attempts=0), "attempts"),
        (dict(timeout_s=0.0), "timeout_s"),
        (dict(workers=0), "workers"),
        (dict(price_per_million_prompt_tokens=-1.0), "price_per_million_prompt_tokens"),
        (dict(rubrics="x"), "did you mean 'rubric'"),
    ],
    ids=str,
)
def test_an_unusable_judge_is_refused_before_the_run(judge, found):
    with pytest.raises(ConfigError, match=found):
        parse(plain(config(**judge)))


def test_reward_and_section_need_each_other():
    with pytest.raises(ConfigError, match="set config.rollout.reward='judge', not 'success'"):
        parse(plain(config(reward="success")))
    c = tiny.get_config()
    c.rollout.reward = "judge"
    with pytest.raises(ConfigError, match="reward='judge' needs the section config.judge"):
        parse(plain(c))


def test_a_job_without_rewards_refuses_a_judge():
    c = sft.get_config("smoke,evaluate=textcraft")
    with c.unlocked():
        c.judge = JUDGE
    with pytest.raises(ConfigError, match="config.judge has no effect: remove it"):
        sft_job.parse(plain(c))


def test_a_key_that_is_not_set_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    settings = JudgeSettings(**JUDGE, key_variable="NO_SUCH_KEY")
    with pytest.raises(ConfigError, match="NO_SUCH_KEY.*is not set"):
        build_judge(settings, tmp_path)


def points(conversation):
    """Returns 0 or 10 points, depending on the conversation only."""
    return 10 * (hashlib.sha256(conversation.encode()).digest()[0] % 2)


CONFIG = """
import sys
sys.path.insert(0, {root!r})
from tests.integration import tiny
from tests.processes import launch
def get_config(arg=None):
    c = tiny.get_config()
    c.total_steps = 2
    c.rollout.reward = "judge"
    c.judge = dict(
        url={url!r}, model="grader", rubric="Be brief.", key_variable="TEST_JUDGE_KEY", attempts=2
    )
    return c
"""


def train(folder, url):
    """Runs the tiny job with a judge in a new process."""
    path = folder / "config.py"
    path.write_text(CONFIG.format(root=str(ROOT), url=url))
    return launch.train_alone(path, folder / "run")


@pytest.mark.slow
def test_the_scores_of_the_judge_are_the_rewards_of_a_run(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_JUDGE_KEY", "sk-very-secret")
    answered = []

    def answer(request):
        conversation = request.json()["messages"][1]["content"]
        answered.append(conversation)
        return verdict(score=points(conversation))

    fake.answer_all(answer)
    done = train(tmp_path, fake.server.url)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    files = sorted((run / "trajectories").glob("step_*.jsonl"))
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(files) == 2 and {r["judge_score"] for r in records} == {0.0, 1.0}
    trained = [r for r in records if any(r["advantages"])]
    assert trained
    for record in trained:
        signs = {value > 0 for value in record["advantages"] if value}
        assert signs == {record["judge_score"] == 1.0}
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    mean = sum(r["judge_score"] for r in records[: len(records) // 2]) / (len(records) / 2)
    first = next(m for m in metrics if m["step"] == 1)
    assert first["judge/score_mean"] == pytest.approx(mean)
    assert first["judge/failed"] == 0 and first["judge/requests"] > 0
    for path in run.rglob("*"):
        assert not path.is_file() or b"sk-very-secret" not in path.read_bytes(), path
    assert "sk-very-secret" not in done.stderr + done.stdout

    # Without its checkpoints the run starts again, with the same episodes.
    asked = len(answered)
    shutil.rmtree(run / "checkpoints")
    done = train(tmp_path, fake.server.url)
    assert done.returncode == 0, done.stderr
    assert len(answered) == asked


@pytest.mark.slow
def test_a_judge_that_always_fails_ends_the_run_with_one_line(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_JUDGE_KEY", "sk-very-secret")
    fake.answer_all(lambda request: (401, b"no such key sk-very-secret"))
    done = train(tmp_path, fake.server.url)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "judge: the judge scored none of" in last and "TEST_JUDGE_KEY" in last
    assert "Traceback" not in done.stderr and "sk-very-secret" not in done.stderr


@pytest.mark.slow
def test_two_processes_share_a_judge(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_JUDGE_KEY", "any")
    fake.answer_all(lambda r: verdict(score=points(r.json()["messages"][1]["content"])))
    path = tmp_path / "config.py"
    path.write_text(CONFIG.format(root=str(ROOT), url=fake.server.url))

    def run(count):
        command = launch.train_command(tmp_path / f"run{count}", config=path)
        folder = tmp_path / f"logs{count}"
        statuses, outputs = launch.finish(command, count, devices=2, folder=folder)
        assert statuses == [0] * count, outputs[0][-3000:] + outputs[-1][-3000:]
        return tmp_path / f"run{count}"

    def scores(folder):
        files = sorted((folder / "trajectories").glob("step_*.jsonl"))
        records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return {(r["item_id"], r["sample"], r["step"]): r["judge_score"] for r in records}

    one, two = run(1), run(2)
    assert scores(one) == scores(two) and set(scores(one).values()) == {0.0, 1.0}
    asked = [
        {json.loads(line)["key"] for line in (folder / name).read_text().splitlines()}
        for folder, name in [
            (one, "judge_cache.jsonl"),
            (two, "judge_cache.jsonl"),
            (two, "judge_cache.1.jsonl"),
        ]
    ]
    assert asked[0] == asked[1] | asked[2] and asked[1] and asked[2]
