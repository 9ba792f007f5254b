"""Questions about small databases, each to be answered with one SQL statement."""

import dataclasses
import functools
import random
import re
from collections.abc import Mapping
from typing import Any

from agentgym_envs import data_files
from agentgym_envs.base.environment import StepResult
from agentgym_envs.base.episodic import ReplayedEnvironment
from agentgym_envs.base.protocol import clean_text
from agentgym_envs.base.served import Answers, EnvIdxBody, ServedEnvironment, last_observation
from agentgym_envs.tools.database import MAX_ROWS, QueryError, columns_of, describe, query
from agentgym_envs.tools.environment import task_at
from agentgym_envs.tools.served import serve
from agentgym_envs.tools.tasks import Task, TaskSet, Template, draw

INSTRUCTIONS = """\
A message describes the tables and columns of an SQLite database and asks a question. Answer it \
with one SQL statement that reads the database. You have a single attempt: the rows that your \
statement returns are compared with the right ones.

Think first, then write the statement in a block of code, and nothing after it:
Thought: how the question is answered from these tables
Action: ```sql
SELECT ...
```"""
_SHOWN = 100  # characters of a result
_REFUSAL = (
    r"near \"|no such |ambiguous |unrecognized |incomplete |not authorized|attempt to write"
    r"|interrupted|You can only|wrong number|misuse|string or blob|too many"
)


def _template(database: str, question: str, statement: str, values: str) -> Template:
    """Returns a template of `sqlgym.toml`."""

    def template(rng: random.Random) -> Task | None:
        drawn = rng.choice(query(database, values))
        gold = statement.format(*drawn)
        rows = query(database, gold)
        if rows in ([], [(0,)], [(None,)]):  # too easy to meet by chance
            return None
        goal = f"{describe(database)}\n\n{question.format(*drawn)}"
        return Task(goal, (), {}, gold, {"name": database})

    return template


@functools.cache
def _tasks() -> TaskSet:
    splits = {
        split: {name: _template(**row) for name, row in rows.items()}
        for split, rows in data_files.beside(__file__).items()
    }
    return draw("sqlgym", 15, **splits)


@dataclasses.dataclass(frozen=True)
class Judged(StepResult):
    """Result of a statement; `info` is shown only under AgentGym's rules."""

    info: Mapping[str, str] | None = None


@dataclasses.dataclass
class Episode:
    """An episode; its first statement ends it."""

    data_idx: int
    task: Task
    actions: list[str] = dataclasses.field(default_factory=list)

    @property
    def done(self) -> bool:
        """True after the first statement."""
        return bool(self.actions)


class SqlEnvironment(ReplayedEnvironment[Episode]):
    """Questions to databases that cannot be changed.

    Args:
      is_compat: True for AgentGym's rules: later statements are answered too, and every answer
        contains the right statement.
    """

    name = "sqlgym"

    def __init__(self, *, is_compat: bool):
        self._is_compat = is_compat

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task."""
        self._episode = Episode(data_idx, task_at(self.name, _tasks().tasks, data_idx))
        return StepResult(self._episode.task.goal, reward=0.0, score=0.0, done=False)

    def step(self, action: str) -> StepResult:
        """Runs a statement, and compares its rows with those of the right statement as sets."""
        episode = self.episode if self._is_compat else self.playing
        episode.actions.append(action)
        name, gold, score = episode.task.setup["name"], episode.task.expected, 0.0
        try:
            rows = query(name, _statement(clean_text(action)))
        except QueryError as error:
            text = str(error)
        else:
            text = str(rows)
            text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            is_right = len(rows) <= MAX_ROWS and _as_set(rows) == _as_set(query(name, gold))
            score = float(is_right)
        info = {"ground_truth": gold} if self._is_compat else None
        return Judged(text, reward=score, score=score, done=True, info=info)

    def expert_action(self) -> str:
        """Returns the right statement."""
        return f"```sql\n{self.playing.task.expected}\n```"

    def valid_actions(self) -> list[str]:
        """Returns queries for all rows, for their number, and for each column of the tables."""
        tables = columns_of(self.playing.task.setup["name"])
        found = [
            f"SELECT {what} FROM {table}"
            for table, columns in tables.items()
            for what in ("*", "COUNT(*)", *columns)
        ]
        return [f"```sql\n{statement}\n```" for statement in found]

    def state(self) -> dict[str, Any]:
        """Returns the question and the statements so far."""
        if self._episode is None:
            return {}
        episode = self._episode
        facts = {"data_idx": episode.data_idx, "goal": episode.task.goal}
        return {**facts, "statements": list(episode.actions)}


def _statement(action: str) -> str:
    """Returns the last block of SQL in a text, or the text; AgentGym's client does the same."""
    return re.split("```", action.rpartition("```sql")[2])[0].strip()


def _as_set(rows: list[tuple[object, ...]]) -> set[tuple[object, ...]]:
    """Returns rows as a set; sums of numbers depend on their order, so they are rounded."""
    return {tuple(round(x, 6) if isinstance(x, float) else x for x in row) for row in rows}


class ResetBody(EnvIdxBody):
    """Body of `POST /reset`."""

    item_id: int


def _step_answer(result: StepResult) -> dict[str, Any]:
    assert isinstance(result, Judged)  # SqlEnvironment.step returns no other type
    facts = {"reward": result.reward, "done": result.done, "info": result.info}
    return {"state": result.observation, **facts}


def make_served_environment() -> ServedEnvironment:
    """Returns the questions to databases as a served environment."""

    return serve(
        "sqlgym",
        _tasks(),
        lambda is_compat: SqlEnvironment(is_compat=is_compat),
        version="1",
        instructions=INSTRUCTIONS,
        max_turns=1,
        refusal=_REFUSAL,
        answers=Answers(
            create=lambda session_id, first: session_id,
            reset=lambda session_id, result: [result.observation, None],
            step=_step_answer,
            observation=last_observation,
        ),
        reset_body=ResetBody,
    )
