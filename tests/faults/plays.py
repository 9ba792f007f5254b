"""Episodes of a scripted player over a server, and what must be equal between two collections."""

import collections
import dataclasses

from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.actions import ActionFormat
from agentgym_jax.env_client.guided import ExpertClient
from agentgym_jax.env_client.pool import EnvPool
from agentgym_jax.evaluation.play import TextCollector
from agentgym_jax.evaluation.players import ScriptedPlayer
from agentgym_jax.rollout.collect import EnvironmentText, EpisodeRequest
from agentgym_jax.rollout.episode import EpisodeLimits
from agentgym_jax.sampling.sampler import SamplingOptions
from agentgym_jax.trajectory import to_record
from tests.faults.runs import OF_THE_WAY, expected_errors

# All routes of a session that a scripted player uses.
ROUTES = ("/create", "/reset", "/observation", "/expert_action", "/step", "/close")
_MAX_ATTEMPTS = 20  # so that chance alone gives up no episode


@dataclasses.dataclass(frozen=True)
class Played:
    """What came of some tasks.

    Attributes:
      episodes: records, one for each task, without what depends on the way there.
      attempts: how often each was begun.
      errors: cause -> attempts that failed by it.
    """

    episodes: list[dict]
    attempts: list[int]
    errors: collections.Counter


def play(url, environment, data_idxs, *, servers=None, together=8, step_timeout_s=5.0):
    """Plays tasks to their end.

    Args:
      url: of the server, or of a proxy before it.
      environment: its name.
      data_idxs: of the tasks.
      servers: started again when they may be gone, as those of a run.
      together: episodes under way at the same time.
      step_timeout_s: how long the client waits for an answer.
    """
    client = ExpertClient(url, environment, connect_timeout_s=5.0, step_timeout_s=step_timeout_s)
    player = ScriptedPlayer({environment: ActionFormat.RAW})
    player.concurrency = together
    sampling = SamplingOptions(max_turn_tokens=1, max_tokens=1)
    with EnvPool({environment: client}, workers=together, max_idle_sessions=together) as pool:

        def revive():
            for name in servers.ensure_alive() if servers else ():
                pool.invalidate(name)

        turns = client.spec().max_turns
        limits = EpisodeLimits(max_turns=turns, max_tokens=10**6, max_invalid_actions=1)
        collector = TextCollector(
            player,
            pool,
            {environment: EnvironmentText(preamble=(), parse=client.parse)},
            max_attempts=_MAX_ATTEMPTS,
            max_replacements=1,
            tell_budget="none",
            revive=revive,
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
    """Every fault under its cause.

    A question whose connection broke is asked again at once: it takes two such faults to fail.
    """
    expected = expected_errors(delivered)
    assert errors >= expected
    more = errors - expected
    assert set(more) <= {"connection"}
    assert more.total() <= delivered["/expert_action", "connection"] // 2
