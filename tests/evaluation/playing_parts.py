"""Evaluations of a small environment in this process, for the tests."""

import contextlib

from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.actions import ActionFormat
from agentgym_jax.env_client.client import EnvClient
from agentgym_jax.env_client.errors import EnvCause, EnvError
from agentgym_jax.env_client.guided import ExpertClient, ValidActionsClient
from agentgym_jax.env_client.in_process import in_process_servers
from agentgym_jax.env_client.pool import EnvPool
from agentgym_jax.evaluation.evaluate import evaluate
from agentgym_jax.evaluation.play import TextCollector
from agentgym_jax.evaluation.players import ScriptedPlayer
from agentgym_jax.rollout.collect import EnvironmentText
from agentgym_jax.run.settings import EvaluationSettings
from agentgym_jax.sampling.sampler import SamplingOptions

CLIENTS = {"expert": ExpertClient, "random": ValidActionsClient, None: EnvClient}
ALL_TASKS = [Task("maze", i, "maze") for i in range(6)]


@contextlib.contextmanager
def maze(
    kind,
    player=None,
    *,
    tell_budget="none",
    max_attempts=3,
    max_replacements=1,
    client_class=None,
    patience_s=60.0,
    workers=4,
):
    """A collector of a scripted player, or of `player`, on the maze."""
    with in_process_servers(["maze"]) as transports:
        client = (client_class or CLIENTS[kind])(
            "http://maze",
            "maze",
            connect_timeout_s=30.0,
            step_timeout_s=60.0,
            transport=transports["maze"],
        )
        with EnvPool(
            {"maze": client},
            workers=workers,
            max_idle_sessions=8,
            breaker_patience_s=patience_s,
        ) as pool:
            preamble = ({"role": "system", "content": "Walk."},)
            yield TextCollector(
                player or ScriptedPlayer({"maze": ActionFormat.REACT}),
                pool,
                {"maze": EnvironmentText(preamble=preamble, parse=client.parse)},
                max_attempts=max_attempts,
                max_replacements=max_replacements,
                tell_budget=tell_budget,
                revive=lambda: None,
            )


def play(
    collector,
    tasks=ALL_TASKS,
    *,
    samples=1,
    seed=0,
    max_turns=15,
    stop=None,
    on_progress=lambda done, total, tokens: None,
    **options,
):
    """The evaluation of a collector's player."""
    return evaluate(
        collector,
        tasks,
        EvaluationSettings(
            every=0, at_start=False, max_turns=max_turns, samples=samples, greedy=False
        ),
        seed=seed,
        step=0,
        max_turns={"maze": max_turns},
        sampling=SamplingOptions(max_turn_tokens=50, max_tokens=1000),
        max_invalid_actions=1,
        on_progress=on_progress,
        should_stop=stop or (lambda: False),
        pool=collector.pool,
        **options,
    )


def actions(trajectory):
    return [turn.action for turn in trajectory.turns]


def stumbling(faults, kind=ExpertClient):
    """A client whose reset of a task fails so many times."""
    left = dict(faults)

    class Stumbling(kind):
        def reset(self, session, data_idx, turn=""):
            if data_idx in left and left[data_idx] > 0:
                left[data_idx] -= 1
                raise EnvError(EnvCause.HTTP_STATUS, "no answer", retryable_from_reset=False)
            return super().reset(session, data_idx, turn)

    return Stumbling
