"""Episodes of random numbers for measuring a rollout engine.

The episodes are as long as agents' episodes, but their texts have no meaning.

An action ends at any of vocab / turn_tokens ids, so random weights generate about `turn_tokens`
tokens per turn. An observation is `observation` random ids. An environment returns it after a
heavy-tailed delay and continues until the episode has its number of turns. The real collector and
the real thread pool receive these ids as texts of decimal numbers.
"""

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import late_answers
import numpy as np
from shapes import SHAPES

from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.client.answers import Observation
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.rollout.agents import SampledRows
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.episode import EpisodeLimits, EpisodeRequest
from agentgym_jax.rollout.interface import EnvironmentText
from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.sampling.sampler import Sampler

NAME = "numbers"


class NumberEpisodes:
    """The episodes of one measurement.

    Options: `shape`, `episodes`, `rows`, `prompt`, `observation`, `turns` (lowest and highest),
    `turn_tokens`, `budget` (tokens after the prompt), `delay_s` (minimum), `max_delay_s`.
    """

    def __init__(self, options: Mapping):
        self._options = options
        self._vocab = SHAPES[options["shape"]].vocab
        self.stop_ids = list(range(1, self._vocab // options["turn_tokens"]))
        self._round = 0

    def prompt(self, episode: int) -> list[int]:
        """Returns the ids of the prompt."""
        return self._ids(f"prompt {self._round} {episode}", self._options["prompt"])

    def observation(self, episode: int, turn: int) -> list[int]:
        """Returns the ids of the observation after turn number `turn`."""
        return self._ids(f"observation {episode} {turn}", self._options["observation"])

    def play(self, sampler: Sampler) -> tuple[list[Trajectory], float]:
        """Runs all episodes through the collector; also returns the seconds in which no row could
        decode.
        """
        self._round += 1
        rows = self._options["rows"]
        limits = EpisodeLimits(max_turns=10**6, max_tokens=self._max_tokens, max_parse_errors=10**6)
        requests = [
            EpisodeRequest(Task(NAME, i, ""), 0, 0, self._round, limits, self._sampling)
            for i in range(self._options["episodes"])
        ]
        with EnvPool(
            {NAME: _LateClient(self, self._options)}, workers=rows, max_idle_sessions=rows
        ) as pool:
            collector = Collector(
                rows=SampledRows(sampler, _Numbers(), lambda tokens: f"{len(tokens)} numbers"),
                pool=pool,
                environments={NAME: EnvironmentText((), lambda text: ParsedAction(text))},
                prefetch=rows,
                max_attempts=1,
                max_replacements=0,
                show_turn_budget="none",
                restart_dead_servers=lambda: None,
            )
            trajectories, statistics = collector.collect(
                requests,
                replacement_stride=1,
                on_progress=lambda done, total, tokens: None,
                should_stop=lambda: False,
            )
        return trajectories, statistics.seconds_env_wait

    def play_lock_step(self, sampler: Sampler, pool: ThreadPoolExecutor, first: int) -> int:
        """Runs one batch of rows turn by turn and prefills the whole history at each turn; returns
        the tokens kept.
        """
        if not first:
            self._round += 1
        last = min(first + self._options["rows"], self._options["episodes"])
        histories = {i: self.prompt(i) for i in range(first, last)}
        live, turn = set(histories), 0
        while live:
            spoken = self._speak(sampler, {i: histories[i] for i in sorted(live)}, turn)
            for i, tokens in spoken.items():
                histories[i] += tokens
            turn += 1
            list(
                pool.map(time.sleep, [late_answers.delay_s(self._options, i, turn) for i in spoken])
            )
            live = {i for i in spoken if turn < late_answers.turns(self._options, i)}
            for i in sorted(live):
                histories[i] += self.observation(i, turn)
            live = {i for i in live if len(histories[i]) < self._max_tokens}
        return sum(len(tokens) - 1 for tokens in histories.values())

    def _speak(self, sampler: Sampler, histories: dict[int, list[int]], turn: int) -> dict:
        """Samples one turn of every episode, each on a separate row; returns the tokens by episode."""
        episodes = {}
        for i, history in histories.items():
            row = sampler.open(episode_key(0, self._round, f"{NAME} {turn}", i), self._sampling)
            sampler.prefill(row, [history])
            episodes[row] = i
        turns = []
        while len(turns) < len(episodes):
            turns += sampler.step()
        for row in episodes:
            sampler.close(row)
        return {episodes[turn.row]: turn.tokens.tolist() for turn in turns}

    @property
    def _max_tokens(self) -> int:
        return self._options["prompt"] + self._options["budget"]

    @property
    def _sampling(self) -> SamplingOptions:
        most = self._options["budget"]
        return SamplingOptions(temperature=1.0, max_turn_tokens=most, max_tokens=self._max_tokens)

    def _ids(self, name: str, count: int) -> list[int]:
        rng = random.Random(name)
        return [rng.randrange(len(self.stop_ids) + 1, self._vocab) for _ in range(count)]


class _Numbers:
    """Renderer for texts that are lists of ids."""

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        return [self.observation(message["content"]) for message in messages]

    def observation(self, text: str) -> list[int]:
        return np.fromstring(text, dtype=np.int64, sep=" ").tolist()

    def close_turn(self, ended_by_stop: bool) -> list[int]:
        del ended_by_stop
        return []


class _LateClient:
    """Client with the calls that the thread pool makes; a session is a list of (episode, turns
    taken).
    """

    environment = NAME
    base_url = "inprocess://numbers"

    def __init__(self, episodes: NumberEpisodes, options: Mapping):
        self._episodes, self._options = episodes, options
        self._numbers = itertools.count()  # several threads create sessions concurrently
        self._sessions: dict[int, list[int]] = {}

    def create(self, request_id: str = "") -> int:
        del request_id
        return next(self._numbers)

    def reset(self, number: int, data_idx: int, request_id: str = "") -> Observation:
        del request_id
        self._sessions[number] = [data_idx, 0]
        time.sleep(late_answers.delay_s(self._options, data_idx, 0))
        return self._answer(self._episodes.prompt(data_idx), done=False)

    def step(self, number: int, action: str, request_id: str = "") -> Observation:
        del action, request_id
        episode, taken = self._sessions[number]
        self._sessions[number] = [episode, taken + 1]
        time.sleep(late_answers.delay_s(self._options, episode, taken + 1))
        ids = self._episodes.observation(episode, taken + 1)
        return self._answer(ids, done=taken + 1 >= late_answers.turns(self._options, episode))

    def close(self, number: int, timeout_s: float | None = None) -> None:
        del timeout_s
        self._sessions[number] = [0, 0]

    def disconnect(self) -> None:
        return None

    def _answer(self, ids: list[int], done: bool) -> Observation:
        return Observation(" ".join(map(str, ids)), 0.0, 0.0, done=done, success=False)
