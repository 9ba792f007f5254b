"""Settings shared by the training scripts released with AgentGym-RL (arXiv:2509.08755).

Comments name the source of a value. `<env>_train.sh` means both scripts of an environment in the
repository WooooDyy/AgentGym-RL, `examples/train/AgentGym-RL/` (fixed horizon) and
`examples/train/ScalingInter-RL/`. `ppo_trainer.yaml` is in `AgentGym-RL/verl/agent_trainer/config/`
and has the defaults for values that a script does not set. Other files are in `AgentGym-RL/verl/`.

Differences from the release:

- The instructions are the system message. The release has Qwen's own system message, then the
  instructions as a user message and a fixed assistant reply.
- The release limits instructions and episode separately (`data.max_prompt_length`,
  `data.max_response_length`). Here the sum of both limits the whole episode.
- An episode whose environment failed is excluded. The release trains on it with reward 0.
- Weight decay applies to the weight matrices of the layers, in the release to all parameters.
- The release clips the KL estimate of a token to 10.
- The last tasks of an epoch, fewer than a batch, are used too. The release drops them.
- The release decodes the sampled tokens and encodes the text again before training. Here training
  uses the sampled ids.
- The release has no evaluation during training. Turn limits of held-out episodes are from
  `examples/eval/<env>_eval.sh`, with one sample at temperature 1 as in these scripts. Their token
  limits differ.
- Seeds, hardware and steps of the published runs are not published.

The lists of training ids are a separate data set of the release (AgentGym/AgentGym-RL-Data-ID) and
not part of this repository. `train=dict(kind="file", path=...)` reads a file of them.

Memory was never measured at these sizes. Float32 weights, gradient and two moments need 16 bytes
per weight, with `optimizer.moments="int8"` about 10; the reference needs 2 more. According to
`agentgym_jax.plan`, TextCraft with `size=7b` on v5p:2x2x4 needs 29.4 GiB per chip at the hand-over
of weights, 23.0 in a rollout and 17.5 in an update (docs/pods.md). It does not fit v5e:4x4 with the
mesh of this file. On several devices set `learner.micro_rows` to a multiple of the number of devices; other values are refused.
The gradient does not depend on `learner.micro_rows`.
"""

from agentgym_jax.configs import common

HUB = {"0p5b": "0.5B", "1p5b": "1.5B", "3b": "3B", "7b": "7B", "32b": "32B"}

# Slices of accelerators: name for `plan --topology`, number of chips, and for each size of the model
# that fits, `mesh.tensor`, `mesh.decode_tensor` and `sampler.rows`.
_EACH = dict.fromkeys(("0p5b", "1p5b", "3b", "7b"), (1, 1, 256))  # of most chips
CHIPS = {
    "v5e-16": ("v5e:4x4", 16, _EACH | {"3b": (1, 2, 128), "7b": (4, 4, 64)}),
    "v5p-16": ("v5p:2x2x4", 16, _EACH | {"32b": (1, 4, 128)}),
    "v5p-64": ("v5p:4x4x4", 64, _EACH | {"32b": (1, 4, 256)}),
    "v6e-16": ("v6e:4x4", 16, _EACH | {"7b": (1, 2, 128)}),
    "h100-8": ("h100:8", 8, _EACH | {"7b": (1, 1, 128), "32b": (1, 8, 64)}),
}
# Sizes whose moments must have 8 bits.
INT8_MOMENTS = {("v5e-16", "7b"), ("h100-8", "32b")}


def get_config(size, horizon, scripts, eval_turns, chips=""):
    """Returns an RL config without environments.

    Args:
      size: Size of the model. The scripts use `7b`; the paper also has results of `3b`.
      horizon: `scaling` (ScalingInter-RL) or `fixed` (AgentGym-RL).
      scripts: Dictionary from horizon to the values of the released script, as keyword arguments of
          `from_script`.
      eval_turns: `max_rounds` of `examples/eval/<env>_eval.sh`.
      chips: Key of CHIPS; empty for all devices and float32.
    """
    common.check_known("size", size, HUB)
    common.check_known("horizon", horizon, scripts)
    c = common.base()
    c.mesh = dict(data=1, fsdp=-1, tensor=1, decode_tensor=0)
    # <env>_train.sh: pure_agent_model_name
    c.model.source = f"Qwen/Qwen2.5-{HUB[size]}-Instruct"
    c.algorithm = grpo()
    c.optimizer = adamw()
    c.rollout.reward = "success"
    # vllm_rollout.py: a truncated episode keeps the reward of its last step
    c.rollout.truncation = "fail"
    # workers/rollout/agent_vllm_rollout/vllm_rollout.py: parse errors never end an episode.
    c.rollout.max_parse_errors = 1000
    # <env>_train.sh sets actor.ppo_epochs to up to 2, but the release never reads the value.
    c.learner.epochs = 1
    c.algorithm.old_logprobs_from = "learner"  # ppo/ray_trainer.py: old_log_probs from the actor
    c.learner.min_informative_groups = 0  # ppo/ray_trainer.py never skips an update.
    c.checkpoint.every = 25  # <env>_train.sh: trainer.save_freq
    c.evaluation = dict(every=25, at_start=True, max_turns=eval_turns, samples=1, greedy=False)
    from_script(c, **scripts[horizon])
    if chips:
        fit_chips(c, size, chips)
    return c


def fit_chips(c, size, chips):
    """Sets mesh, types and batch sizes with which a model fits a slice, according to `plan`.

    Each group of `mesh.tensor` chips has one row of a micro-batch. All weights are divided over all
    chips.
    """
    common.check_known("chips", chips, CHIPS)
    _, count, sizes = CHIPS[chips]
    common.check_known(f"size for chips={chips}", size, sizes)
    tensor, decode_tensor, rows = sizes[size]
    c.mesh = dict(data=1, fsdp=count // tensor, tensor=tensor, decode_tensor=decode_tensor)
    c.model.dtype = c.model.decode_dtype = "bfloat16"
    c.model.remat = "block"
    c.learner.micro_rows = count // tensor
    c.sampler.rows = rows
    if (chips, size) in INT8_MOMENTS:
        c.optimizer.moments = "int8"


def from_script(c, *, turns, period, tasks, samples, mini_batch, tokens, turn_tokens, steps):
    """Writes the values of one script into the config.

    Args:
      c: Config to change.
      turns: `algorithm.rounds_ctrl.rounds`.
      period: `algorithm.rounds_ctrl.steps_scaling_inter`; None for a fixed horizon.
      tasks: `data.train_batch_size`.
      samples: `actor_rollout_ref.rollout.n`.
      mini_batch: `actor_rollout_ref.actor.ppo_mini_batch_size`, in tasks.
      tokens: `data.max_prompt_length + data.max_response_length`.
      turn_tokens: `actor_rollout_ref.rollout.max_tokens`.
      steps: `trainer.total_epochs * (number of training ids // data.train_batch_size)`.
    """
    c.total_steps = steps
    if period is None:
        c.horizon = dict(kind="fixed", turns=turns)
    else:
        c.horizon = dict(kind="periodic", turns=turns, period=period)
    c.rollout.tasks_per_step = tasks
    c.rollout.group_size = samples
    c.learner.mini_batches = tasks // mini_batch
    # ppo_trainer.yaml: rollout.temperature, top_k (-1 is off), top_p
    c.sampling = dict(
        temperature=1.0, top_k=0, top_p=1.0, max_turn_tokens=turn_tokens, max_tokens=tokens
    )
    c.sampler.cache_length = tokens
    c.learner.row_length = tokens


def grpo():
    """Returns the objective of all scripts: `algorithm.adv_estimator=grpo`."""
    return common.grpo() | dict(
        advantage=dict(std_normalize=True, eps=1e-6),  # ppo/core_algos.py
        loss=dict(clip_low=0.2, clip_high=0.2),  # ppo_trainer.yaml: actor.clip_ratio
        # <env>_train.sh: ppo_micro_batch_size_per_gpu=1. agent_actor/dp_actor.py averages the
        # tokens of a micro-batch, so every episode has the same weight.
        aggregation=dict(mode="sequence_mean"),
        entropy_coef=1e-3,  # ppo_trainer.yaml: actor.entropy_coeff
        kl_coef=1e-3,  # <env>_train.sh: actor.kl_loss_coef
        kl_kind="k3",  # <env>_train.sh: actor.kl_loss_type=low_var_kl
        kl_reward=dict(kind="none"),  # <env>_train.sh: actor.use_kl_loss=True
        correction=dict(kind="none"),  # agent_actor/dp_actor.py
    )


def adamw():
    """Returns the optimiser of all scripts."""
    return dict(
        name="adamw",  # workers/agent_fsdp_workers.py
        learning_rate=1e-6,  # <env>_train.sh: policy_learning_rate
        schedule="constant",  # ppo_trainer.yaml: actor.optim.warmup_style
        warmup_steps=0,  # ppo_trainer.yaml: actor.optim.lr_warmup_steps_ratio
        final_fraction=1.0,
        moments="float32",  # PyTorch's default
        b1=0.9,  # workers/agent_fsdp_workers.py: betas
        b2=0.999,
        eps=1e-8,  # PyTorch's default
        weight_decay=1e-2,  # workers/agent_fsdp_workers.py
        max_grad_norm=1.0,  # ppo_trainer.yaml: actor.grad_clip
    )
