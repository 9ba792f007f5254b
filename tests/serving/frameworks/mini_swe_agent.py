"""Tasks for mini-swe-agent; prints the submission of the agent."""

import json
import os
import pathlib
import sys

import minisweagent
import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel
from minisweagent.models.litellm_response_model import LitellmResponseModel
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

# Task: the model, and its configuration.
TASKS = {
    "tools": (LitellmModel, "mini"),
    "responses": (LitellmResponseModel, "mini"),
    "text": (LitellmTextbasedModel, "mini_textbased"),
}


def ask(kind, name):
    """Runs an agent in an empty folder."""
    path = pathlib.Path(minisweagent.__file__).parent / "config" / f"{name}.yaml"
    config = yaml.safe_load(path.read_text())
    templates = {k: v for k, v in config["agent"].items() if k.endswith("_template")}
    observed = {k: v for k, v in config["model"].items() if k.endswith("_template")}
    model = kind(model_name=f"openai/{os.environ['MODEL']}", **observed)
    agent = DefaultAgent(model, LocalEnvironment(), **templates, step_limit=3)
    return agent.run("How many files are here?")["submission"]


sys.stdout.write("\n" + json.dumps(ask(*TASKS[sys.argv[1]])))
