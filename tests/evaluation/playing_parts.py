"""Evaluations of the maze environment in this process."""

import contextlib

from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.in_process import in_process_servers
from agentgym_jax.client.oracle_clients import ExpertClient, ValidActionsClient
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.config.settings import EvaluationSettings
from agentgym_jax.data.tasks import Task
from agentgym_jax.evaluation.play import evaluate
from agentgym_jax.evaluation.text_agents import ScriptedAgent
from agentgym_jax.rollout.agents import TextRows
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.interface import EnvironmentText
from agentgym_jax.sampling.options import SamplingOptions
from tests.waiting import PATIENCE_S

CLIENTS = {"expert": ExpertClient, "random": ValidActionsClient, None: EnvClient}
ALL_TASKS = [Task("maze", i, "maze") for i in range(6)]


@contextlib.contextmanager
def maze(
    kind,
    agent=None,
    *,
    show_turn_budget="none",
    max_attempts=3,
    max_replacements=1,
    client_class=None,
    patience_s=PATIENCE_S,
    workers=4,
):
    """Yields a collector for the maze that runs `agent` or, without one, a scripted agent."""
    with in_process_servers(["maze"]) as transports:
        client = (client_class or CLIENTS[kind])(
            "http://maze",
            "maze",
            connect_timeout_s=PATIENCE_S,
            step_timeout_s=PATIENCE_S,
            transport=transports["maze"],
        )
        with EnvPool(
            {"maze": client},
            workers=workers,
            max_idle_sessions=8,
            backoff_s=0.01,
            backoff_max_s=0.05,
            breaker_patience_s=patience_s,
        ) as pool:
            preamble = ({"role": "system", "content": "Walk."},)
            yield Collector(
                rows=TextRows(agent or ScriptedAgent({"maze": ActionFormat.REACT})),
                pool=pool,
                environments={"maze": EnvironmentText(preamble=preamble, parse=client.parse)},
                prefetch=0,
                max_attempts=max_attempts,
                max_replacements=max_replacements,
                show_turn_budget=show_turn_budget,
                restart_dead_servers=lambda: None,
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
    """Evaluates the collector's agent on tasks; returns the result."""
    return evaluate(
        collector,
        tasks,
        EvaluationSettings(
            every=0, at_start=False, max_turns=max_turns, samples=samples, greedy=False
        ),
        seed=seed,
        step=0,
        max_turns={"maze": max_turns},
        sampling=SamplingOptions(temperature=1.0, max_turn_tokens=50, max_tokens=1000),
        max_parse_errors=1,
        on_progress=on_progress,
        should_stop=stop or (lambda: False),
        **options,
    )


def actions(trajectory):
    return [turn.action for turn in trajectory.turns]


def stumbling(faults, kind=ExpertClient):
    """Returns a client class whose resets of a task fail the given number of times."""
    left = dict(faults)

    class Stumbling(kind):
        def reset(self, session, data_idx, request_id=""):
            if data_idx in left and left[data_idx] > 0:
                left[data_idx] -= 1
                raise EnvError(EnvCause.HTTP_STATUS, "no answer", retryable_from_reset=False)
            return super().reset(session, data_idx, request_id)

    return Stumbling
