r"""Tests that an algorithm learns a text bandit with two pulls, whose optimum is known.

  python -m agentgym_jax.train --config=configs/rl/bandit.py:algorithm=rloo --workdir=runs/bandit

Needs: no running server (the command starts one for the environment below); two CPU cores.
Result: experiments/2026-11-22_every_algorithm has three seeds of every algorithm of
docs/algorithms.md from the same warm start.
Source: we chose the environment and the sizes; the values of an algorithm are from
configs/common.py.

This file also defines the environment: `python -m agentgym_envs check configs.rl.bandit`.
"""

from typing import Any

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import ServedEnvironment, standard_environment
from agentgym_jax.configs import common

# Dictionary from the colour of the lamp to the lever that pays. The policy has to learn this
# mapping.
PAYS = {"red": "north", "green": "east", "blue": "south", "white": "west"}
LAMPS = tuple(PAYS)
LEVERS = ("north", "east", "south", "west")
PULLS = 2
NUM_TASKS = 16 * len(LAMPS) ** PULLS  # every sequence of lamp colours, on 16 machines
HELD_OUT = 3  # a task is held out if the number of its colour sequence is a multiple of 3
MODULE = "agentgym_jax.configs.rl.bandit"
RATE = 1.5e-3

INSTRUCTIONS = f"""\
A machine has {len(LEVERS)} levers ({", ".join(LEVERS)}) and a lamp. Under each colour of the lamp one lever pays, on \
every machine the same one. You have {PULLS} pulls; the lamp may change after each.

Reply in this form:
Thought: which lever pays under this lamp.
Action: the colour of the lamp and the lever to pull, such as: {LAMPS[0]} {LEVERS[1]}"""


def lamps(data_idx: int) -> list[str]:
    """Returns the colours of the lamp, one for each pull."""
    second, first = divmod(data_idx % len(LAMPS) ** PULLS, len(LAMPS))
    return [LAMPS[first], LAMPS[second]]


class Bandit(Environment):
    """Machine with a lamp that shows one colour before each pull; the task decides the colours.

    Each pull of the right lever pays 1/2, any other lever 0, so a perfect episode scores 1.
    """

    def reset(self, data_idx: int) -> StepResult:
        self._lamps = lamps(data_idx)
        self._paid: list[bool] = []
        return StepResult(f"Machine {data_idx}. {self._shown()}", reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        is_known = action in self.valid_actions()
        self._paid.append(action == self.expert_action())
        text = "It pays." if self._paid[-1] else "Nothing comes."
        if not is_known:
            text = f"No such lever: {action[:20]!r}. Nothing comes."
        is_over = len(self._paid) == PULLS
        return StepResult(
            text if is_over else f"{text} {self._shown()}",
            reward=self._paid[-1] / PULLS,
            score=sum(self._paid) / PULLS,
            done=is_over,
        )

    def _lamp(self) -> str:
        return self._lamps[min(len(self._paid), PULLS - 1)]

    def _shown(self) -> str:
        return f"The lamp is {self._lamp()}."

    def expert_action(self) -> str:
        return f"{self._lamp()} {PAYS[self._lamp()]}"

    def valid_actions(self) -> list[str]:
        return [f"{self._lamp()} {lever}" for lever in LEVERS]

    def snapshot(self) -> Any:
        return [self._lamps, self._paid]

    def restore(self, snapshot: Any) -> None:
        self._lamps, self._paid = (list(part) for part in snapshot)


def make_served_environment() -> ServedEnvironment:
    """Returns the description of the environment for the server."""
    pairs = len(LAMPS) ** PULLS
    splits = ["train" if i % pairs % HELD_OUT else "test" for i in range(NUM_TASKS)]
    tasks = [
        dict(data_idx=i, split=split, first=lamps(i)[0], second=lamps(i)[1])
        for i, split in enumerate(splits)
    ]
    return standard_environment(
        Bandit,
        tasks,
        name="bandit",
        version="1",
        instructions=INSTRUCTIONS,
        max_turns=PULLS,
        refusal="No such lever",
    )


def tiny_policy():
    """Returns a policy of some hundred thousand weights."""
    return common.random_model(
        hidden_size=64,
        intermediate_size=192,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_size=32,
        rope_theta=10000.0,
        max_position=1024,
    )


def warm_start(environment, tasks, steps, row_length, max_turns, train_on, module=""):
    """Returns the `sft` section, with which the policy imitates random valid actions.

    These demonstrations show which actions exist, but not which lever pays.
    """
    show = dict(agent="random", epsilon=0.0, max_turns=max_turns, seed=0, module=module)
    return common.imitation(
        steps=steps,
        row_length=row_length,
        train_on=train_on,
        demonstrations=dict(play=dict(environment=environment, tasks=tasks, **show)),
        optimizer=common.warm_start_optimizer(),
    )


def algorithm(name, length, critic_rate):
    """Returns the section of the named algorithm in configs/common.py.

    The suffix `_shared` of a name selects a critic that shares the policy's trunk.

    `length` is the number of action tokens in the longest episode. `critic_rate` is the critic's
    learning rate.
    """
    plain_name = name.removesuffix("_shared")
    options = {}
    if name != plain_name:
        common.check_known("algorithm with a shared critic", plain_name, ("ppo", "ppo_turn"))
        options["critic"] = "shared"
    section = common.make_algorithm(plain_name, length, **options)
    section["logprob_chunk"] = 512
    if "critic" in section:
        section["critic"]["optimizer"]["learning_rate"] = critic_rate
    return section


def learn(c, row_length, micro_rows):
    """Sets a falling learning rate and two updates per step (one for REINFORCE, whose loss has no
    ratio).
    """
    c.optimizer.learning_rate = RATE
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_steps = 6
    c.optimizer.final_fraction = 0.2
    c.learner = dict(
        row_length=row_length,
        num_row_lengths=1,
        micro_rows=micro_rows,
        epochs=1,
        mini_batches=1 if c.algorithm.name == "reinforce" else 2,
        max_logprob_gap=0.01,
        min_informative_groups=1,
    )


def start_from(c, folder):
    """Sets the weights and the tokenizer of a run folder as the start, in place of a warm start."""
    c.model.source = folder
    c.model.architecture = {}
    c.tokenizer.source = "model"
    c.tokenizer.vocab_size = 0
    c.tokenizer.pretokenizer_pattern = ""
    del c.sft


def get_config(arg=None):
    """Returns the config.

    Options: algorithm=grpo, or any other of configs/common.py; start=a run folder; smoke.
    """
    opt = common.parse(arg, algorithm="grpo", start="", smoke=False)
    c = common.base()
    c.total_steps = 45
    c.model = tiny_policy()
    c.tokenizer = dict(
        source="train",
        vocab_size=384,
        pretokenizer_pattern="|".join([*LAMPS, *LEVERS, "[0-9]", "[.]", "\n"]),
        template="compact",
    )
    tasks = dict(kind="split", group_by="first", where={}, limit=0)
    c.environments = dict(
        bandit=common.environment(
            module=MODULE,
            train=tasks | dict(split="train"),
            weights=dict.fromkeys(LAMPS, 1),  # draws every first colour equally often
            eval=tasks | dict(split="test", limit=104),
        )
    )
    c.pool.workers = 16
    c.sampler = dict(
        rows=64, cache_length=128, buckets=((16, 32),), decode_steps=4, return_after_finished=32
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=12, max_tokens=128)
    c.rollout.tasks_per_step = 8
    c.rollout.reward = "turn"
    c.rollout.system_prompt_mode = "none"
    c.algorithm = algorithm(opt.algorithm, length=16, critic_rate=RATE)
    c.horizon = dict(kind="fixed", turns=PULLS)
    learn(c, row_length=128, micro_rows=12)
    c.evaluation = dict(every=0, at_start=True, max_turns=PULLS, samples=1, greedy=True)
    c.checkpoint.every = c.total_steps
    shown = dict(kind="residues", start=0, stop=NUM_TASKS, modulus=1, groups={"bandit": 0})
    c.sft = warm_start(
        "bandit",
        shown,
        steps=200,
        row_length=512,
        max_turns=PULLS,
        train_on="text",
        module=MODULE,
    )
    if opt.start:
        start_from(c, opt.start)
    if opt.smoke:
        c.total_steps = 3
        c.optimizer.warmup_steps = 0
    return c
