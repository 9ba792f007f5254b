"""Evaluation of a finished run with the prompts and limits of its training."""

import json

import pytest

from agentgym_jax.config.sections import plain
from agentgym_jax.jobs.as_trained import take_over
from agentgym_jax.runs.run_folder import RunFolder
from configs import quickstart
from configs.eval import suite


@pytest.fixture
def run(tmp_path):
    config = plain(quickstart.get_config())
    config["environments"]["babyai"]["instructions"] = "Walk."
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def evaluation():
    return plain(suite.get_config("environments=textcraft+babyai"))


def test_prompts_turn_length_and_precision_are_taken_from_the_run(run):
    config, changed = take_over(evaluation(), run, ())
    assert config["rollout"]["system_prompt_mode"] == "none"
    assert config["rollout"]["max_parse_errors"] == 1
    assert config["sampling"]["max_turn_tokens"] == 16
    assert config["sampling"]["max_tokens"] == config["sampler"]["cache_length"] == 1024
    assert config["model"]["decode_dtype"] == "float32"
    assert config["environments"]["babyai"]["instructions"] == "Walk."
    assert changed["sampling.max_turn_tokens"] == 16


def test_instructions_are_those_of_the_run_to_the_letter(tmp_path):
    """Checks that no word of a prompt counts as a secret, because the policy has learned it."""
    trained = plain(quickstart.get_config())
    text = 'Open the door with key: red, or reply {"token": "blue"} as in https://a:b@c.org.'
    trained["environments"]["babyai"]["instructions"] = text
    with RunFolder(tmp_path) as folder:
        folder.start(trained, devices=[], adjustable=())
    config, _ = take_over(evaluation(), tmp_path, ())
    assert config["environments"]["babyai"]["instructions"] == text


def test_tasks_and_turn_limits_are_taken_from_the_evaluation(run):
    config, changed = take_over(evaluation(), run, ())
    before = evaluation()
    assert config["environments"]["textcraft"] == before["environments"]["textcraft"]
    assert config["environments"]["babyai"]["eval"] == before["environments"]["babyai"]["eval"]
    assert config["evaluation"] == before["evaluation"]
    assert "environments.babyai.instructions" in changed


def test_command_line_values_take_precedence(run):
    config, changed = take_over(evaluation(), run, {"sampling.max_turn_tokens": 512})
    assert config["sampling"]["max_turn_tokens"] == 512
    assert "sampling.max_turn_tokens" not in changed


def test_the_prompt_mode_of_recorded_data_is_not_taken_over(run):
    config = json.loads((run / "config.json").read_text())
    config["rollout"]["system_prompt_mode"] = "data"
    (run / "config.json").write_text(json.dumps(config))
    merged, _ = take_over(evaluation(), run, ())
    assert merged["rollout"]["system_prompt_mode"] == "system"


def test_a_run_without_a_config_changes_nothing(tmp_path):
    assert take_over(evaluation(), tmp_path, ()) == (evaluation(), {})
