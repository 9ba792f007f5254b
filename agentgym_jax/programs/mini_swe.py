"""Agent program that plays terminal tasks with mini-swe-agent, whose loop and prompts are unchanged.

As a command: `program.command="python -m agentgym_jax.programs.mini_swe"`, with an interpreter that
has the package mini-swe-agent. `--tools` uses tool calls in place of blocks of text.
"""

import os
import pathlib
import platform
import re
import sys
from typing import Any

# These are read when the package is imported.
os.environ |= {
    "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",  # the endpoint repeats nothing by itself
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no request to the network
}

import minisweagent  # noqa: E402
import yaml  # noqa: E402
from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.exceptions import Submitted  # noqa: E402
from minisweagent.models.litellm_model import LitellmModel  # noqa: E402
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel  # noqa: E402

from agentgym_jax.programs.task import AgentTask  # noqa: E402

# First line of the output of a command with which the agent submits.
_SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
# A request may wait for an update of the weights; the trainer ends programs that hang.
_PATIENCE_S = 86_400.0
_STATUS = re.compile(r"exit status (\d+)\n?")


class SessionEnvironment:
    """Environment of mini-swe-agent that runs commands in the episode's sandbox."""

    def __init__(self, task: AgentTask):
        self.config: dict[str, Any] = {}
        self._task = task

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Runs a command; raises Submitted at the end of the episode."""
        command = action.get("command", "")
        fence = "```"
        while fence in command:
            fence += "`"
        result = self._task.act(f"{fence}bash\n{command}\n{fence}")
        status = _STATUS.match(result.observation)
        returncode = int(status[1]) if status else -1
        output = result.observation[status.end() if status else 0 :]
        if not result.done and not returncode and output.lstrip().startswith(f"{_SUBMITTED}\n"):
            result = self._task.act("submit")
        if result.done:
            content = {"exit_status": "Submitted", "submission": result.observation}
            raise Submitted({"role": "exit", "content": result.observation, "extra": content})
        return {"output": output, "returncode": returncode, "exception_info": ""}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Returns the names of the system for the prompts."""
        return platform.uname()._asdict() | kwargs

    def serialize(self) -> dict[str, Any]:
        """Returns nothing: the trainer records the episode."""
        return {}


def play(task: AgentTask, *, tools: bool = False) -> None:
    """Plays one episode; the environment sets the reward."""
    kind, name = (LitellmModel, "mini") if tools else (LitellmTextbasedModel, "mini_textbased")
    path = pathlib.Path(minisweagent.__file__).parent / "config" / f"{name}.yaml"
    config = yaml.safe_load(path.read_text())
    templates = {k: v for k, v in config["agent"].items() if k.endswith("_template")}
    observed = {k: v for k, v in config["model"].items() if k.endswith("_template")}
    endpoint = {"api_base": task.base_url, "api_key": task.api_key, "timeout": _PATIENCE_S}
    model = kind(model_name=f"openai/{task.model}", model_kwargs=endpoint, **observed)
    agent = DefaultAgent(
        model, SessionEnvironment(task), **templates, step_limit=task.max_turns, cost_limit=0
    )
    agent.run(task.reset())


if __name__ == "__main__":
    play(AgentTask.from_environ(), tools="--tools" in sys.argv[1:])
