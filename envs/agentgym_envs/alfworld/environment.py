"""ALFWorld's tasks as an environment with text observations and actions."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from agentgym_envs.alfworld import rules
from agentgym_envs.alfworld.expert import aim_of, next_command
from agentgym_envs.alfworld.facts import Facts
from agentgym_envs.alfworld.rules import Game, Move
from agentgym_envs.base.environment import StepResult, check_task
from agentgym_envs.base.episodic import ReplayedEnvironment

_ARRIVAL = re.compile(r"You arrive at loc \d+\. ")  # AgentGym's server removes it
_PUT = re.compile(r"(?:put|move) (.+?) (?:in/on|in|on|to) (.+)")
_NOTHING = "Nothing happens."


@dataclasses.dataclass(frozen=True)
class Told(StepResult):
    """Result with the further facts that AgentGym's server sends.

    Attributes:
      available_actions: Commands that are possible now, in alphabetical order.
      task_type: `Game.kind` of the task.
    """

    available_actions: tuple[str, ...]
    task_type: str

    @property
    def text(self) -> str:
        """Returns the observation with the list that AgentGym's client appends."""
        return f"{self.observation}\nAVAILABLE ACTIONS: {','.join(self.available_actions)}"


@dataclasses.dataclass
class Episode:
    """An episode of one task.

    Attributes:
      seen: Receptacles whose content a text has told.
    """

    data_idx: int
    game: Game
    facts: Facts
    moves: Mapping[str, Move]
    actions: list[str]
    seen: set[str]
    last: Told

    @property
    def done(self) -> bool:
        """True after the goal was reached."""
        return self.last.done


class AlfWorldEnvironment(ReplayedEnvironment[Episode]):
    """A household task.

    Args:
      is_compat: True to accept negative indices, which count from the end, as in AgentGym.
      searches: True if the expert knows only what the texts have told.
    """

    name = "alfworld"

    def __init__(
        self,
        load: Callable[[int], Game],
        num_tasks: int,
        is_compat: bool = False,
        searches: bool = False,
    ):
        self._load = load
        self._num_tasks = num_tasks
        self._is_compat = is_compat
        self._searches = searches

    def reset(self, data_idx: int) -> Told:
        """Starts a task in the middle of the room."""
        # AgentGym's list accepts negative indices
        index = data_idx + self._num_tasks if self._is_compat and data_idx < 0 else data_idx
        check_task(self.name, index, self._num_tasks, "list index out of range")
        game = self._load(index)
        facts = Facts(game.facts)
        moves = rules.possible_moves(game, facts)
        text = game.grammar.text("#intro#", facts, game.names, {})
        # the first paragraph is a greeting
        text = "\n".join(text.split("\n\n")[1:])
        first = Told(text, 0.0, 0.0, False, tuple(moves), game.kind)
        self._episode = Episode(data_idx, game, facts, moves, [], set(), first)
        return first

    def step(self, action: str) -> Told:
        """Applies a command."""
        episode = self.playing
        game, facts = episode.game, episode.facts
        episode.actions.append(action)
        move = _find(action, episode.moves)
        text = _NOTHING
        if move is not None:
            rules.apply(move, facts)
            feedback = game.grammar.feedback[move.action]
            text = game.grammar.text(feedback, facts, game.names, move.bound)
            episode.moves = rules.possible_moves(game, facts)
            episode.seen.update(rules.visible_receptacles(facts))
        reward = float(rules.is_won(game, facts))
        episode.last = Told(
            _ARRIVAL.sub("", text, count=1),
            reward,
            reward,
            bool(reward),
            tuple(episode.moves),
            game.kind,
        )
        return episode.last

    def expert_action(self) -> str:
        """Returns the next command of a plan that is made from the present state."""
        episode = self.playing
        seen = episode.seen if self._searches else None
        return next_command(aim_of(episode.game.goal), episode.facts, episode.moves, seen)

    def valid_actions(self) -> list[str]:
        """Returns the possible commands."""
        return list(self.episode.last.available_actions)

    def state(self) -> dict[str, Any]:
        """Returns the task, the place and the carried object, for viewers."""
        episode = self.episode
        agent, place = episode.facts.of("atlocation")[0]
        look = functools.partial(episode.game.grammar.text, facts=episode.facts)
        return {
            "data_idx": episode.data_idx,
            "task": episode.game.kind,
            "goal": look("#task#", names=episode.game.names, bound={}),
            "place": look(
                "#look.feedback#", names=episode.game.names, bound={"a": agent, "l": place}
            ),
            "inventory": look("#inventory.feedback#", names=episode.game.names, bound={"a": agent}),
            "moves": len(episode.actions),
        }


def _find(action: str, moves: Mapping[str, Move]) -> Move | None:
    """Returns the move of a command. `put A in/on B` and `move A to B` mean the same."""
    command = " ".join(action.lower().split())
    if command in moves:
        return moves[command]
    if (put := _PUT.fullmatch(command)) is not None:
        for form in ("put {} in/on {}", "move {} to {}"):
            if (other := form.format(*put.groups())) in moves:
                return moves[other]
    return None
