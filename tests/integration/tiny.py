r"""Config of a test run that takes some seconds.

The run uses BabyAI, a small trained tokenizer and a tiny model.
"""

from configs import quickstart


def get_config(arg=None):
    """Returns a config whose turn limit is 1 for two steps and then 2.

    The horizon stage thus changes in the middle of the run. One task group has a fixed schedule;
    the other groups have adaptive limits.
    """
    c = quickstart.get_config("smoke")
    c.total_steps = 4
    c.model.architecture = dict(
        hidden_size=16,
        intermediate_size=32,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_size=8,
        rope_theta=10000.0,
        max_position=1024,
    )
    c.tokenizer.vocab_size = 420
    c.sampler = dict(
        rows=8,
        cache_length=512,
        buckets=((128, 4), (256, 4)),
        decode_steps=8,
        return_after_finished=2,
    )
    c.sampling.max_tokens = 512
    c.sampling.max_turn_tokens = 8
    c.learner.row_length = 512
    c.learner.num_row_lengths = 1  # compiles one program instead of several
    c.learner.micro_rows = 4
    c.learner.mini_batches = 1
    # All episodes of so small a policy fail. The entropy bonus and the divergence from the warm
    # start still give every step a gradient.
    c.learner.min_informative_groups = 0
    c.algorithm.kl_coef = 0.1
    c.algorithm.entropy_coef = 0.01
    c.optimizer.schedule = "constant"
    c.optimizer.learning_rate = 3e-3
    # The threshold of 1 allows the next limit after two steps for any share of truncated episodes.
    measured = dict(threshold=1.0, decay=0.5, min_steps=2, max_steps=0)
    c.horizon = dict(
        kind="by_group",
        each=dict(kind="adaptive_truncation", turns=(1, 2), **measured),
        groups=dict(OpenDoorLoc=dict(kind="stepwise", turns=(1, 2), boundaries=(2,))),
    )
    c.rollout.max_rounds = 10
    c.rollout.curriculum = dict(kind="success_rate", candidates=3, decay=0.9, prior=2.0, floor=0.05)
    c.rollout.overlong = dict(kind="none")
    c.evaluation = dict(every=0, at_start=False, max_turns=1, samples=1, greedy=False)
    c.environments.babyai.eval = quickstart.tasks(0, 1, {"GoToDoor": 9})
    c.checkpoint = dict(every=1, max_to_keep=2, keep_every=0)
    return c
