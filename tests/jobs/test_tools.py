"""Training on an environment with tools."""

import pytest

from agentgym_jax import api
from agentgym_jax.config.sections import ConfigError
from agentgym_jax.episodes.trajectory import TokenSource, from_record
from agentgym_jax.replays.recorded_episodes import find_episode
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.text.template import CHATML
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.training.job_kinds import run_job
from configs import common
from tests.replays.test_replay import continued, longest, run_config

LENGTH = 3072  # tokens of an episode, of one byte each
TASKS = dict(kind="split", where={}, limit=0, group_by="split")


def shop_config():
    """Returns the config of one step on the shop of the environment mcp."""
    config = run_config()
    entry = common.environment(train=TASKS | dict(split="train"), eval=TASKS | dict(split="test"))
    entry["eval"] |= dict(limit=2)
    config["environments"] = {"mcp": entry}
    config["total_steps"] = 1
    config["evaluation"] |= dict(at_start=False)
    config["sampler"] |= dict(cache_length=LENGTH, buckets=((64, 8), (1024, 2)))
    config["sampling"] |= dict(max_tokens=LENGTH)
    config["learner"] |= dict(row_length=LENGTH)
    return config


@pytest.mark.slow
def test_a_policy_reads_the_tools_as_its_chat_template_writes_them(tmp_path):
    run_job(shop_config(), str(tmp_path / "run"), plots=False)
    records = RunFolder(tmp_path / "run").read_trajectories(1)
    assert len(records) == 8
    for episode in map(from_record, records):
        prompt = episode.tokens[: episode.turns[0].action_start]
        text = byte_tokenizer().decode(prompt.tolist())
        assert text.startswith('<|system|>{"type": "function", "function": {"name": "stock"')
        assert text.count('"type": "function"') == 3
        assert (episode.sources[: len(prompt)] == TokenSource.PROMPT).all()
        assert episode.messages[0]["role"] == "system"
        assert "stock" not in episode.messages[0]["content"]
    name = longest(RunFolder(tmp_path / "run"), 1)
    recorded = find_episode(RunFolder(tmp_path / "run"), name)
    turn = len(recorded.trajectory.turns)
    again = continued(RunFolder(tmp_path / "run"), name, turn=turn, step=recorded.version(turn))
    assert again.tokens.tolist() == recorded.trajectory.tokens.tolist()


@pytest.mark.slow
def test_a_template_without_tools_is_refused(tmp_path):
    byte_tokenizer(CHATML).save(tmp_path / "tokenizer")
    config = shop_config()
    config["tokenizer"]["source"] = str(tmp_path / "tokenizer")
    with pytest.raises(ConfigError, match=r"environments\.mcp has tools, .* no place for tools"):
        run_job(config, str(tmp_path / "refused"), plots=False)
    assert not list((tmp_path / "refused").glob("metrics*"))


def test_the_expert_solves_the_held_out_tasks(tmp_path):
    overrides = {"env_server.transport": "inprocess"}
    result = api.evaluate("configs/eval/mcp.py:limit=2", "expert", tmp_path / "eval", overrides)
    assert result.success == 1.0
    record = RunFolder(tmp_path / "eval").read_trajectories(0, "eval")[0]
    assert '{"name": "stock", "description"' in record["conversations"][0]["value"]
