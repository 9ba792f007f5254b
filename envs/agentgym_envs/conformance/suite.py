"""List of all properties in order, and the report of a run."""

import dataclasses
import textwrap
import time
from collections.abc import Callable, Mapping
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.user_code import describe
from agentgym_envs.conformance import episodes, self_description, sessions
from agentgym_envs.conformance.subject import Change, NotApplicable, Subject, Violation

TASKS = 6  # default number of tasks
ACTIONS = 15  # default maximum of actions per task
_STEP_LIMIT = 30.0  # default time limit of a server for a call, in seconds
_LONG = 2.0  # minimum duration, in seconds, that the report shows
_WIDTH = 100  # of the lines that list properties

# A property raises Violation or NotApplicable, or returns a note for the report, or None.
Property = Callable[[Subject], str | None]

PROPERTIES: tuple[Property, ...] = (
    self_description.the_spec_is_complete_and_valid,
    self_description.the_manifest_lists_the_tasks_in_order,
    self_description.the_manifest_hash_equals_the_one_in_the_spec,
    self_description.no_task_is_in_two_splits,
    episodes.results_have_the_declared_types,
    episodes.the_score_is_the_sum_of_the_rewards,
    episodes.a_task_depends_only_on_its_index,
    episodes.the_same_actions_have_the_same_answers,
    episodes.another_process_gives_the_same_answers,
    episodes.two_sessions_do_not_influence_each_other,
    episodes.no_task_begins_with_a_refusal,
    episodes.valid_actions_are_not_refused,
    episodes.the_scripted_agent_solves_tasks,
    episodes.the_state_is_json,
    episodes.a_restored_episode_continues_as_the_saved_one,
    episodes.closing_twice_is_harmless,
    sessions.a_step_before_the_first_reset_is_refused,
    sessions.a_step_after_the_end_is_refused,
    sessions.an_unknown_task_is_refused_and_the_episode_continues,
    sessions.a_closed_session_is_unknown,
    sessions.every_route_answers,
    sessions.the_server_gives_the_answers_of_the_environment,
    sessions.errors_of_the_server_are_typed,
    sessions.odd_actions_neither_crash_nor_hang,
    sessions.sessions_survive_the_loss_of_a_worker,
)


# Properties that an environment lacks if the answers of a single session change.
_ALONE = frozenset(
    {
        episodes.a_task_depends_only_on_its_index,
        episodes.the_same_actions_have_the_same_answers,
    }
)
# Properties that an environment lacks if its random numbers have no seed.
_REPEATABLE = _ALONE | {episodes.two_sessions_do_not_influence_each_other}


@dataclasses.dataclass
class _Cause:
    """A defect of the environment.

    Attributes:
      text: Description of the first failure.
      is_error: True for an error of the environment's code, False for an answer that is wrong.
      properties: All properties that fail because of it.
    """

    text: str
    is_error: bool
    properties: list[Property] = dataclasses.field(default_factory=list)


def run(
    module: str,
    *,
    compat: bool,
    tasks: int,
    actions: int,
    write: Callable[[str], None],
    options: Mapping[str, Any] | None = None,
) -> int:
    """Checks all properties of a module's environment; returns the exit status.

    `write` receives the report: one line per property, then one entry per cause of failures. The
    name of a property is written before its check starts. The other arguments are those of Subject.

    Raises:
      SetupError: The environment cannot run on this machine.
    """
    began = time.monotonic()
    subject = Subject(module, compat=compat, tasks=tasks, actions=actions, options=options)
    causes: dict[str, _Cause] = {}
    try:
        for check in PROPERTIES:
            write(f"{sentence(check):<52}")
            _report(check, subject, write, causes)
    finally:
        for number, cause in enumerate(causes.values(), 1):
            write(_entry(number, cause))
        subject.close()
    failures = [check for cause in causes.values() for check in cause.properties]
    failed = len(failures)
    result = f"{failed} of {len(PROPERTIES)} FAILED" if failed else f"{len(PROPERTIES)} properties"
    name = subject.served.spec.name
    parts = [f"{name}: {result}, {time.monotonic() - began:.1f} s", subject.times.text()]
    write("; ".join(filter(None, parts)) + "\n")
    for method in ("reset", "step"):
        if (longest := subject.times.longest(method)) > _STEP_LIMIT:
            write(
                f"the longest {method} took {longest:.0f} s: a server stops a call after "
                f"--step-seconds, {_STEP_LIMIT:.0f} by default\n"
            )
    is_error = any(cause.is_error for cause in causes.values())
    if _REPEATABLE.intersection(failures) and not is_error:
        write(
            "if the simulator uses the global state of random or numpy: "
            "standard_environment(..., isolate_random=True)\n"
        )
    return 1 if failed else 0


def _report(
    check: Property, subject: Subject, write: Callable[[str], None], causes: dict[str, _Cause]
) -> None:
    """Checks one property, completes its line of the report, and notes the cause of a failure."""
    began = time.monotonic()
    try:
        line = f" ok  {check(subject) or ''}"
    except Violation as violation:
        text, key = str(violation), violation.cause
        if not key:  # the server's answers quote an error of the environment
            key = next((known for known in causes if known in text), text)
        elif isinstance(violation, Change) and key not in causes and check not in _ALONE:
            key = text  # beside other sessions, after a restore, ...: each has causes of its own
        is_error = bool(violation.cause) and not isinstance(violation, Change)
        cause = causes.setdefault(key, _Cause(text, is_error))
        cause.properties.append(check)
        line = f" FAILED, cause {list(causes).index(key) + 1}"
    except NotApplicable as reason:
        line = f" -   {reason}"
    except SetupError:
        write("\n")
        raise
    except Exception as error:  # noqa: BLE001 - an environment can have attributes of any type
        text = f"the check ended with {describe(error)}"
        causes.setdefault(text, _Cause(text, is_error=False)).properties.append(check)
        line = f" FAILED, cause {list(causes).index(text) + 1}"
    seconds = time.monotonic() - began
    write(line.rstrip() + (f" ({seconds:.0f} s)" if seconds >= _LONG else "") + "\n")


def _entry(number: int, cause: _Cause) -> str:
    """Returns the lines of the report about one cause."""
    names = ", ".join(map(sentence, cause.properties))
    lines = textwrap.wrap(
        f"fails: {names}", _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8
    )
    return "\n".join([f"cause {number}: {cause.text}", *lines]) + "\n"


def sentence(check: Property) -> str:
    """Converts the name of a property to words."""
    return check.__name__.replace("_", " ")
