r"""A tiny policy recalls colours from a history that is removed before they are asked.

  python -m agentgym_jax.train --config=experiments/2026-11-27_compaction/recall.py:start=runs/recall_start --workdir=runs/recall

Needs: the start, which README.md makes; one CPU core.
Result: README.md.

This file also defines the environment.
"""

import random

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import standard_environment
from agentgym_jax.configs import common
from agentgym_jax.configs.rl import bandit

MODULE = "experiments.2026-11-27_compaction.recall"
NAMES = "red green blue white black pink gold brown grey cyan lime navy".split()
FACTS, FACTS_PER_TURN, CHOICES = 4, 2, 3
TASK = "Learn the colours."
REQUEST = "Summarise."
NUM_TASKS, HELD_OUT = 4100, 100  # tasks in all, and how many of them, from 0, are held out
ACTS = FACTS // FACTS_PER_TURN + 2  # the question is answered last
COMPACT_ABOVE = 18  # tokens; the conversation with both observations has 22
PROGRAMS = {
    "summary": dict(
        function="agentgym_jax.programs.compaction:play",
        options=dict(
            compact_above=COMPACT_ABOVE, summary_tokens=16, max_compactions=1, request=REQUEST
        ),
    ),
    "dropped": dict(
        function="agentgym_jax.programs.compaction:play",
        options=dict(compact_above=COMPACT_ABOVE, summary_tokens=0, max_compactions=1),
    ),
    "full": dict(function="agentgym_jax.programs.react:play"),
}


def draw(data_idx):
    """Returns the colours of a task, and the choices at its end, of which one is such a colour."""
    rng = random.Random(data_idx)
    names = rng.sample(NAMES, FACTS + CHOICES - 1)
    return names[:FACTS], rng.sample([rng.choice(names[:FACTS]), *names[FACTS:]], CHOICES)


def question(choices):
    """Returns the text that asks which of the colours was shown."""
    return f"Which one was it: {' '.join(choices)}?"


class Recall(Environment):
    """Shows two colours after each of the first actions, and then asks."""

    def reset(self, data_idx):
        self._colours, self._choices = draw(data_idx)
        self._acts = 0
        return StepResult(TASK, reward=0, score=0, done=False)

    def step(self, action):
        self._acts += 1
        if self._acts == ACTS:
            score = float(action in self._colours and action in self._choices)
            return StepResult("The end.", reward=score, score=score, done=True)
        first = (self._acts - 1) * FACTS_PER_TURN
        colours = self._colours[first : first + FACTS_PER_TURN]
        text = " ".join(colours) if colours else question(self._choices)
        return StepResult(text, reward=0, score=0, done=False)


def make_served_environment():
    """Returns the description of the environment for the server."""
    tasks = [dict(data_idx=i, split="test" if i < HELD_OUT else "train") for i in range(NUM_TASKS)]
    return standard_environment(
        Recall,
        tasks,
        name="recall",
        version="1",
        instructions=TASK,
        max_turns=ACTS + 1,
        action_format="raw",
    )


def get_config(arg=None):
    """Returns the config.

    Options: history=summary|dropped|full; start=a run folder; file (demonstrations of the start).
    """
    opt = common.parse(arg, history="summary", start="", file="runs/recall.jsonl")
    common.check_known("history", opt.history, PROGRAMS)
    c = common.base()
    c.total_steps = 30
    c.model = bandit.tiny_policy()
    c.tokenizer = dict(
        source="train",
        vocab_size=384,
        pretokenizer_pattern="|".join([*NAMES, "next", "[A-Z][a-z ]+[.:]", "\n\n", " "]),
        template="compact",
    )
    c.env_server.transport = "inprocess"
    tasks = dict(kind="split", group_by="split", where={}, limit=0)
    c.environments = dict(
        recall=common.environment(
            module=MODULE, train=tasks | dict(split="train"), eval=tasks | dict(split="test")
        )
    )
    c.program = PROGRAMS[opt.history]
    c.pool.workers = 16
    c.sampler = dict(
        rows=32, cache_length=128, buckets=((32, 16),), decode_steps=4, return_after_finished=8
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=16, max_tokens=128)
    c.rollout.tasks_per_step = 8
    c.rollout.system_prompt_mode = "none"
    c.algorithm = bandit.algorithm("dr_grpo", length=32, critic_rate=0.0)
    c.horizon = dict(kind="fixed", turns=ACTS + 1)
    bandit.learn(c, row_length=128, micro_rows=16)
    c.evaluation = dict(every=10, at_start=True, max_turns=ACTS + 1, samples=1, greedy=False)
    c.checkpoint.every = 10
    c.sft = dict(
        steps=500,
        rows=8,
        micro_rows=8,
        row_length=256,
        weighting="token_mean",
        train_on="actions",
        too_long="error",
        bad="fatal",
        files=(opt.file,),
        demonstrations={},
        optimizer=common.warm_start_optimizer(),
    )
    if opt.start:
        bandit.start_from(c, opt.start)
    return c
