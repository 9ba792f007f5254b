"""Games for one player of the package textarena that need neither network nor another model."""

import collections
import itertools
import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.adapters import seeded_tasks, serve
from agentgym_envs.base import extras
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.served import ServedEnvironment

try:
    import textarena
    from textarena.envs.registration import ENV_REGISTRY
except ImportError as error:
    raise SetupError(
        f"the package textarena is missing ({error}). Run: {extras.install('textarena')}"
    ) from error

# Version of the behaviour: changes when a text, a task or a score changes. The games come from the
# package.
BEHAVIOUR = "1"
PACKAGE = "0.7.4"
MAX_TURNS = 30

DEFAULT = "FrozenLake-v0-hardcore,GuessTheNumber-v0,Mastermind-v0,Sudoku-v0-very-easy"
# Beginnings of the ids of games that work offline. docs/environments.md says why others do not.
OFFLINE = (
    "2048 Bandit Blackjack Crosswords FifteenPuzzle FrozenLake GuessTheNumber LightsOut Mastermind "
    "Minesweeper PegJump Secretary Sokoban Sudoku TowerOfHanoi".split()
)

INSTRUCTIONS = """\
Play the game by the rules that you are shown. One reply is one move. Two invalid moves in a row \
end the game.

Reply in this form, with a single move:
Thought: why this move helps.
Action: the move in square brackets, as the rules describe it"""

_MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
Cell = tuple[int, int]


class Game:
    """A game of textarena. An observation has only the new messages of the game.

    The reward comes with the last move: the game's own, cut to 0..1. The games give 1 for a
    solution and a share of progress otherwise; a negative reward is 0.
    """

    def reset(self, *, seed: int, options: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Starts the game `options["game"]`, whose hidden parts the seed determines."""
        self.name = options["game"].partition("-v0")[0]
        # The variant without wrappers, whose observations do not repeat all earlier messages.
        self.inner = textarena.make(f"{options['game']}-raw")
        self.inner.reset(num_players=1, seed=seed)
        return self._news(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Makes a move; brackets around it may be missing."""
        move = action.strip()
        done, _ = self.inner.step(move if "[" in move else f"[{move}]")
        text = self._news()
        if not done:
            return text, 0.0, False, False, {}
        rewards, info = self.inner.close()
        reason = f"{text}\n{info[0]['reason']}".strip()
        return reason, min(1.0, max(0.0, float(rewards[0]))), True, False, {}

    @property
    def facts(self) -> dict[str, Any]:
        """The game's own state."""
        return self.inner.state.game_state

    def expert_action(self) -> str:
        """Returns the move of a scripted player; NotImplementedError if there is none."""
        return f"[{self._player[1](self)}]"

    def valid_actions(self) -> list[str]:
        """Returns sensible moves; NotImplementedError if there is no player of this game."""
        return [f"[{move}]" for move in self._player[0](self)]

    @property
    def _player(self) -> "Player":
        if self.name not in PLAYERS:
            raise NotImplementedError(f"no scripted agent plays {self.name}")
        return PLAYERS[self.name]

    def _news(self) -> str:
        echo = textarena.ObservationType.PLAYER_ACTION
        _, messages = self.inner.get_observation()
        return "\n".join(text for _, text, kind in messages if kind != echo).strip()


# Functions from a game to sensible moves, of which a random agent draws one, and to a good move. A
# move has no brackets yet.
Player = tuple[Callable[[Game], Iterable[str]], Callable[[Game], str]]


def _steps(game: Game, cell: Cell) -> Iterator[tuple[str, Cell]]:
    size = len(game.facts["grid"])
    for name, (down, right) in _MOVES.items():
        row, column = cell[0] + down, cell[1] + right
        if 0 <= row < size and 0 <= column < size:
            yield name, (row, column)


def _steps_on_the_lake(game: Game) -> list[str]:
    return [name for name, _ in _steps(game, game.facts["player_pos"])]


def _way_to_the_goal(game: Game) -> str:
    """Returns the first step of a shortest way around the holes."""
    start, grid = game.facts["player_pos"], game.facts["grid"]
    queue, seen = collections.deque([("", start)]), {start}
    while queue:
        first, cell = queue.popleft()
        if grid[cell[0]][cell[1]] == "G":
            return first
        for name, (row, column) in _steps(game, cell):
            if (row, column) not in seen and grid[row][column] != "H":
                seen.add((row, column))
                queue.append((first or name, (row, column)))
    raise ValueError("no way leads to the goal")


def _middle(game: Game) -> str:
    """Returns the middle of the numbers that the hints allow."""
    low, high = game.inner.min_number, game.inner.max_number
    for guess, hint in game.facts["guess_history"]:
        low, high = (max(low, guess + 1), high) if hint == "higher" else (low, min(high, guess - 1))
    return str((low + high) // 2)


def _untried(game: Game) -> list[str]:
    numbers = range(game.inner.min_number, game.inner.max_number + 1)
    return [str(number) for number in numbers if number not in game.inner.guessed_numbers]


def _pegs(guess: Sequence[int], code: Sequence[int]) -> tuple[int, int]:
    """Returns the numbers of black and white pegs."""
    black = sum(map(operator.eq, guess, code))
    common = collections.Counter(guess) & collections.Counter(code)
    return black, common.total() - black


def _consistent_code(game: Game) -> str:
    """Returns the first code that agrees with all pegs so far."""
    history = [(e["guess"], (e["black"], e["white"])) for e in game.facts["history"]]
    numbers, length = range(1, game.facts["num_numbers"] + 1), game.facts["code_length"]
    for code in itertools.product(numbers, repeat=length):
        can_be = game.facts["duplicate_numbers"] or len(set(code)) == length
        if can_be and all(_pegs(guess, code) == pegs for guess, pegs in history):
            return " ".join(map(str, code))
    raise ValueError("no code agrees with all pegs")


def _codes(game: Game) -> list[str]:
    """Returns up to 50 codes that were not tried, drawn by the number of guesses."""
    tried = {tuple(entry["guess"]) for entry in game.facts["history"]}
    rng = random.Random(len(tried))
    draw = rng.choices if game.facts["duplicate_numbers"] else rng.sample
    numbers, length = range(1, game.facts["num_numbers"] + 1), game.facts["code_length"]
    codes = {tuple(draw(numbers, k=length)) for _ in range(50)}
    return [" ".join(map(str, code)) for code in sorted(codes - tried)]


def _empty_cells(game: Game) -> list[Cell]:
    board = game.facts["board"]
    return [(i, j) for i, row in enumerate(board) for j, digit in enumerate(row) if not digit]


def _digit_of_the_solution(game: Game) -> str:
    row, column = _empty_cells(game)[0]
    return f"{row + 1} {column + 1} {game.inner.full_grid[row][column]}"


def _digits_that_fit(game: Game) -> list[str]:
    return [
        f"{row + 1} {column + 1} {digit}"
        for row, column in _empty_cells(game)
        for digit in range(1, 10)
        if game.inner.is_safe(game.facts["board"], row, column, digit)
    ]


# By the beginning of the id. Only Sudoku's player knows the solution; the others know the
# observations alone.
PLAYERS: Mapping[str, Player] = {
    "FrozenLake": (_steps_on_the_lake, _way_to_the_goal),
    "GuessTheNumber": (_untried, _middle),
    "Mastermind": (_codes, _consistent_code),
    "Sudoku": (_digits_that_fit, _digit_of_the_solution),
}


def make_served_environment(*, games: str = DEFAULT, size: int = 200) -> ServedEnvironment:
    """Returns games of textarena as a served environment.

    Args:
      games: Ids of games of the package, separated by commas.
      size: Number of training seeds of each game; there are a tenth as many test seeds.

    Raises:
      SetupError: An id is unknown or its game does not work here; `size` is below 1.
    """
    names = [name.strip() for name in games.split(",")]
    for name in names:
        if name not in ENV_REGISTRY or name.partition("-v0")[0] not in OFFLINE:
            raise SetupError(
                f"{name!r} is no game for one player that works offline; such games are "
                f"{', '.join(OFFLINE)}, with ids such as {DEFAULT}"
            )
    if size < 1:
        raise SetupError(f"size={size} must be at least 1")
    tasks = seeded_tasks(size, max(1, size // 10), [{"game": name} for name in names])
    return serve(
        Game,
        tasks,
        name="textarena",
        version=f"{BEHAVIOUR}-{PACKAGE}",
        instructions=INSTRUCTIONS,
        max_turns=MAX_TURNS,
        refusal="You attempted an invalid move",
        expert=Game.expert_action,
        valid_actions=Game.valid_actions,
    )
