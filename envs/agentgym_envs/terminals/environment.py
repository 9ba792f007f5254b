"""Terminal tasks as an environment: an action is one shell command, or `submit`."""

import base64
import contextlib
import dataclasses
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from agentgym_envs.base.environment import EnvironmentFault, StepResult, check_task
from agentgym_envs.base.episodic import EpisodicEnvironment
from agentgym_envs.base.protocol import ErrorKind, clean_text
from agentgym_envs.terminals.sandbox import Command, Limits, Machine, Result, Sandbox, SandboxError
from agentgym_envs.terminals.tasks import LOGS, REWARD, TESTS, Task, pack

SUBMIT = "submit"
REFUSED = "Refused: "
_FENCE = re.compile(r"(`{3,})[\w-]*\s*")
_MAX_BYTES = 100_000  # of a command
_REWARD_BYTES = 1024
_TEST = (
    f"bash --noprofile --norc {TESTS}/test.sh >{LOGS}/test-stdout.txt 2>&1; "
    f"cd {LOGS}; [ -e reward.txt ] || mv reward.json reward.txt"
)


@dataclasses.dataclass
class Episode:
    """One episode.

    Attributes:
      data_idx: Index of the task.
      machine: Machine of the episode.
      seconds: Time of all commands so far.
      commands: Number of commands so far.
      score: Result of the tests; 0 before they ran.
      done: True after the tests ran.
    """

    data_idx: int
    machine: Machine
    seconds: float = 0.0
    commands: int = 0
    score: float = 0.0
    done: bool = False


def read_command(action: str) -> str | None:
    """Returns the command of an action: its only block, or the only line of a text without one.

    A block begins with a line of at least three backticks and the name of a language, and ends with
    a line of as many.
    """
    blocks: list[list[str]] = []
    fence = ""
    action = clean_text(action)
    for line in action.split("\n"):
        if fence and line.rstrip() == fence:
            fence = ""
        elif fence:
            blocks[-1].append(line)
        elif found := _FENCE.fullmatch(line.rstrip()):
            fence = found[1]
            blocks.append([])
    if fence or len(blocks) > 1:
        return None
    text = "\n".join(blocks[0] if blocks else [action]).strip()
    if not text or "\0" in text or len(text.encode()) > _MAX_BYTES:  # Linux could not pass it on
        return None
    return text if blocks or ("\n" not in text and "```" not in text) else None


def as_block(command: str) -> str:
    """Returns an action with a command."""
    fence = "```"
    while fence in command:
        fence += "`"
    return f"{fence}bash\n{command.strip()}\n{fence}"


class TerminalEnvironment(EpisodicEnvironment[Episode]):
    """Terminal tasks.

    Files persist between commands. Processes, variables and the current folder do not.
    """

    name = "terminals"

    def __init__(self, tasks: Sequence[Task], sandbox: Sandbox, command_seconds: float):
        self._tasks = tasks
        self._sandbox = sandbox
        self._command_seconds = command_seconds

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task.

        Raises:
          EnvironmentFault: UNKNOWN_TASK; the current episode continues. SIMULATOR if the machine of
            the task does not start.
        """
        check_task(self.name, data_idx, len(self._tasks))
        self.close()
        task = self._tasks[data_idx]
        with self._faults():
            self._episode = Episode(data_idx, self._sandbox.open(task))
        return StepResult(task.instruction, reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        """Runs one command; `submit` runs the tests and ends the episode.

        Raises:
          EnvironmentFault: NOT_RESET, FINISHED, or SIMULATOR if the sandbox does not start.
        """
        episode = self.playing
        command = read_command(action)
        if command is None:
            text = f"{REFUSED}write exactly one command, in a block that begins with ```bash"
            return StepResult(text, reward=0, score=0, done=False)
        if command == SUBMIT:
            return self._finish("")
        task = self._tasks[episode.data_idx]
        left = max(1.0, task.agent_seconds - episode.seconds)
        result = self._run(
            Command(command, task.folders, task.work, dict(task.variables)),
            dataclasses.replace(task.limits, seconds=min(self._command_seconds, left)),
        )
        episode.seconds += result.seconds
        episode.commands += 1
        text = _describe(result)
        if episode.seconds >= task.agent_seconds:
            return self._finish(f"{text}\nThe time of the task is over.\n")
        return StepResult(text, reward=0, score=0, done=False)

    def expert_action(self) -> str:
        """Returns the solution of the task, then `submit`.

        Raises:
          NotImplementedError: The task has no solution.
        """
        solution = self._tasks[self.playing.data_idx].solution
        if not solution:
            raise NotImplementedError("the task has no solution/solve.sh")
        return as_block(SUBMIT if self.playing.commands else solution)

    def valid_actions(self) -> list[str]:
        """Returns some harmless commands."""
        return [as_block(command) for command in ("ls", "cat *", "git log", SUBMIT)]

    def snapshot(self) -> dict[str, Any]:
        """Returns task, files and result.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset.
          NotImplementedError: The files are in a container.
        """
        fields = dict(vars(self.episode))
        files = fields.pop("machine").save()
        return fields | {"files": base64.b64encode(zlib.compress(files)).decode("ascii")}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restores a snapshot."""
        fields = dict(snapshot)
        files = zlib.decompress(base64.b64decode(fields.pop("files")))
        machine = self._sandbox.open(self._tasks[fields["data_idx"]], files)
        self._episode = Episode(machine=machine, **fields)

    def close(self) -> None:
        """Removes the machine of the episode, which ends."""
        if self._episode is not None:
            self._episode.machine.close()
            self._episode = None

    def state(self) -> dict[str, Any]:
        """Returns the task, and its number of commands with their time."""
        if self._episode is None:
            return {}
        episode = self._episode
        return {
            "data_idx": episode.data_idx,
            "name": self._tasks[episode.data_idx].name,
            "commands": episode.commands,
            "seconds": round(episode.seconds, 1),
            "done": episode.done,
        }

    def _finish(self, text: str) -> StepResult:
        """Runs the tests, which meet no process of the agent."""
        episode = self.playing
        task = self._tasks[episode.data_idx]
        tests = {f"{TESTS}/{path}": file for path, file in task.tests.items()}
        result = self._run(
            Command(
                _TEST,
                task.folders,
                task.work,
                {**task.variables, **task.test_variables},
                home=LOGS,
                added=pack(tests),
                extra=(TESTS, LOGS),
                report=REWARD,
                keeps_files=False,
                nests=True,
            ),
            dataclasses.replace(task.limits, seconds=task.test_seconds, output_bytes=_REWARD_BYTES),
        )
        episode.score, episode.done = read_reward(result), True
        episode.machine.close()
        text += f"The tests give {episode.score:g} of 1."
        return StepResult(text, reward=episode.score, score=episode.score, done=True)

    def _run(self, command: Command, limits: Limits) -> Result:
        with self._faults():
            return self.playing.machine.run(command, limits)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Ends the episode if its sandbox fails."""
        try:
            yield
        except SandboxError as error:
            self.close()
            raise EnvironmentFault(ErrorKind.SIMULATOR, str(error)) from error


def read_reward(result: Result) -> float:
    """Returns the reward that the tests wrote, from 0 to 1; 0 if they wrote none.

    It is a number, or an object with the key `reward`.
    """
    try:
        value = json.loads(result.output)
    except (ValueError, RecursionError):  # also for bytes that are not UTF-8
        return 0.0
    value = value.get("reward") if isinstance(value, dict) else value
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return 0.0
    return float(min(1, max(0, value)))


def _describe(result: Result) -> str:
    """Returns the observation: exit status, output, and lost files."""
    if result.status is None:
        text = "exit status 137\n[The sandbox was ended: by the command, or by its memory or time."
        return text + (" The files are as before the command.]" if result.files is None else "]")
    shown, left_out = result.output, result.output_size - len(result.output)
    if left_out:
        middle = f"\n[{left_out} bytes left out]\n".encode()
        shown = shown[: len(shown) // 2] + middle + shown[len(shown) // 2 :]
    text = f"exit status {result.status}\n{shown.decode(errors='replace')}"
    if result.files is None:
        text += (
            "\n[The files are as before the command: they are too large, or one cannot be read.]"
        )
    return text
