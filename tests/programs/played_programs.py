"""Plays agent programs, or the policy itself, in a world of the tests."""

import functools
import pathlib
import sys

import jax

from agentgym_jax.client.pool import EnvPool
from agentgym_jax.programs.gateway import Gateway
from agentgym_jax.programs.program_collector import ProgramCollector
from agentgym_jax.programs.runners import CommandProgram, FunctionProgram
from agentgym_jax.rollout.agents import SampledRows
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.episode import EpisodeLimits
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.serving.engine import Engine
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.grammars import Grammars
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.text.tool_chat import ToolChat
from tests.builders import make_sampler
from tests.env_clients import connect
from tests.programs import programs
from tests.rollout.world import TEXT, make_requests
from tests.waiting import PATIENCE_S

LIMITS = EpisodeLimits(max_turns=3, max_tokens=240, max_parse_errors=0)
SAMPLING = SamplingOptions(temperature=1.0, max_turn_tokens=6, max_tokens=240)


class Setup:
    """A sampler and the pool of a world; plays programs, or the policy itself."""

    def __init__(self, policy, world, *, rows=4):
        self.world = world
        self.tokenizer = byte_tokenizer()
        self.renderer = ChatRenderer(self.tokenizer)
        vocab_size = policy.config.vocab_size
        self.grammars = Grammars(self.tokenizer, self.renderer.stop_ids, vocab_size)
        params = policy.init(jax.random.key(0))
        self.sampler = make_sampler(policy, params, self.renderer.stop_ids, rows=rows)

    def play(
        self,
        program,
        tasks=(0, 1, 2, 3),
        *,
        group=1,
        limits=LIMITS,
        max_attempts=1,
        max_replacements=0,
        timeout_s=PATIENCE_S,
        transport=None,
        should_stop=lambda: False,
        on_progress=lambda done, total, tokens: None,
        drive=None,
    ):
        """Returns trajectories and statistics; `program` None is the policy itself.

        `drive(collector, requests, calls)` replaces the call of `collect`.
        """
        client = connect(self.world.url, transport=transport)
        requests = make_requests(tasks, group, limits, SAMPLING)
        with EnvPool(
            {"textcraft": client}, workers=8, max_idle_sessions=16, close_timeout_s=PATIENCE_S
        ) as pool:
            shared = dict(
                pool=pool,
                environments={"textcraft": TEXT},
                max_attempts=max_attempts,
                max_replacements=max_replacements,
                restart_dead_servers=lambda: None,
            )
            if program is None:
                rows = SampledRows(self.sampler, self.renderer, self.tokenizer.decode)
                collector = Collector(rows=rows, prefetch=2, show_turn_budget="none", **shared)
            else:
                engine = Engine(
                    self.sampler, self.tokenizer.decode, max_waiting=100, grammars=self.grammars
                )
                collector = ProgramCollector(
                    engine=engine,
                    gateway=Gateway(engine, self.tokenizer),
                    encoder=ToolChat(self.renderer, self.tokenizer),
                    start=program,
                    concurrency=self.sampler.rows,
                    timeout_s=timeout_s,
                    **shared,
                )
            calls = dict(on_progress=on_progress, should_stop=should_stop)
            if drive is None:
                found = collector.collect(requests, replacement_stride=group, **calls)
            else:
                found = drive(collector, requests, calls)
        assert self.sampler.free_rows == self.sampler.rows
        assert not self.world.sessions
        return found


def function(call):
    return functools.partial(FunctionProgram, call)


def command(name):
    script = pathlib.Path(programs.__file__)
    return functools.partial(CommandProgram, f"{sys.executable} {script} {name}")
