"""Checks of the evaluation settings before a job starts."""

import json

import pytest

from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.config.settings import EvaluationSettings
from agentgym_jax.jobs import evaluation
from agentgym_jax.jobs.evaluation import AgentKind
from configs.eval import suite


def config(arg="smoke,environments=textcraft+babyai", model="random"):
    c = plain(suite.get_config(arg))
    c["model"] |= {"source": model, "architecture": {}}
    return c


@pytest.mark.parametrize(
    ("model", "who"),
    [
        ("expert", AgentKind.EXPERT),
        ("random", AgentKind.RANDOM),
        ("http://127.0.0.1:8000/v1", AgentKind.ENDPOINT),
        ("https://host", AgentKind.ENDPOINT),
        ("runs/expert", AgentKind.MODEL),
        ("./random", AgentKind.MODEL),
        ("org/name", AgentKind.MODEL),
    ],
)
def test_the_model_flag_determines_the_kind_of_agent(model, who):
    assert evaluation.find_agent_kind(model) is who


def test_any_subset_of_the_environments_can_be_selected():
    c = config()
    assert list(evaluation.select_environments(c, ["babyai"])["environments"]) == ["babyai"]
    assert evaluation.select_environments(c, [])["environments"] == c["environments"]
    with pytest.raises(ConfigError, match="no 'webarena'; it has"):
        evaluation.select_environments(c, ["babyai", "webarena"])


def test_an_agent_without_weights_has_no_model():
    assert evaluation.parse(config(model="random")).model is None
    with pytest.raises(ConfigError, match="endpoint.workers|workers=0"):
        evaluation.parse(config() | {"endpoint": config()["endpoint"] | {"workers": 0}})


def test_the_suite_uses_the_turn_limits_of_its_environments():
    c = evaluation.parse(config("environments=textcraft+babyai+sciworld"))
    turns = {name: entry.eval_max_turns for name, entry in c.environments.items()}
    assert turns == {"textcraft": 30, "babyai": 20, "sciworld": 30}


def test_an_expert_plays_once_and_a_random_agent_is_never_greedy():
    settings = EvaluationSettings(every=0, at_start=False, max_turns=3, samples=4, greedy=True)
    expert = evaluation.adapt_samples(settings, AgentKind.EXPERT)
    assert (expert.samples, expert.greedy) == (1, False)
    random = evaluation.adapt_samples(settings, AgentKind.RANDOM)
    assert (random.samples, random.greedy) == (4, False)
    assert evaluation.adapt_samples(settings, AgentKind.MODEL) is settings


def test_the_error_for_a_folder_of_another_config_lists_the_differing_keys(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config(model="expert")))
    with pytest.raises(ConfigError, match='model.source: "expert" in the folder, "random" now'):
        with evaluation.open_evaluation(config(model="random"), tmp_path):
            pass


def test_scripted_agents_need_servers_of_this_project():
    with pytest.raises(ConfigError, match="the server of textcraft is not one of"):
        evaluation._check_servers({"babyai": "ab", "textcraft": ""}, AgentKind.EXPERT)
