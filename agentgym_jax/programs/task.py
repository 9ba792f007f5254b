"""Input and result of an agent program for one episode.

This module needs neither JAX nor other parts of the trainer, so programs can import it.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import requests
import requests.adapters

from agentgym_envs.base.protocol import LARGEST_NUMBER, is_solved, plain_number

TASK_VARIABLE = "AGENTGYM_TASK"  # environment variable with the task of a command, as JSON


_http = requests.Session()
_http.trust_env = False  # the trainer runs on this machine, so no proxy is between them
_http.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=256))


class EpisodeOverError(Exception):
    """The trainer has ended the episode; the program should return."""


@dataclasses.dataclass(frozen=True)
class StepResult:
    """Answer of the environment to an action.

    Attributes:
      observation: Text for the agent.
      reward: Reward of this step.
      done: True if the episode has ended.
      success: True if the task is solved.
    """

    observation: str
    reward: float
    done: bool
    success: bool


@dataclasses.dataclass(frozen=True)
class AgentTask:
    """Input of an agent program.

    The program sends its chat requests to `base_url`, with `api_key` and `model`. It may play the
    episode's environment with `reset` and `act`; the environment then sets the reward.

    Attributes:
      base_url: Address of an OpenAI-compatible endpoint, which belongs to this episode.
      api_key: Any key; the address identifies the episode.
      model: Name of the model.
      environment: Name of the environment in the config.
      data_idx: Index of the task in the environment.
      sample: Number of the sample of this task.
      max_turns: Maximum number of chat requests.
      instructions: Instructions of the environment; may be empty.
    """

    base_url: str
    api_key: str
    model: str
    environment: str
    data_idx: int
    sample: int
    max_turns: int
    instructions: str

    @classmethod
    def from_environ(cls) -> "AgentTask":
        """Returns the task of a program that runs as a command."""
        if TASK_VARIABLE not in os.environ:
            raise RuntimeError(f"{TASK_VARIABLE} is not set; the trainer starts this program")
        return cls(**json.loads(os.environ[TASK_VARIABLE]))

    def to_environ(self) -> dict[str, str]:
        """Returns environment variables for a command; its client reads two of them."""
        return {
            TASK_VARIABLE: json.dumps(dataclasses.asdict(self)),
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": self.api_key,
        }

    @property
    def anthropic_url(self) -> str:
        """Address of the endpoint for the `anthropic` package, which appends `/v1` to it."""
        return self.base_url.removesuffix("/v1")

    def reset(self) -> str:
        """Starts the environment; returns its first observation."""
        return self._post("reset", {})["observation"]

    def act(self, answer: str, response_id: str = "", choice: int = 0) -> StepResult:
        """Passes an answer of the model to the environment, which parses its action.

        If the answer has no action, the observation describes the problem.

        Args:
          answer: Text of the answer.
          response_id: `id` of the response with the answer, which gets the action and its reward.
            It is only needed if requests are open at the same time and the text was changed.
          choice: Index of the answer in the response, if it has several.

        Raises:
          EpisodeOverError: The episode has ended, such as after an error of the environment.
          ValueError: It is unknown to which answer the action belongs.
        """
        body = {"answer": answer, "response_id": response_id, "choice": choice}
        return StepResult(**self._post("act", body))

    def _post(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        url = f"{self.base_url.removesuffix('/v1')}/environment/{name}"
        response = _http.post(url, json=body, allow_redirects=False)
        if response.status_code != 200:
            error = response.json()["error"]
            is_other = error["param"] is not None  # a field of the request is wrong
            raise (ValueError if is_other else EpisodeOverError)(error["message"])
        return response.json()


@dataclasses.dataclass(frozen=True)
class ProgramResult:
    """Result of a program: a reward, of which 1 is the best, or None if the environment sets it."""

    reward: float | None
    success: bool


def parse_result(value: Any) -> ProgramResult:
    """Converts the value that a program returned, or the last line that a command printed.

    Args:
      value: A number, an object with `reward` and optionally `success`, or None. Without `success`,
        an episode with a reward of 1 or more is solved.

    Raises:
      ValueError: The value has another form, or the reward is not finite.
    """
    if value is None:
        return ProgramResult(None, False)
    entries = value if isinstance(value, Mapping) else {"reward": value}
    reward, success = plain_number(entries.get("reward")), plain_number(entries.get("success"))
    is_number = isinstance(reward, int | float) and abs(reward) <= LARGEST_NUMBER
    if not is_number or success not in (None, 0, 1) or set(entries) - {"reward", "success"}:
        raise ValueError(
            f"the program returned {value!r:.200}; expected a finite number, "
            '{"reward": number, "success": true or false}, or None'
        )
    return ProgramResult(float(reward), is_solved(reward) if success is None else bool(success))
