"""The multi-turn tasks of the Berkeley Function Calling Leaderboard, of the package bfcl-eval.

A user asks for several things in a conversation, and the agent fulfils them with the tools of
simulated programs, such as a file system or a broker (Patil et al. 2025, ICML).
"""

import ast
import copy
import dataclasses
import decimal
import functools
import importlib
import inspect
import itertools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_envs import tool_calls
from agentgym_envs.adapters import REFUSAL, serve
from agentgym_envs.base import extras, manifest
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.served import ServedEnvironment

try:
    import bfcl_eval
    from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
    from bfcl_eval.constants.executable_backend_config import (
        CLASS_FILE_PATH_MAPPING,
        MULTI_TURN_FUNC_DOC_FILE_MAPPING,
        STATELESS_CLASSES,
    )
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import (
        response_checker,
        state_checker,
    )
except ImportError as error:
    raise SetupError(
        f"the package bfcl-eval is missing ({error}). Run: "
        f"{extras.install('bfcl', 'bfcl-eval==2026.3.23')}"
    ) from error

# Version of the behaviour: changes when a text or the split changes. Tasks, tools and checks come
# from the package.
BEHAVIOUR = "1"
PACKAGE = "2026.3.23"
MAX_TURNS = 60  # the longest reference solution has 37 actions

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
DEFAULT = "base,miss_func,miss_param"
_TEST_EVERY = 5  # of the scenarios, which the categories share

INSTRUCTIONS = f"""\
You help a user with the tools that the first message describes. The user asks for several things, \
one after the other. Do each of them with as many calls as it takes, and not more. Call the tool \
`{tool_calls.DONE}` without arguments when you have done what the last message asks for, or if you \
cannot do it because a tool or a fact is missing; then the user goes on. You cannot ask the user.

{tool_calls.INSTRUCTIONS}"""

_FAILED = "Error during execution: "  # as in the package
# By argument of the mathematical tools: the largest value that takes no noticeable time.
_LIMITS = {"exponent": 1000, "precision": 1000, "decimal_places": 1000}
_DATA = pathlib.Path(bfcl_eval.__file__).parent / "data"


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A task of the package.

    Attributes:
      solution: Calls of the reference solution by turn; none in a turn that lacks something.
    """

    entry: Mapping[str, Any]
    solution: Sequence[Sequence[tool_calls.Call]]


class Conversation:
    """A conversation with new programs, and a second set of them for the reference solution."""

    def __init__(self, scenarios: Callable[[], Mapping[str, Scenario]]):
        self._scenarios = scenarios

    def reset(self, *, seed: int, options: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Starts the task `options["id"]`; the seed has no effect."""
        self._scenario = self._scenarios()[options["id"]]
        entry = self._scenario.entry
        self._programs, self._reference = _programs(entry), _programs(entry)
        self._later = {int(turn): names for turn, names in entry.get("missed_function", {}).items()}
        hidden = {*entry.get("excluded_function", ()), *itertools.chain(*self._later.values())}
        described = itertools.chain(*map(_descriptions, entry["involved_classes"]))
        self._described = {tool["name"]: tool for tool in described}
        self._tools = {name: t for name, t in self._described.items() if name not in hidden}
        self._turn = 0
        self._made: list[tool_calls.Call] = []  # in this turn
        self._answers: list[str] = []  # in all turns
        self._is_right = True
        return f"{tool_calls.listing(self._tools.values())}\n\n{self._message()}", {}

    def step(self, call: tool_calls.Call) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Executes a call. `done` ends the turn; the reward comes with the end of the last one."""
        if call.name != tool_calls.DONE:
            self._made.append(call)
            # Tools that are not described yet work, as in the package; one of its solutions needs it.
            if call.name not in self._described:
                self._answers.append(f"{_FAILED}there is no tool {call.name[:100]!r}")
            else:
                self._answers.append(_execute(self._programs, call))
            return self._answers[-1], 0.0, False, False, {}
        self._is_right = self._is_right and self._is_turn_right()
        self._turn += 1
        self._made = []
        if self._turn == len(self._scenario.solution):
            return "The user has no more requests.", float(self._is_right), True, False, {}
        return self._message(), 0.0, False, False, {}

    def expert_action(self) -> str:
        """Returns the next call of the reference solution in this turn, then `done`."""
        left = list(self._scenario.solution[self._turn])
        for call in self._made:
            if call in left:
                left.remove(call)
        if not left:
            return tool_calls.write_call(tool_calls.DONE, {})
        return tool_calls.write_call(left[0].name, left[0].arguments)

    def valid_actions(self) -> list[str]:
        """Returns the calls of tools that work without arguments now, and `done`."""
        names = [name for name, tool in self._tools.items() if not tool["parameters"]["required"]]
        trial = copy.deepcopy(self._programs)
        working = [
            name
            for name in names
            if not _execute(trial, tool_calls.Call(name, {})).startswith(_FAILED)
        ]
        return [tool_calls.write_call(name, {}) for name in [*working, tool_calls.DONE]]

    def _message(self) -> str:
        """Returns the user's message of this turn, with the tools that appear in it."""
        messages = [message["content"] for message in self._scenario.entry["question"][self._turn]]
        if self._turn in self._later:
            added = {name: self._described[name] for name in self._later[self._turn]}
            self._tools.update(added)
            messages += [
                tool_calls.listing(added.values()),
                DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC,
            ]
        return "\n\n".join(messages)

    def _is_turn_right(self) -> bool:
        """Returns the package's verdict: equal states, and all answers of the reference were seen.

        The package accepts any calls in a turn without a reference solution, as long as the state
        is right at the end of the next turn.
        """
        solution = self._scenario.solution[self._turn]
        wanted = [_execute(self._reference, call) for call in solution]
        if not solution:
            return True
        return (
            bool(self._made)
            and state_checker(self._programs, self._reference)["valid"]
            and response_checker(self._answers, wanted, self._turn)["valid"]
        )


def _programs(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns new programs of a task by the names of their classes, in its initial state."""
    found = {}
    for name in entry["involved_classes"]:
        found[name] = _program_class(name)()
        if name not in STATELESS_CLASSES:
            state = copy.deepcopy(entry["initial_config"].get(name, {}))
            found[name]._load_scenario(state, long_context="long_context" in entry["id"])
    return found


def _program_class(name: str) -> Any:
    return getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)


def _execute(programs: Mapping[str, Any], call: tool_calls.Call) -> str:
    """Calls a method of the program that has it; returns the answer as the package writes it."""
    for name, limit in _LIMITS.items():
        value = call.arguments.get(name, 0)
        if isinstance(value, int | float) and abs(value) > limit:
            return f"{_FAILED}{name} is {value}, at most {limit} is possible"
    method = [getattr(p, call.name) for p in programs.values() if hasattr(p, call.name)][-1]
    try:
        with decimal.localcontext():  # a tool changes the context of its thread
            answer = method(**copy.deepcopy(dict(call.arguments)))
        if isinstance(answer, dict):
            try:
                return json.dumps(answer)
            except (TypeError, ValueError):
                return str(answer)
        return str(answer)
    except Exception as error:  # noqa: BLE001 - the programs check no types
        return f"{_FAILED}{error}"


@functools.cache
def _descriptions(class_name: str) -> list[dict[str, Any]]:
    """Returns the package's descriptions of the tools of a program, without their answers."""
    rows = _rows(f"multi_turn_func_doc/{MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name]}")
    return [{key: fact for key, fact in row.items() if key != "response"} for row in rows]


def _rows(name: str) -> list[dict[str, Any]]:
    text = (_DATA / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line]


def _load(categories: Iterable[str]) -> dict[str, Scenario]:
    """Returns the tasks of categories by id, in the order of the package."""
    found = {}
    for category in categories:
        name = f"BFCL_v4_multi_turn_{category}.json"
        solutions = {row["id"]: row["ground_truth"] for row in _rows(f"possible_answer/{name}")}
        for entry in _rows(name):
            turns = [
                [_parsed(text, entry["involved_classes"]) for text in turn]
                for turn in solutions[entry["id"]]
            ]
            found[entry["id"]] = Scenario(entry, turns)
    return found


def _parsed(text: str, class_names: Iterable[str]) -> tool_calls.Call:
    """Converts a call such as `sort('a.txt')` of the package's solutions; runs none of it."""
    expression = ast.parse(text, mode="eval").body
    assert isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name)
    name = expression.func.id
    owner = [kind for kind in map(_program_class, class_names) if hasattr(kind, name)][-1]
    positional = [ast.literal_eval(value) for value in expression.args]
    parameters = list(inspect.signature(getattr(owner, name)).parameters)[1:]
    arguments = dict(zip(parameters, positional, strict=False))
    arguments |= {str(word.arg): ast.literal_eval(word.value) for word in expression.keywords}
    # tuples become the lists that a call in JSON has
    return tool_calls.Call(name, json.loads(json.dumps(arguments)))


def make_served_environment(*, categories: str = DEFAULT) -> ServedEnvironment:
    """Returns multi-turn tasks of BFCL as a served environment.

    Args:
      categories: Names of CATEGORIES, separated by commas. Each has the same 200 scenarios, of which
        40 are for testing.

    Raises:
      SetupError: A name is unknown.
    """
    names = list(dict.fromkeys(name.strip() for name in categories.split(",")))
    for name in names:
        if name not in CATEGORIES:
            raise SetupError(f"bfcl has no category {name!r}; it has {', '.join(CATEGORIES)}")
    loaded = functools.cache(lambda: _load(names))
    ids = [row["id"] for name in names for row in _rows(f"BFCL_v4_multi_turn_{name}.json")]
    # A scenario has the same number in every category.
    numbers = [int(re.sub(r".*_", "", name)) for name in ids]
    served = serve(
        lambda: Conversation(loaded),
        [
            {
                "data_idx": i,
                "split": manifest.TRAIN if numbers[i] % _TEST_EVERY else manifest.TEST,
                "seed": numbers[i],
                "kind": name.removeprefix("multi_turn_").rpartition("_")[0],
                "id": name,
            }
            for i, name in enumerate(ids)
        ],
        name="bfcl",
        version=f"{BEHAVIOUR}-{PACKAGE}",
        instructions=INSTRUCTIONS,
        max_turns=MAX_TURNS,
        action_format="raw",
        parse=tool_calls.read_call,
        refusal=f"{REFUSAL}|{_FAILED}",
        expert=Conversation.expert_action,
        valid_actions=Conversation.valid_actions,
    )
    return dataclasses.replace(served, prepare=loaded)
