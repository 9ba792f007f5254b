r"""A run of seconds for the tests: BabyAI, bytes instead of a trained tokenizer, 20 thousand weights."""

from configs import quickstart


def get_config(arg=None):
    """Horizon 1 for two steps, then 2: a stage boundary in the middle.

    One group of tasks is told so by a schedule, the others find it by what they measured.
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
        rows=8, cache_length=512, buckets=((128, 4), (256, 4)), decode_steps=8, wake_rows=2
    )
    c.sampling.max_tokens = 512
    c.sampling.max_turn_tokens = 8
    c.learner.row_length = 512
    c.learner.row_halvings = 0  # one program instead of some
    c.learner.micro_rows = 4
    c.learner.mini_batches = 1
    # All episodes of so small a policy fail: the entropy bonus and the divergence from the warm
    # start give every step a gradient all the same.
    c.learner.min_informative_groups = 0
    c.algorithm.kl_coef = 0.1
    c.algorithm.entropy_coef = 0.01
    c.optimizer.schedule = "constant"
    c.optimizer.learning_rate = 3e-3
    # Any share of cut episodes lets the next limit come, once there were two steps.
    measured = dict(threshold=1.0, decay=0.5, min_steps=2, max_steps=0)
    c.horizon = dict(
        kind="by_group",
        each=dict(kind="adaptive_truncation", turns=(1, 2), **measured),
        groups=dict(OpenDoorLoc=dict(kind="stepwise", turns=(1, 2), boundaries=(2,))),
    )
    c.evaluation = dict(every=0, at_start=False, max_turns=1, samples=1, greedy=False)
    c.environments.babyai.eval = quickstart.tasks(0, 1, {"GoToDoor": 9})
    c.checkpoint = dict(every=1, max_to_keep=2, keep_every=0)
    return c
