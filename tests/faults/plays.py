"""Episodes of a scripted agent on a server, and the fields that two rollouts must have in common."""

import collections
import dataclasses

from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.oracle_clients import ExpertClient
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import to_record
from agentgym_jax.evaluation.text_agents import ScriptedAgent
from agentgym_jax.rollout.agents import TextRows
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.episode import EpisodeLimits, EpisodeRequest
from agentgym_jax.rollout.interface import EnvironmentText
from agentgym_jax.sampling.options import SamplingOptions
from tests.faults.runs import OF_THE_WAY, expected_errors
from tests.waiting import PATIENCE_S

# All session routes that a scripted agent uses.
ROUTES = ("/create", "/reset", "/observation", "/expert_action", "/step", "/close")
# Retries are frequent; with this limit, no episode is given up by chance.
_MAX_ATTEMPTS = 20


@dataclasses.dataclass(frozen=True)
class Played:
    """Results of a rollout.

    Attributes:
      episodes: Episode records, one per task, without the fields that depend on faults.
      attempts: Number of attempts per task.
      errors: Number of failed attempts by cause.
    """

    episodes: list[dict]
    attempts: list[int]
    errors: collections.Counter


def play(url, environment, data_idxs, *, servers=None, together=8, step_timeout_s=PATIENCE_S):
    """Plays one episode per task to its end; returns the results.

    Args:
      url: Address of the server, or of a proxy in front of it.
      environment: Name of the environment.
      data_idxs: Indices of the tasks.
      servers: Servers to restart if they die, as during a training run.
      together: Number of concurrent episodes.
      step_timeout_s: Seconds that the client waits for an answer.
    """
    client = ExpertClient(
        url, environment, connect_timeout_s=PATIENCE_S, step_timeout_s=step_timeout_s
    )
    agent = ScriptedAgent({environment: ActionFormat.RAW})
    agent.concurrency = together
    sampling = SamplingOptions(temperature=1.0, max_turn_tokens=1, max_tokens=1)
    with EnvPool({environment: client}, workers=together, max_idle_sessions=together) as pool:

        def restart_dead_servers():
            for name in servers.ensure_alive() if servers else ():
                pool.invalidate(name)

        turns = client.spec().max_turns
        limits = EpisodeLimits(max_turns=turns, max_tokens=10**6, max_parse_errors=1)
        collector = Collector(
            rows=TextRows(agent),
            pool=pool,
            environments={environment: EnvironmentText(preamble=(), parse=client.parse)},
            prefetch=0,
            max_attempts=_MAX_ATTEMPTS,
            max_replacements=1,
            show_turn_budget="none",
            restart_dead_servers=restart_dead_servers,
        )
        played, statistics = collector.collect(
            [
                EpisodeRequest(Task(environment, i, environment), 0, 0, 0, limits, sampling)
                for i in data_idxs
            ],
            replacement_stride=1,
            on_progress=lambda done, total, tokens: None,
            should_stop=lambda: False,
        )
    records = [to_record(trajectory) for trajectory in played]
    kept = [{k: v for k, v in r.items() if k not in OF_THE_WAY} for r in records]
    return Played(kept, [r["attempts"] for r in records], statistics.env_errors)


def assert_counted(errors, delivered):
    """Checks that every fault is counted under its cause.

    A broken request for an expert action is repeated immediately, so it fails only after two faults
    in a row.
    """
    expected = expected_errors(delivered)
    assert errors >= expected
    more = errors - expected
    assert set(more) <= {"connection"}
    assert more.total() <= delivered["/expert_action", "connection"] // 2
