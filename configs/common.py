"""Functions and default sections shared by the configs.

Every value of a run is written in its config file or in this module.
"""

import difflib
import inspect

import ml_collections

from agentgym_jax.config.sections import ConfigError

TOKEN_MEAN = dict(mode="token_mean")


def parse(arg, known=None, **defaults):
    """Parses `size=7b,smoke` into attributes with the types of the defaults.

    An option without a value is True.

    Args:
      arg: Text after the colon of `--config=FILE:OPTIONS`, or None.
      known: Dictionary from option to allowed values. Options without an entry accept any value.
      defaults: Options of the config file with their default values.
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
    """Raises ConfigError if a name is not one of the known names."""
    if name not in known:
        nearest = difflib.get_close_matches(name, list(known), n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
        raise ConfigError(f"unknown {what} {name!r}{hint} Known: {', '.join(known)}")


def base():
    """Returns a config of job `rl` with every section. Config files overwrite its values."""
    c = ml_collections.ConfigDict()
    c.job = "rl"
    c.seed = 0
    c.total_steps = 100
    c.loggers = "none"  # alternatives: tensorboard, wandb, mlflow, trackio, or several joined by +
    c.model = dict(
        source="", dtype="bfloat16", decode_dtype="bfloat16", remat="block", lora=lora(0)
    )
    c.tokenizer = dict(source="model")
    c.mesh = dict(data=1, fsdp=1, tensor=1, decode_tensor=0)
    c.env_server = dict(transport="http", workers=1)
    c.environments = {}
    c.client = dict(step_timeout_s=60.0)
    c.pool = dict(workers=32)
    c.sampler = dict(
        rows=64,
        cache_length=4096,
        buckets=(),
        decode_steps=16,
        return_after_finished=4,
    )
    c.sampling = dict(temperature=1.0, max_turn_tokens=256, max_tokens=4096)
    c.rollout = dict(
        tasks_per_step=16,
        group_size=8,
        max_off_policy_steps=0,
        max_parse_errors=3,
        reward="success",
        failed_turn_penalty=0.0,
        system_prompt_mode="system",
        show_turn_budget="none",
    )
    c.algorithm = grpo()
    c.horizon = dict(kind="fixed", turns=20)
    # AdamW at a constant 1e-6, as in the scripts released with AgentGym-RL (arXiv:2509.08755).
    c.optimizer = dict(
        name="adamw",
        learning_rate=1e-6,
        schedule="constant",
        warmup_steps=0,
        final_fraction=1.0,
        moments="float32",
    )
    c.learner = dict(
        row_length=4096,
        micro_rows=1,
        epochs=1,
        mini_batches=1,
        max_logprob_gap=0.1,
        min_informative_groups=1,
    )
    c.evaluation = dict(every=10, at_start=True, max_turns=20, samples=1, greedy=False)
    c.checkpoint = dict(every=10)
    c.guards = "default"  # changes have the form grad_spike=skip,window=20
    return c


def lora(rank, alpha=0.0, targets=("q", "k", "v", "o", "gate", "up", "down"), decode="merged"):
    """Returns the section `model.lora`, by default of adapters of all kernels with a scale of 2.

    Without adapters the rank is 0, so that the flag --config.model.lora.rank=16 adds them.
    """
    return dict(rank=rank, alpha=alpha, targets=targets, decode=decode)


def environment(**entry):
    """Returns an entry of `environments`; values that are not given are the defaults."""
    default = dict(
        url="",
        protocol="",
        module="",
        options={},
        train={},
        weight=1,
        weights={},
        horizon={},
        eval_max_turns=0,
        instructions="",
        action_format="",  # react_or_bare also accepts an action without `Action:`
        success_score=0.0,
    )
    return default | entry


def mixed_turns(weights):
    """Returns a horizon that draws a turn limit for every task.

    `weights` maps turn limits to frequencies.
    """
    return dict(
        kind="mixed",
        schedules={f"{turns} turns": dict(kind="fixed", turns=turns) for turns in weights},
        weights={f"{turns} turns": weight for turns, weight in weights.items()},
    )


def grpo():
    """Returns the section of GRPO (arXiv:2402.03300).

    Every episode has the same weight in the loss, regardless of its length.

    Clip 0.2, k3 coefficient 1e-3 and entropy coefficient 1e-3 are from AgentGym-RL's released
    scripts. The functions below that use a mean over tokens follow their own papers or
    implementations (docs/algorithms.md). A clip has an effect only if one batch is used for several
    optimiser steps. Estimators that were published without a clip therefore have one too.
    """
    return dict(
        name="grpo",
        advantage=dict(std_normalize=True),
        loss=dict(clip_low=0.2, clip_high=0.2),
        aggregation=dict(mode="sequence_mean"),
        entropy_coef=1e-3,
        kl_coef=1e-3,
        zero_variance="keep",
        old_logprobs_from="sampler",
        logprob_chunk=128,
    )


def warm_start_optimizer():
    """Returns Muon settings for some hundred imitation steps of a policy with less than a million
    weights.
    """
    return dict(
        name="muon",
        learning_rate=0.02,
        adam_learning_rate=3e-3,
        schedule="cosine",
        warmup_steps=5,
        final_fraction=0.05,
        moments="float32",
        b2=0.95,
    )


def ppo(critic="separate"):
    """Returns the section of PPO (arXiv:1707.06347), with one token as an action.

    Lambda is 1 because the reward arrives at the end of the episode.

    `critic` is `separate` (a second network, initialised with the policy's weights) or `shared` (a
    head on the policy's hidden states). The learning rates are for a large model.
    """
    rate = dict(base()["optimizer"], learning_rate=1e-5)
    kinds = dict(
        separate=dict(kind="separate", clip=0.2, warmup_steps=0, optimizer=rate),
        shared=dict(kind="shared", clip=0.2, coef=0.1, optimizer=rate),
    )
    advantage = dict(discount=1.0, turn_discount=1.0, gae_lambda=1.0, normalize=True)
    return grpo() | dict(
        name="ppo", advantage=advantage, aggregation=TOKEN_MEAN, critic=kinds[critic]
    )


def ppo_turn(critic="separate"):
    """Returns the section of turn-level PPO: advantages and returns are computed per turn, with
    lambda 0.95.
    """
    advantage = dict(turn_discount=1.0, gae_lambda=0.95, normalize=True)
    return ppo(critic) | dict(name="ppo_turn", advantage=advantage)


def rloo(length):
    """Returns the section of RLOO (arXiv:2402.14740), regularised like `grpo`.

    An episode is one action, so its log-probability is the sum over its tokens, not their mean.
    Each token's weight is divided by the constant `length`, as in `dr_grpo`.
    """
    return grpo() | dict(
        name="rloo", advantage={}, aggregation=dict(mode="fixed_length", length=length)
    )


def dr_grpo(length):
    """Returns the section of Dr. GRPO (arXiv:2503.20783), which uses no reference policy.

    The advantage is not divided by the standard deviation, and the loss is not divided by the
    episode's length.

    The weight of an action token is divided by `length`, the number of tokens in the longest
    episode.
    """
    return grpo() | dict(
        name="dr_grpo",
        advantage=dict(std_normalize=False),
        aggregation=dict(mode="fixed_length", length=length),
        entropy_coef=0.0,
        kl_coef=0.0,
    )


def reinforce(length):
    """Returns the section of REINFORCE (Williams 1992).

    The baseline is a moving average of the mean returns of earlier steps.

    The loss has no ratio, so each step must have exactly one update. Set `learner.epochs` and
    `learner.mini_batches` to 1 and `rollout.max_off_policy_steps` to 0. The decay of the average is
    our own choice. Each token's weight is divided by the constant `length`, as in `dr_grpo`.
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
    """Returns the section of REINFORCE++ (arXiv:2501.03262).

    The KL divergence is part of the reward, and advantages are normalised over all action tokens of
    a step.

    The clip, the KL coefficient and the absence of a discount are from section 4.2.3 of the paper
    (version 2).
    """
    return grpo() | dict(
        name="reinforce_pp",
        advantage=dict(discount=1.0, turn_discount=1.0),
        aggregation=TOKEN_MEAN,
        entropy_coef=0.0,
        kl_coef=0.0,
        kl_reward=dict(kind="fixed", coef=1e-3),
    )


def reinforce_pp_baseline():
    """Returns the section of REINFORCE++ with baseline (arXiv:2501.03262).

    The advantage is the return minus the group's mean, divided by the standard deviation over the
    step.

    The k2 loss is from the paper. The coefficient is our own choice.
    """
    return grpo() | dict(
        name="reinforce_pp_baseline",
        advantage={},
        aggregation=TOKEN_MEAN,
        entropy_coef=0.0,
        kl_coef=1e-3,
        kl_kind="k2",
    )


def dapo():
    """Returns the section of DAPO (arXiv:2503.14476): a higher upper clip bound, a mean over
    tokens, and replacement of groups without variance.

    Sampling continues until `rollout.tasks_per_step` groups have variance, for at most
    `rollout.max_rounds` rounds. With `zero_variance="filter"` there is one round, and training uses
    only the groups with variance. DAPO's overlong shaping is `rollout.overlong`; its limits depend
    on the environment.
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
    """Returns the section of GSPO (arXiv:2507.18071): one ratio per episode, with the narrow clip
    bounds of section 5.1.

    The ratio is computed against the learner's own log-probabilities. With the sampler's
    log-probabilities, rounding alone would push the ratio outside the clip bounds.
    """
    return grpo() | dict(
        name="gspo",
        loss=dict(clip_low=3e-4, clip_high=4e-4),
        aggregation=dict(mode="sequence_mean"),
        old_logprobs_from="learner",
        entropy_coef=0.0,
        kl_coef=0.0,
    )


def gspo_token():
    """Returns the section of GSPO-token (arXiv:2507.18071).

    The advantages are computed as in `gigpo` and differ between turns.
    """
    return gspo() | dict(name="gspo_token", advantage=gigpo()["advantage"])


def cispo():
    """Returns the section of CISPO (arXiv:2506.13585).

    The importance weight is bounded, and no token loses its gradient.

    The paper has no lower bound and does not state the upper bound. The value 5 is trl's
    recommendation, which follows ScaleRL (arXiv:2510.13786).
    """
    return grpo() | dict(
        name="cispo",
        loss=dict(ratio_low=0.0, ratio_high=5.0),
        aggregation=TOKEN_MEAN,
        entropy_coef=0.0,
        kl_coef=0.0,
    )


def gigpo():
    """Returns the section of GiGPO (arXiv:2505.10978).

    The advantage also compares turns of a group that start from equal states.

    Weight 1, discount 0.95 and KL coefficient 1e-2 are from the paper's appendix E.1 for ALFWorld
    and WebShop. Clip and entropy coefficient are the same as in `grpo`.
    """
    return grpo() | dict(
        name="gigpo",
        advantage=dict(step_weight=1.0, turn_discount=0.95, std_normalize=True),
        aggregation=TOKEN_MEAN,
        kl_coef=1e-2,
    )


def clip_cov():
    """Returns the section of Clip-Cov (arXiv:2505.22617).

    A few tokens with a high covariance of log-probability and advantage get no gradient, so that the
    entropy falls more slowly. Share, range and the bound 2 of the ratio are from the paper's
    released scripts.
    """
    return grpo() | dict(
        name="clip_cov",
        loss=dict(ratio_high=2.0),
        marks=dict(kind="in_range", share=2e-4, low=1.0, high=5.0),
        aggregation=TOKEN_MEAN,
        entropy_coef=0.0,
        kl_coef=0.0,
    )


def kl_cov():
    """Returns the section of KL-Cov (arXiv:2505.22617).

    The tokens with the highest covariances are held near the policy before the step. Share and
    weight are those of the paper for its 7B model.
    """
    return clip_cov() | dict(
        name="kl_cov", loss=dict(penalty=1.0), marks=dict(kind="largest", share=2e-3)
    )


def sapo():
    """Returns the section of SAPO (arXiv:2511.20347): a soft gate in place of the clip.

    The temperatures are the paper's.
    """
    return grpo() | dict(
        name="sapo",
        loss=dict(tau_positive=1.0, tau_negative=1.05),
        entropy_coef=0.0,
        kl_coef=0.0,
    )


def distill():
    """Returns the section of on-policy distillation (arXiv:2306.13649, with the reverse divergence).

    The policy learns from a teacher on its own episodes. Set `reference.source` to the teacher and
    `rollout.reward` to `none`. The clip is the one of `grpo`.
    """
    return grpo() | dict(
        name="distill",
        advantage={},
        aggregation=TOKEN_MEAN,
        entropy_coef=0.0,
        kl_coef=0.0,
        kl_reward=dict(kind="fixed", coef=1.0),
    )


# Dictionary from the name of an algorithm to the function that returns its section.
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
        clip_cov,
        kl_cov,
        sapo,
        distill,
    )
}


def make_algorithm(name, length, **options):
    """Returns the section of the named algorithm.

    Args:
      name: Key of ALGORITHMS.
      length: Constant by which some algorithms divide the token weights. The other algorithms
          ignore it.
      **options: Further arguments of the function that returns the section.
    """
    check_known("algorithm", name, ALGORITHMS)
    make = ALGORITHMS[name]
    if "length" in inspect.signature(make).parameters:
        options["length"] = length
    return make(**options)


def evaluation_base():
    """Returns a config for `evaluate`: the sections of `base` that scoring needs.

    The model is not part of the config; the flag `--model` selects it.
    """
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
    """Returns a model of some ten thousand weights for smoke variants; nothing is downloaded."""
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
        lora=lora(0),
    )


def smoke(c):
    """Reduces an RL config to about a minute on a CPU: a tiny random policy, a byte tokenizer and
    two steps.
    """
    c.model = tiny_model()
    c.tokenizer.source = "bytes"
    c.mesh = dict(data=1, fsdp=1, tensor=1, decode_tensor=0)
    c.total_steps = 2
    for entry in c.environments.values():
        if "limit" in entry.eval:
            entry.eval.limit = 2
        entry.horizon = {}
        entry.eval_max_turns = 0
    c.rollout.tasks_per_step = 4
    c.rollout.group_size = 2
    c.rollout.max_parse_errors = 1
    c.learner.mini_batches = 2
    c.learner.num_row_lengths = 1  # a single compiled program
    c.learner.min_informative_groups = 0
    c.sampling.max_turn_tokens = 8
    c.evaluation.max_turns = 1
    c.horizon = dict(kind="fixed", turns=2)
