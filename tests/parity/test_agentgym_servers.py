"""Episodes on AgentGym's own servers, compared with this project's servers in `--compat` mode.

This project's client is used on both sides.

    AGENTGYM=DIR AGENTGYM_SERVERS=textcraft=http://127.0.0.1:8001,babyai=http://127.0.0.1:8002 \\
        pytest tests/parity/test_agentgym_servers.py -n 0 --log-cli-level=INFO

AGENTGYM_SERVERS names running servers of a checkout; AGENTGYM must be set to the checkout. The
addresses of maze and wordle may omit their prefix. AgentGym's TextCraft reads its recipe files in
the order of `os.listdir`, which must be patched to sort its result, so that the tasks are equal.
Every answer is compared: text, reward, score, end, success and the text of every error. Recipes
that TextCraft shows as distractors are not compared. Three effects of a Java virtual machine's
identity hash codes in ScienceWorld are tolerated: the order of objects, some degrees of a
temperature, and whether a closed circuit works immediately or one action later.
"""

import dataclasses
import functools
import logging
import os
import random
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from agentgym_envs.textcraft.recipes import load_world, to_name
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.embedded import EmbeddedServers
from agentgym_jax.client.errors import EnvCause, EnvError

ADDRESSES = dict(
    entry.split("=", 1) for entry in os.environ.get("AGENTGYM_SERVERS", "").split(",") if entry
)
# otherwise httpx logs a line for every request
logging.getLogger("httpx").setLevel(logging.WARNING)
pytestmark = [
    pytest.mark.skipif(
        not (os.environ.get("AGENTGYM") and ADDRESSES),
        reason="AGENTGYM and AGENTGYM_SERVERS do not name a checkout of AgentGym and its servers",
    ),
    pytest.mark.timeout(1200),
]
MAX_LOOSE = 0.05  # maximum share of ScienceWorld's answers that differ because of hash codes
AFTER_THE_END = 2  # number of steps after the end of an episode; their answers must also be equal


@dataclasses.dataclass(frozen=True)
class Case:
    """Tasks and actions for one environment.

    Attributes:
      tasks: Indices of existing tasks.
      unknown: Indices at and beyond the limits of the existing tasks.
      turns: Maximum number of steps per episode.
      nonsense: Invalid actions of several types.
    """

    tasks: tuple[int, ...]
    unknown: tuple[int, ...]
    turns: int
    nonsense: tuple[str, ...]


COMMON = (
    "",
    "   ",
    "fly",
    "Inventory",
    "größer 火 \U0001f525",
    "a" * 3000,
    "check available actions",
)
CASES = {
    "textcraft": Case(
        tasks=(*range(0, 544, 34), 543),
        unknown=(544, 1087, -1, 10**12),
        turns=45,
        nonsense=(
            *COMMON,
            "inventory",
            "inventory please",
            " inventory",
            "get 0 oak log",
            "get 99999 stick",
            "get stick",
            "get 1 oak_logs",
            "get 2 planks",
            "craft 4 planks using 1 oak logs",
            "craft 9 oak planks using 1 oak logs",
            "craft 1 oak planks using 2 oak logs",
            "craft oak planks using oak logs",
            "craft 4 stick using",
            "craft 4 stick using 2 bamboo, 1 sand",
        ),
    ),
    "babyai": Case(
        tasks=(*range(40), 57, 400, 1234, 3999),
        unknown=(4000, 10**6, -1, -41),
        turns=30,
        nonsense=(
            *COMMON,
            "TURN LEFT",
            "toggle",
            "drop",
            "pick up red ball 1",
            "pickup red ball 7",
            "go to purple box 1",
            "go through red open door 1",
            "toggle and go through blue closed door 1",
            "go to",
            "go to goal",
            "check",
        ),
    ),
    "sciworld": Case(
        tasks=(0, 125, 700, 1100, 1400, 1500, 2400, 2936, 3300, 3600, 4136, 4300, 4638),
        unknown=(4639, 10**9, -1),
        turns=45,
        nonsense=(
            *COMMON,
            "look around",
            "task",
            "wait1",
            "open door",
            "go to moon",
            "focus on moon",
            "pick up everything",
            "0",
            "look in fridge",
            "open cupboard",
            "use thermometer on air",
        ),
    ),
    "maze": Case(
        tasks=tuple(range(25)),
        unknown=(25, 26, -1, -26, -27),
        turns=60,
        nonsense=(*COMMON, "move  up", "MOVE UP", "move up\n", "up", "move north"),
    ),
    "wordle": Case(
        tasks=tuple(range(0, 980, 33)),
        unknown=(-1, 10**12),
        turns=9,
        nonsense=(*COMMON, "p a n i c", "panic", "P A N I C", "p a n i", "z z z z z", "pa n ic"),
    ),
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """The original server and this project's server, with a client for each."""

    name: str
    case: Case
    original: EnvClient
    ours: EnvClient

    def both(self, ask: Callable[..., Any], sessions: list[int]) -> list[Any]:
        """Returns the answers or failures of `ask(client, session)`: original, then ours."""
        clients = (self.original, self.ours)
        return [outcome(ask, c, s) for c, s in zip(clients, sessions, strict=True)]

    def create(self) -> list[int]:
        return [self.original.create(), self.ours.create()]


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    name = request.param
    if name not in ADDRESSES:
        pytest.skip(f"AGENTGYM_SERVERS has no {name}")
    limits = {"connect_timeout_s": 10, "step_timeout_s": 120}
    logs = tmp_path_factory.mktemp(name)
    with EmbeddedServers([name], arguments=("--compat",), log_folder=logs) as servers:
        clients = [EnvClient(url, name, **limits) for url in (ADDRESSES[name], servers.urls[name])]
        yield Pair(name, CASES[name], *clients)
        for client in clients:
            client.disconnect()


@dataclasses.dataclass(frozen=True)
class Failure:
    """An error as the client's caller sees it, without details that always differ."""

    cause: EnvCause
    words: str
    retryable: bool


def outcome(ask: Callable[..., Any], client: EnvClient, session: int) -> Any:
    """Returns the answer of a call, or a Failure if the call raises an error."""
    try:
        return ask(client, session)
    except EnvError as error:
        words = error.message.replace(client.base_url, "")
        words = re.sub(rf"\b(id|environment|error:) {session}\b", r"\1 N", words)
        return Failure(error.cause, words, error.retryable_from_reset)


def same(name: str, original: Any, ours: Any) -> bool:
    """Returns True if the answers of both servers are equal.

    For ScienceWorld, the order of objects and the degrees of a temperature may differ.
    """
    if name == "sciworld":
        return _loose(original) == _loose(ours)
    return original == ours


def _loose(seen: Any) -> Any:
    """Removes the parts of an answer that depend on the Java virtual machine's hash codes."""
    if isinstance(seen, Failure):
        return seen
    text = re.sub(r"-?\d+ degrees", "some degrees", seen.text)
    # numbers in the list of options of an ambiguous request
    text = re.sub(r"^\d+:", "", text, flags=re.MULTILINE)
    return dataclasses.replace(seen, text=sorted(re.split(r"[\s,.()]+", text)))


def is_late(pair: "Pair", original: Any, ours: Any, sessions: list[int]) -> bool:
    """Returns True if the answers differ only by a ScienceWorld circuit that works later.

    The later server must reach the score of the other server after one more action, `wait1`.
    """
    seen = [original, ours]
    if pair.name != "sciworld" or any(isinstance(s, Failure) or s.score < 0 for s in seen):
        return False
    if original.text != ours.text or original.score == ours.score:
        return False
    late = int(ours.score < original.score)
    client = (pair.original, pair.ours)[late]
    return client.step(sessions[late], "wait1").score == seen[1 - late].score


def is_parting(original: Any, ours: Any) -> bool:
    """Returns True if an action may have different effects on the two servers from now on.

    This happens after different scores, and if an ambiguous request numbers its options differently.
    """
    if isinstance(original, Failure) or original == ours:
        return False
    return original.score != ours.score or original.text.startswith("Ambiguous request")


def same_start(name: str, original: Any, ours: Any) -> bool:
    """Returns True if the first observations of both servers are equal.

    For TextCraft, the order of lines and the choice of distractors may differ.
    """
    if name != "textcraft" or isinstance(original, Failure) or isinstance(ours, Failure):
        return same(name, original, ours)
    texts = original.text.split("\n"), ours.text.split("\n")
    if texts[0][-1] != texts[1][-1] or len(texts[0]) != len(texts[1]):
        return False
    needed = _needed_lines(texts[0][-1].removeprefix("Goal: craft ").removesuffix("."))
    is_complete = needed <= set(texts[0]) & set(texts[1])
    return is_complete and dataclasses.replace(original, text="") == dataclasses.replace(
        ours, text=""
    )


def _needed_lines(goal: str) -> set[str]:
    """Returns the lines of all recipes that lead to the goal, directly or through ingredients."""
    world = load_world()
    todo = [name for name in world.by_item if to_name(name) == goal]
    needed: set[str] = set()
    while todo:
        new = [r for r in world.recipes_for(todo.pop()) if r.text not in needed]
        needed.update(recipe.text for recipe in new)
        todo += [ingredient.id for recipe in new for ingredient in recipe.ingredients]
    return needed


class Agent:
    """An agent that chooses actions from the facts that this project's server sends.

    Most of its actions are good, some are merely valid, and some are nonsense.
    """

    def __init__(self, pair: Pair, session: int, seed: str):
        self._pair = pair
        self._rng = random.Random(seed)
        prefix = pair.ours.facts.path_prefix
        self._http = httpx.Client(
            base_url=pair.ours.base_url + prefix, params={"id": session}, timeout=120
        )
        self._last = "inventory"

    def choose(self) -> str:
        kind = self._rng.choices(["expert", "valid", "nonsense", "again"], [12, 4, 3, 1])[0]
        if kind == "nonsense":
            self._last = self._rng.choice(self._pair.case.nonsense)
        elif kind != "again":
            self._last = self._from_server(kind)
        return self._last

    def _from_server(self, kind: str) -> str:
        if kind == "expert":
            body = self._http.get("/expert_action").json()
            if "action" in body:
                return body["action"]
        body = self._http.get("/valid_actions").json()
        # the server sends no valid actions after the end
        actions = body["actions"] if "actions" in body else []
        return self._rng.choice(actions or self._pair.case.nonsense)


@dataclasses.dataclass
class Tally:
    """Counts over all episodes of one environment.

    Attributes:
      steps: Number of compared answers to steps.
      loose: Number of compared answers that differ only by effects of hash codes.
      refusals: Number of answers to actions that the environment rejected.
      solved: Number of solved episodes.
      differences: Descriptions of unequal answers.
    """

    steps: int = 0
    loose: int = 0
    refusals: int = 0
    solved: int = 0
    differences: list[str] = dataclasses.field(default_factory=list)

    def add(self, original: Any, ours: Any, is_same: bool, where: str) -> None:
        self.steps += 1
        self.loose += is_same and original != ours
        if not isinstance(ours, Failure):
            self.refusals += ours.is_rejection
            self.solved += ours.success
        if not is_same:
            self.differences.append(f"{where}\n  original {original}\n  ours     {ours}")


def play(pair: Pair, sessions: list[int], task: int, tally: Tally) -> None:
    """Plays one episode until shortly after its end, or until the servers' states may differ."""
    starts = pair.both(lambda client, session: client.reset(session, task), sessions)
    if not same_start(pair.name, *starts):
        tally.differences.append(f"reset {task}\n  original {starts[0]}\n  ours     {starts[1]}")
        return
    agent = Agent(pair, sessions[1], f"{pair.name}/{task}")
    left = AFTER_THE_END
    for turn in range(pair.case.turns):
        action = agent.choose()
        original, ours = pair.both(functools.partial(EnvClient.step, action=action), sessions)
        is_same = same(pair.name, original, ours) or is_late(pair, original, ours, sessions)
        where = f"task {task}, turn {turn}, {action[:80]!r}"
        tally.add(original, ours, is_same, where)
        is_over = isinstance(ours, Failure) or ours.done or left < AFTER_THE_END
        left -= is_over
        if not is_same or is_parting(original, ours) or left < 0:
            return


def test_all_answers_of_many_episodes_are_equal(pair):
    sessions = pair.create()
    tally = Tally()
    for task in pair.case.tasks:
        play(pair, sessions, task, tally)
    logging.info("%s: %d episodes, %s", pair.name, len(pair.case.tasks), tally)
    assert not tally.differences, "\n".join(tally.differences)
    assert tally.loose <= MAX_LOOSE * tally.steps
    assert tally.solved, "no episode was solved, so no reward was compared"
    assert pair.both(EnvClient.close, sessions) == [None, None]


def test_a_missing_task_gets_equal_answers(pair):
    sessions = pair.create()
    differences = []
    for task in pair.case.unknown:
        seen = pair.both(functools.partial(EnvClient.reset, data_idx=task), sessions)
        if not same_start(pair.name, *seen):
            differences.append(f"reset {task}\n  original {seen[0]}\n  ours     {seen[1]}")
    pair.both(EnvClient.close, sessions)
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize(
    "ask",
    [functools.partial(EnvClient.step, action="x"), functools.partial(EnvClient.reset, data_idx=0)],
    ids=["step", "reset"],
)
def test_a_missing_session_is_lost_on_both_servers(pair, ask):
    original, ours = pair.both(ask, [987654, 987654])
    assert original == ours
    assert original.cause is EnvCause.SESSION_LOST


def test_a_step_before_the_first_reset_gets_equal_answers(pair):
    sessions = pair.create()
    original, ours = pair.both(functools.partial(EnvClient.step, action="fly"), sessions)
    assert original == ours
    pair.both(EnvClient.close, sessions)


def test_a_closed_session_is_lost_on_both_servers(pair):
    if not pair.original.facts.has_close:
        pytest.skip("AgentGym's server cannot close sessions")
    sessions = pair.create()
    pair.both(functools.partial(EnvClient.reset, data_idx=0), sessions)
    assert pair.both(EnvClient.close, sessions) == [None, None]
    original, ours = pair.both(functools.partial(EnvClient.step, action="fly"), sessions)
    assert original == ours
    assert original.cause is EnvCause.SESSION_LOST


def test_the_client_recognises_an_original_server(pair):
    spec = pair.original.spec()
    assert (spec.name, spec.version) == (pair.name, "upstream")
    assert pair.original.facts.path_prefix or pair.original.health()["root"]
