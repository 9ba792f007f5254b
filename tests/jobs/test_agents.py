"""Evaluation settings of a job on recorded data, and the first messages of the evaluated episodes."""

import types

import pytest

from agentgym_jax.config.sections import AGENT_SECTIONS, ConfigError, plain
from agentgym_jax.config.settings import CollectorSettings
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.encoding import common_prompts
from agentgym_jax.data.tasks import Task
from agentgym_jax.jobs import sampled_agents
from agentgym_jax.jobs.environments import Environments
from agentgym_jax.rollout.interface import EnvironmentText
from agentgym_jax.supervised import dpo, sft
from agentgym_jax.text.chat import Message
from configs.dpo import trajectories as dpo_config
from configs.sft import trajectories as sft_config

JOBS = [(sft.parse, sft_config), (dpo.parse, dpo_config)]


def config(module, arg="smoke,evaluate=textcraft"):
    return plain(module.get_config(arg))


@pytest.mark.parametrize(("parse", "module"), JOBS, ids=["sft", "dpo"])
def test_a_config_without_evaluation_sections_has_no_evaluation(parse, module):
    assert parse(config(module, "smoke")).agent is None
    settings = parse(config(module, "evaluate=textcraft+babyai")).agent
    assert settings.evaluation_turns == {"textcraft": 30, "babyai": 20}
    assert settings.evaluation.at_start and settings.rollout.system_prompt_mode == "data"


@pytest.mark.parametrize(("parse", "module"), JOBS, ids=["sft", "dpo"])
@pytest.mark.parametrize("name", AGENT_SECTIONS)
def test_the_error_for_an_incomplete_evaluation_names_the_missing_section(parse, module, name):
    whole = config(module)
    with pytest.raises(ConfigError, match=rf"config.{name} is missing"):
        parse({key: value for key, value in whole.items() if key != name})


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("sampling", dict(max_tokens=5000), "max_tokens=5000 exceeds config.sampler.cache_length"),
        ("rollout", dict(system_prompt_mode="front"), "system_prompt_mode='front'"),
        ("evaluation", dict(samples=0, greedy=False), "leave no episodes"),
        ("evaluation", dict(every_steps=3), "config.evaluation.every_steps"),
    ],
)
def test_the_error_for_an_invalid_evaluation_value_names_its_key(section, change, message):
    c = config(sft_config)
    with pytest.raises(ConfigError, match=message):
        sft.parse(c | {section: c[section] | change})


def test_unused_instructions_are_refused():
    c = config(sft_config)
    c["environments"]["textcraft"]["instructions"] = "Craft."
    with pytest.raises(ConfigError, match="instructions would not be shown"):
        sft.parse(c)


def conversation(item_id, *said):
    roles = {"s": "system", "u": "user", "a": "assistant", "A": "assistant"}
    return Conversation(item_id, tuple(Message(roles[r], r + t, r == "A") for r, t in said))


DOOR = conversation("door_1", "u1", "a2", "u3", "A4", "u5", "A6")
HALL = conversation("lmrlgym_maze_1", "s1", "u2", "A3")


def test_the_common_prompt_is_the_text_before_the_first_observation():
    found = common_prompts([DOOR, HALL])
    assert found == {
        "door": ({"role": "user", "content": "u1"}, {"role": "assistant", "content": "a2"}),
        "maze": ({"role": "system", "content": "s1"},),
    }


def test_the_most_frequent_prompt_counts_and_conversations_without_loss_do_not():
    silent = conversation("door_2", "u9", "a9", "u9")
    other = conversation("door_3", "u7", "A8")
    assert common_prompts([other, DOOR, DOOR, *[silent] * 3])["door"][0]["content"] == "u1"


def environments(eval_tasks=()):
    texts = {n: EnvironmentText(({"role": "system", "content": n},), None) for n in ("door", "hut")}
    return Environments(
        clients={},
        pool=None,
        texts=texts,
        train_tasks=[],
        eval_tasks=eval_tasks,
        manifests={},
        started={},
        restart_dead_servers=lambda: None,
    )


def settings(opening):
    rollout = CollectorSettings(
        max_parse_errors=1,
        max_attempts=1,
        max_replacements=0,
        prefetch=0,
        system_prompt_mode=opening,
        show_turn_budget="none",
    )
    return types.SimpleNamespace(rollout=rollout)


def test_episodes_start_with_the_prompt_of_the_data_or_else_the_instructions():
    opened = sampled_agents.match_prompts(environments(), settings("data"), [DOOR])
    contents = {n: [m["content"] for m in t.preamble] for n, t in opened.texts.items()}
    assert contents == {"door": ["u1", "a2"], "hut": ["hut"]}
    assert sampled_agents.training_preambles(opened, settings("data")) == {}


def test_other_prompt_modes_keep_the_prompts_of_the_config():
    before = environments()
    assert sampled_agents.match_prompts(before, settings("system"), [DOOR]) is before
    assert set(sampled_agents.training_preambles(before, settings("system"))) == {"door", "hut"}


def test_a_training_task_must_not_be_held_out():
    held_out = [Task("door", 1, "g"), Task("maze", 1, "g"), Task("door", 2, "g")]
    with pytest.raises(ConfigError, match="2 held-out tasks .* such as door_1"):
        sampled_agents.check_held_out(environments(held_out), [DOOR, HALL])
    sampled_agents.check_held_out(environments(held_out[2:]), [DOOR, HALL])
