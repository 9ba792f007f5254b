"""What the configs share. A config file is flat: everything a run uses stands in it or here."""

import difflib

import ml_collections

from agentgym_jax.run.sections import ConfigError

TOKEN_MEAN = dict(mode="token_mean")


def parse(arg, known=None, **defaults):
    """`size=7b,smoke` -> attributes, typed like the defaults; a bare name is True.

    Args:
      arg: Text after the colon of `--config=FILE:OPTIONS`; None for none.
      known: Option -> values that it may have; options that are not named take any.
      defaults: Options of the config file with their defaults.
    """
    values = dict(defaults)
    for item in filter(None, (arg or "").split(",")):
        name, is_given, text = item.partition("=")
        check_known("config option", name, defaults)
        kind = type(defaults[name])
        if kind is bool:
            check_known(f"value of {name}", text if is_given else "true", ("true", "false"))
            values[name] = text != "false"
            continue
        try:
            values[name] = kind(text)
        except ValueError:
            raise ConfigError(f"config option {name}={text}: expected a whole number") from None
        if known is not None and name in known:
            check_known(name, text, known[name])
    return ml_collections.ConfigDict(values)


def check_known(what, name, known):
    """Raises ConfigError unless a name is one of those known."""
    if name not in known:
        nearest = difflib.get_close_matches(name, list(known), n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
        raise ConfigError(f"unknown {what} {name!r}{hint} Known: {', '.join(known)}")


def base():
    """A config of job `rl` with every section; files overwrite what is theirs."""
    c = ml_collections.ConfigDict()
    c.job = "rl"
    c.seed = 0
    c.total_steps = 100
    c.loggers = "none"  # or tensorboard, wandb, mlflow, trackio, several joined by +
    c.model = dict(
        source="", architecture={}, dtype="bfloat16", decode_dtype="bfloat16", remat="block"
    )
    c.tokenizer = dict(source="model", vocab_size=0, isolate="", template="chatml")
    c.mesh = dict(data=1, fsdp=1, tensor=1)
    c.env = dict(transport="http", workers=1)
    c.environments = {}
    c.client = dict(connect_timeout_s=10.0, step_timeout_s=60.0)
    c.pool = dict(workers=32, max_idle_sessions=256, breaker_patience_s=60.0)
    c.sampler = dict(
        rows=64,
        decode_rows=0,
        cache_length=4096,
        buckets=((64, 16), (256, 8), (1024, 2)),
        decode_steps=16,
        wake_rows=4,
    )
    c.sampling = dict(temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=256, max_tokens=4096)
    c.rollout = dict(
        tasks_per_step=16,
        group_size=8,
        max_rounds=10,
        lag=0,
        max_invalid_actions=3,
        max_attempts=3,
        max_replacements=1,
        prefetch=16,
        reward="success",
        wasted_turn_penalty=0.0,
        unreadable_turn_penalty=0.0,
        overlong=dict(kind="none"),
        truncation="fail",
        opening="system",
        tell_budget="none",
    )
    c.algorithm = grpo()
    c.horizon = dict(kind="fixed", turns=20)
    # AdamW at a constant 1e-6: the scripts released with AgentGym-RL (arXiv:2509.08755).
    c.optimizer = dict(
        name="adamw",
        learning_rate=1e-6,
        schedule="constant",
        warmup_steps=0,
        final_fraction=1.0,
        b1=0.9,
        b2=0.999,
        eps=1e-8,
        weight_decay=0.0,
        max_grad_norm=1.0,
    )
    c.learner = dict(
        row_length=4096,
        row_halvings=3,
        micro_rows=1,
        epochs=1,
        mini_batches=1,
        max_logprob_gap=0.1,
        min_informative_groups=1,
    )
    c.evaluation = dict(every=10, at_start=True, max_turns=20, samples=1, greedy=False)
    c.checkpoint = dict(every=10, max_to_keep=2, keep_every=0)
    c.guards = guards()
    c.sft = {}
    return c


def guards():
    """What is done about numbers that go wrong: off, warn, skip (the update) or stop (docs/runs.md).

    The thresholds are our choice: far outside what the runs in experiments/ that learned have shown.
    """
    return dict(
        window=10,
        nonfinite="skip",
        nonfinite_steps=3,
        grad_spike="warn",
        grad_spike_factor=10.0,
        logprob_gap="stop",  # beyond learner.max_logprob_gap
        entropy_collapse="warn",
        entropy_floor=0.01,
        reward_collapse="warn",
        reward_drop=0.5,
    )


def environment(**entry):
    """An entry of `environments` that is like any other but for what is given."""
    default = dict(
        url="",
        module="",
        options={},
        train={},
        weight=1,
        weights={},
        horizon={},
        eval_max_turns=0,
        instructions="",
        action_format="",  # react_or_bare also takes an action without `Action:`
    )
    return default | entry


def mixed_turns(weights):
    """A horizon under which every task draws one of some turn limits: turns -> how often."""
    return dict(
        kind="mixed",
        schedules={f"{turns} turns": dict(kind="fixed", turns=turns) for turns in weights},
        weights={f"{turns} turns": weight for turns, weight in weights.items()},
    )


def grpo():
    """GRPO (arXiv:2402.03300): every episode counts the same, whatever its length.

    Clip 0.2, k3 1e-3 and entropy 1e-3 are those of AgentGym-RL's released scripts. The functions
    below that replace its aggregation by a mean over tokens follow their own papers or
    implementations (docs/algorithms.md).
    """
    return dict(
        name="grpo",
        advantage=dict(std_normalize=True, eps=1e-6),
        loss=dict(clip_low=0.2, clip_high=0.2),
        aggregation=dict(mode="sequence_mean"),
        entropy_coef=1e-3,
        kl_coef=1e-3,
        kl_kind="k3",
        kl_reward=dict(kind="none"),
        correction=dict(kind="none"),
        zero_variance="keep",
        baseline=dict(kind="none"),
        critic=dict(kind="none"),
        ratio_against="sampler",
        logprob_chunk=128,
    )


def warm_start_optimizer():
    """Muon for some hundred steps of imitation by a policy of less than a million weights."""
    return dict(
        name="muon",
        learning_rate=0.02,
        adam_learning_rate=3e-3,
        schedule="cosine",
        warmup_steps=5,
        final_fraction=0.05,
        b1=0.9,
        b2=0.95,
        eps=1e-8,
        weight_decay=0.0,
        max_grad_norm=1.0,
    )


def ppo(critic="separate"):
    """PPO (arXiv:1707.06347) with a token as action; lambda 1 because an episode is paid at its end.

    `critic` is `separate` (a network of its own that starts as the policy) or `shared` (a head on
    the policy's hidden states). Learning rates are those of a large model.
    """
    rate = dict(base()["optimizer"], learning_rate=1e-5)
    kinds = dict(
        separate=dict(kind="separate", clip=0.2, warmup_steps=0, optimizer=rate),
        shared=dict(kind="shared", clip=0.2, coef=0.1, optimizer=rate),
    )
    advantage = dict(discount=1.0, turn_discount=1.0, gae_lambda=1.0, normalize=True, eps=1e-8)
    return grpo() | dict(
        name="ppo", advantage=advantage, aggregation=TOKEN_MEAN, critic=kinds[critic]
    )


def ppo_turn(critic="separate"):
    """PPO with a turn as action: advantages and returns from turn to turn, lambda 0.95."""
    advantage = dict(turn_discount=1.0, gae_lambda=0.95, normalize=True, eps=1e-8)
    return ppo(critic) | dict(name="ppo_turn", advantage=advantage)


def rloo(length):
    """RLOO (arXiv:2402.14740), regularised as `grpo` is.

    An episode is one action, so its log-probability is a sum over tokens: no length in the
    denominator. `length` is the constant that a token's weight is divided by, as in `dr_grpo`.
    """
    return grpo() | dict(
        name="rloo", advantage={}, aggregation=dict(mode="fixed_length", length=length)
    )


def dr_grpo(length):
    """Dr. GRPO (arXiv:2503.20783): no deviation, no length in the denominator, no reference.

    `length` is what an action token's weight is divided by: the longest episode, in tokens.
    """
    return grpo() | dict(
        name="dr_grpo",
        advantage=dict(std_normalize=False, eps=1e-6),
        aggregation=dict(mode="fixed_length", length=length),
        entropy_coef=0.0,
        kl_coef=0.0,
    )


def reinforce(length):
    """REINFORCE (Williams 1992) against a moving average of the mean return of earlier steps.

    The loss has no ratio, so it needs one update per step: `learner.epochs` and
    `learner.mini_batches` 1, `rollout.lag` 0. The decay is our choice. `length` is the constant
    that a token's weight is divided by, as in `dr_grpo`.
    """
    return grpo() | dict(
        name="reinforce",
        advantage=dict(discount=1.0, turn_discount=1.0),
        loss={},
        aggregation=dict(mode="fixed_length", length=length),
        entropy_coef=0.0,
        kl_coef=0.0,
        baseline=dict(kind="moving_average", decay=0.9),
    )


def reinforce_pp():
    """REINFORCE++ (arXiv:2501.03262): divergence in the reward, normalised over the step.

    Clip, coefficient and no discount are those of its section 4.2.3 (version 2).
    """
    return grpo() | dict(
        name="reinforce_pp",
        advantage=dict(discount=1.0, turn_discount=1.0, eps=1e-8),
        aggregation=TOKEN_MEAN,
        entropy_coef=0.0,
        kl_coef=0.0,
        kl_reward=dict(kind="fixed", coef=1e-3),
    )


def reinforce_pp_baseline():
    """REINFORCE++ with baseline (arXiv:2501.03262): mean of the group, deviation of the step.

    The k2 loss is its own, the coefficient ours.
    """
    return grpo() | dict(
        name="reinforce_pp_baseline",
        advantage=dict(eps=1e-8),
        aggregation=TOKEN_MEAN,
        entropy_coef=0.0,
        kl_coef=1e-3,
        kl_kind="k2",
    )


def dapo():
    """DAPO (arXiv:2503.14476): clip-higher, mean over tokens, groups without variance replaced.

    Episodes are collected until `rollout.tasks_per_step` groups have variance, in at most
    `rollout.max_rounds` rounds; `zero_variance="filter"` takes one round and trains on what is left.
    Its overlong shaping is `rollout.overlong`, with limits that depend on the environment.
    """
    return grpo() | dict(
        name="dapo",
        loss=dict(clip_low=0.2, clip_high=0.28),
        aggregation=TOKEN_MEAN,
        entropy_coef=0.0,
        kl_coef=0.0,
        zero_variance="resample",
    )


def gspo():
    """GSPO (arXiv:2507.18071): one ratio per episode, with the narrow bounds of section 5.1.

    The ratio is against the learner's own log-probabilities: against the sampler's, rounding alone
    would leave the bounds.
    """
    return grpo() | dict(
        name="gspo",
        loss=dict(clip_low=3e-4, clip_high=4e-4),
        aggregation=dict(mode="sequence_mean"),
        ratio_against="learner",
        entropy_coef=0.0,
        kl_coef=0.0,
    )


def gspo_token():
    """GSPO-token (arXiv:2507.18071) with the advantages of `gigpo`, which differ between turns."""
    return gspo() | dict(name="gspo_token", advantage=gigpo()["advantage"])


def cispo():
    """CISPO (arXiv:2506.13585): the weight is bounded, no token loses its gradient.

    The paper has no lower bound and does not state the upper one; 5 is what trl recommends, after
    ScaleRL (arXiv:2510.13786).
    """
    return grpo() | dict(
        name="cispo",
        loss=dict(ratio_low=0.0, ratio_high=5.0),
        aggregation=TOKEN_MEAN,
        entropy_coef=0.0,
        kl_coef=0.0,
    )


def gigpo():
    """GiGPO (arXiv:2505.10978): turns from equal states are compared as well.

    Weight 1, discount 0.95 and divergence 1e-2 are those of its appendix E.1 for ALFWorld and
    WebShop; clip and entropy are those of `grpo`.
    """
    return grpo() | dict(
        name="gigpo",
        advantage=dict(step_weight=1.0, turn_discount=0.95, std_normalize=True, eps=1e-6),
        aggregation=TOKEN_MEAN,
        kl_coef=1e-2,
    )


# Name of an algorithm to the function that makes its section.
ALGORITHMS = {
    make.__name__: make
    for make in (
        ppo,
        ppo_turn,
        grpo,
        dr_grpo,
        rloo,
        reinforce,
        reinforce_pp,
        reinforce_pp_baseline,
        dapo,
        gspo,
        gspo_token,
        cispo,
        gigpo,
    )
}


def evaluation_base():
    """A config for `evaluate`: the sections of `base` that scoring needs. The model is a flag."""
    c = base()
    for name in (
        "job",
        "total_steps",
        "loggers",
        "algorithm",
        "horizon",
        "optimizer",
        "learner",
        "checkpoint",
        "guards",
        "sft",
    ):
        del c[name]
    c.endpoint = dict(
        model="",
        key_variable="OPENAI_API_KEY",
        workers=16,
        connect_timeout_s=10.0,
        timeout_s=300.0,
        patience_s=600.0,
        send_seed=True,
        max_tokens_field="max_tokens",
    )
    return c


def tiny_model():
    """A policy of some ten thousand weights that needs no download, for smoke variants."""
    architecture = dict(
        hidden_size=32,
        intermediate_size=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_size=16,
        max_position=32768,
    )
    return dict(
        source="random",
        architecture=architecture,
        dtype="float32",
        decode_dtype="float32",
        remat="none",
    )


def smoke(c):
    """Turns an RL config into a minute on a CPU: tiny random policy, bytes, two steps."""
    c.model = tiny_model()
    c.tokenizer.source = "bytes"
    c.mesh = dict(data=1, fsdp=1, tensor=1)
    c.total_steps = 2
    for entry in c.environments.values():
        entry.eval.limit = 2
        entry.horizon = {}
        entry.eval_max_turns = 0
    c.rollout.tasks_per_step = 4
    c.rollout.group_size = 2
    c.rollout.max_invalid_actions = 1
    c.learner.mini_batches = 2
    c.learner.row_halvings = 0  # one program instead of some
    c.learner.min_informative_groups = 0
    c.sampling.max_turn_tokens = 8
    c.evaluation.max_turns = 1
    c.horizon = dict(kind="fixed", turns=2)
