r"""A tiny Qwen2.5-shaped policy learns BabyAI on a laptop CPU: warm start, RL, held-out evaluation.

  python -m agentgym_jax.train --config=configs/quickstart.py --workdir=runs/quickstart

Needs: no running server (the command starts a BabyAI server); two CPU cores, 2 GB of memory.
Result: commit bff7e9a, 212 held-out tasks, three seeds (seed 1 took 9 minutes, the others were not
timed): sampled 23-33 -> 48-59 %, greedy 23-29 -> 48-62 % (experiments/LOG.md). Other processors
give other numbers (docs/runs.md).
Source: we chose levels, tokenizer and sizes by the experiments in experiments/LOG.md.
"""

from agentgym_jax.configs import common

# Level of a task = data_idx % 40, seed of its world = data_idx // 40. In the levels of EXPERT the
# expert demonstrates how to go to the object that the goal names. RL and evaluation use LEVELS; the
# demonstrations in these levels are random valid actions.
EXPERT = {"GoToLocalS8N7": 4, "GoToDoor": 9, "GoToObjDoor": 10}
LEVELS = {"GoToRedBallGrey": 0, "OpenDoorLoc": 13, "PickupDistDebug": 19, "PickupAbove": 20}
COLOURS = "red|green|blue|purple|yellow|grey"
OBJECTS = "ball|box|key|door"


def tasks(first_seed, last_seed, levels):
    """Returns the selection of the worlds with seeds first_seed .. last_seed - 1 in the given
    levels.
    """
    return dict(
        kind="residues", start=40 * first_seed, stop=40 * last_seed, modulus=40, groups=levels
    )


def get_config(arg=None):
    """Returns the config.

    Options: smoke (one minute, learns nothing); program (an agent program plays the episodes
    through a chat endpoint, docs/agents.md; their tokens are the same).
    """
    opt = common.parse(arg, smoke=False, program=False)
    c = common.base()
    c.total_steps = 26
    c.model = common.random_model(
        hidden_size=128,
        intermediate_size=384,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_size=32,
        rope_theta=10000.0,
        max_position=1024,
    )
    c.tokenizer = dict(
        source="train",
        vocab_size=640,
        pretokenizer_pattern=rf"{COLOURS}|{OBJECTS}|[0-9]|\n|, ",
        template="compact",
    )
    c.environments = dict(
        babyai=common.environment(train=tasks(100, 1100, LEVELS), eval=tasks(0, 53, LEVELS))
    )
    c.pool.workers = 16
    c.sampler = dict(
        rows=64, cache_length=1024, buckets=((16, 32),), decode_steps=8, return_after_finished=16
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=16, max_tokens=1024)
    c.rollout.tasks_per_step = 20
    c.rollout.system_prompt_mode = "none"
    c.rollout.max_parse_errors = 1
    # Dr. GRPO (arXiv:2503.20783) does not divide by the standard deviation of a group.
    c.algorithm.advantage = dict(std_normalize=False)
    c.algorithm.loss = dict(clip_low=0.2, clip_high=0.28)
    # Each episode has the same weight, as published. With a mean over tokens, failed episodes,
    # which are longer, would outweigh the solved episodes of their group.
    c.algorithm.aggregation = dict(mode="sequence_mean")
    c.algorithm.kl_coef = 0.0
    c.algorithm.entropy_coef = 0.0
    c.algorithm.logprob_chunk = 512
    c.horizon = dict(kind="stepwise", turns=(6, 8, 10), boundaries=(12, 20))
    c.optimizer.learning_rate = 4e-4
    c.optimizer.schedule = "linear"
    c.optimizer.warmup_steps = 3
    c.optimizer.final_fraction = 0.25
    c.optimizer.b2 = 0.95
    c.learner = dict(
        row_length=1024,
        num_row_lengths=1,
        micro_rows=2,
        epochs=1,
        mini_batches=2,
        max_logprob_gap=0.01,
        min_informative_groups=3,
    )
    c.evaluation = dict(every=0, at_start=True, max_turns=12, samples=1, greedy=True)
    c.checkpoint.every = 8
    show = dict(environment="babyai", max_turns=8, seed=0)
    c.sft = common.imitation(
        steps=300,
        demonstrations=dict(
            # Random valid actions show which actions exist; RL has to find out when to use them. In
            # 3 of 10 turns the agent takes a detour, often a rejected action, which is not
            # imitated. The next turn shows a valid action after the detour.
            play=dict(agent="random", epsilon=0.3, tasks=tasks(1100, 1300, LEVELS), **show),
            # The expert shows how to go to the object that the goal names.
            expert=dict(agent="mixed", epsilon=0.3, tasks=tasks(2300, 2700, EXPERT), **show),
        ),
        optimizer=common.warm_start_optimizer(),
    )
    if opt.program:
        c.program = dict(function="agentgym_jax.programs.react:play")
    if opt.smoke:
        smoke(c)
    return c


def smoke(c):
    """Reduces the run to about a minute: fewer steps, tasks and demonstrations."""
    c.total_steps = 3
    c.horizon = dict(kind="stepwise", turns=(2, 3), boundaries=(1,))
    c.rollout.tasks_per_step = 4
    c.rollout.group_size = 4
    c.learner.min_informative_groups = 1
    c.optimizer.warmup_steps = 0
    c.environments.babyai.eval = tasks(0, 1, LEVELS)
    c.evaluation.max_turns = 3
    c.sft.steps = 3
    c.sft.optimizer.warmup_steps = 0
    c.sft.demonstrations.play.tasks = tasks(1100, 1103, LEVELS)
    c.sft.demonstrations.expert.tasks = tasks(2300, 2303, EXPERT)
