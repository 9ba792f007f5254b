"""Section `algorithm` of each algorithm, and the optimiser of most configs."""

TOKEN_MEAN = dict(mode="token_mean")


def adamw(learning_rate):
    """Returns the section of AdamW with a constant learning rate."""
    return dict(
        name="adamw",
        learning_rate=learning_rate,
        schedule="constant",
        warmup_steps=0,
        final_fraction=1.0,
        moments="float32",
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


def _unregularised(name, **changes):
    """Returns a section like that of GRPO, without entropy bonus and divergence in the loss."""
    return grpo() | dict(name=name, entropy_coef=0.0, kl_coef=0.0) | changes


def ppo(critic="separate"):
    """Returns the section of PPO (arXiv:1707.06347), with one token as an action.

    Lambda is 1 because the reward arrives at the end of the episode.

    `critic` is `separate` (a second network, initialised with the policy's weights) or `shared` (a
    head on the policy's hidden states). The learning rates are for a large model.
    """
    rate = adamw(learning_rate=1e-5)
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
    return _unregularised(
        "dr_grpo",
        advantage=dict(std_normalize=False),
        aggregation=dict(mode="fixed_length", length=length),
    )


def reinforce(length):
    """Returns the section of REINFORCE (Williams 1992).

    The baseline is a moving average of the mean returns of earlier steps.

    The loss has no ratio, so each step must have exactly one update. Set `learner.epochs` and
    `learner.mini_batches` to 1 and `rollout.max_off_policy_steps` to 0. The decay of the average is
    our own choice. Each token's weight is divided by the constant `length`, as in `dr_grpo`.
    """
    return _unregularised(
        "reinforce",
        advantage=dict(discount=1.0, turn_discount=1.0),
        loss={},
        aggregation=dict(mode="fixed_length", length=length),
        baseline=dict(kind="moving_average", decay=0.9),
    )


def reinforce_pp():
    """Returns the section of REINFORCE++ (arXiv:2501.03262).

    The KL divergence is part of the reward, and advantages are normalised over all action tokens of
    a step.

    The clip, the KL coefficient and the absence of a discount are from section 4.2.3 of the paper
    (version 2).
    """
    return _unregularised(
        "reinforce_pp",
        advantage=dict(discount=1.0, turn_discount=1.0),
        aggregation=TOKEN_MEAN,
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
    return _unregularised(
        "dapo",
        loss=dict(clip_low=0.2, clip_high=0.28),
        aggregation=TOKEN_MEAN,
        zero_variance="resample",
    )


def gspo():
    """Returns the section of GSPO (arXiv:2507.18071): one ratio per episode, with the narrow clip
    bounds of section 5.1.

    The ratio is computed against the learner's own log-probabilities. With the sampler's
    log-probabilities, rounding alone would push the ratio outside the clip bounds.
    """
    return _unregularised(
        "gspo", loss=dict(clip_low=3e-4, clip_high=4e-4), old_logprobs_from="learner"
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
    return _unregularised(
        "cispo",
        loss=dict(ratio_low=0.0, ratio_high=5.0),
        aggregation=TOKEN_MEAN,
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
    return _unregularised(
        "clip_cov",
        loss=dict(ratio_high=2.0),
        marks=dict(kind="in_range", share=2e-4, low=1.0, high=5.0),
        aggregation=TOKEN_MEAN,
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
    return _unregularised(
        "sapo",
        loss=dict(tau_positive=1.0, tau_negative=1.05),
    )


def distill():
    """Returns the section of on-policy distillation (arXiv:2306.13649, with the reverse divergence).

    The policy learns from a teacher on its own episodes. Set `reference.source` to the teacher and
    `rollout.reward` to `none`. The clip is the one of `grpo`.
    """
    return _unregularised(
        "distill",
        advantage={},
        aggregation=TOKEN_MEAN,
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
