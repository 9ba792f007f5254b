"""Writes verl.json, trl.json and rlax.json: results of other implementations for fixed inputs.

The functions of the libraries are called directly. Methods of a trainer class are called with a
mock as the trainer, whose network returns stored log-probabilities. All libraries except rlax
compute in float64.
To run the script, install the libraries with torch, transformers and jax in a separate environment:

    pip install --no-deps verl==0.9.1 trl==1.16.0 rlax==0.1.9 accelerate==1.15.0 datasets==5.2.0 \
        tensordict==0.15.3 omegaconf==2.4.0 hydra-core==1.3.8 antlr4-python3-runtime==4.9.3 \
        ray==2.60.0 distrax==0.1.9 tfp-nightly dm-tree dm-env six decorator wrapt attrs pyvers \
        orjson codetiming pandas pyarrow multiprocess dill xxhash
    pip install --no-deps --target OLD trl==0.11.4  # the last version that has PPO as functions
    python tests/golden/algorithms/make_peers.py OLD
"""

import ast
import importlib.metadata
import json
import pathlib
import sys
import types
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import rlax
import torch
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.workers.config import ActorConfig

GROUP, B, T = 4, 12, 8
HERE = pathlib.Path(__file__).parent
GAE = {"monte_carlo": (1.0, 1.0), "discounted": (0.99, 0.95)}


def example():
    """Returns twelve episodes in groups of four, whose rewards are on action tokens."""
    rng = np.random.default_rng(7)
    mask = np.zeros((B, T))
    rewards = np.zeros((B, T))
    for b in range(B):
        mask[b, : rng.integers(3, T + 1)] = 1
        if b % 3:
            mask[b, 1] = 0  # an observation separates two turns
        rewards[b, int(np.nonzero(mask[b])[0][-1])] = np.round(rng.random(), 3)
        rewards[b, 0] += 0.25 * (b % 2)
    old = rng.normal(-2.0, 0.7, (B, T))
    # The ratios of half of the episodes are close to 1, so that GSPO's narrow bounds clip only some
    # tokens.
    size = np.where(np.arange(B) % 2, 0.5, 1e-4)[:, None]
    old_values = rng.normal(0.0, 0.5, (B, T))
    arrays = {
        "rewards": rewards,
        "mask": mask,
        "old_logprobs": old,
        "logprobs": old + size * rng.normal(0, 1, (B, T)),
        "reference_logprobs": old + 0.4 * rng.normal(0, 1, (B, T)),
        "token_advantages": rng.normal(0, 1, (B, T)),
        "episode_advantages": rng.normal(0, 1, B),
        "old_values": old_values,
        "values": old_values + rng.normal(0, 0.3, (B, T)),
        "returns": rng.normal(0, 0.5, (B, T)),
        "dense_rewards": rng.normal(0, 0.3, (B, T)),
    }
    return {name: np.round(values, 6) for name, values in arrays.items()}


def from_verl(inputs):
    x = {name: torch.tensor(values) for name, values in inputs.items()}
    rewards, mask = x["rewards"], x["mask"]
    index = np.arange(B) // GROUP
    alone = np.where(np.arange(B) == B - 1, 3, index)  # the last row is the only one of its group
    # Each reward is moved one token later and dropped if that token is an action.
    late = torch.roll(rewards, 1, 1) * (1 - mask)
    grpo, rloo = (
        core_algos.compute_grpo_outcome_advantage,
        core_algos.compute_rloo_outcome_advantage,
    )
    plus = core_algos.compute_reinforce_plus_plus_outcome_advantage

    def loss(name, bounds, advantages, mode, **options):
        config = ActorConfig(
            strategy="fsdp",
            rollout_n=1,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio_low=bounds[0],
            clip_ratio_high=bounds[1],
            **options,
        )
        logprobs = x["logprobs"].clone().requires_grad_()
        function = core_algos.get_policy_loss_fn(name)
        total, metrics = function(
            x["old_logprobs"], logprobs, advantages, mask, loss_agg_mode=mode, config=config
        )
        total.backward()
        clipped = metrics["actor/pg_clipfrac"]
        return {"loss": total, "gradient": logprobs.grad, "clip_fraction": clipped}

    def gae(rewards, mask, discount, gae_lambda):
        found = core_algos.compute_gae_advantage_return(
            rewards, x["old_values"], mask, torch.tensor(discount), torch.tensor(gae_lambda)
        )
        return {"whitened": found[0], "advantages": found[1] - x["old_values"], "returns": found[1]}

    def value_loss(bound):
        values = x["values"].clone().requires_grad_()
        total, clipped = core_algos.compute_value_loss(
            values, x["returns"], x["old_values"], mask, cliprange_value=bound
        )
        total.backward()
        return {"loss": total, "gradient": values.grad, "clip_fraction": clipped}

    def coefficients(measured):
        controller = core_algos.AdaptiveKLController(0.2, target_kl=0.1, horizon=10)
        values = []
        for value in measured:
            controller.update(value, n_steps=1)
            values.append(float(controller.value))
        return values

    log_ratio = x["logprobs"] - x["old_logprobs"]
    by_episode = x["episode_advantages"][:, None].expand(B, T)
    full = torch.ones_like(mask)
    no_dual_clip = {"clip_ratio_c": 1e9}
    return {
        "grpo": grpo(rewards, mask, index)[0],
        "grpo_group_of_one": grpo(rewards, mask, alone)[0],
        "dr_grpo": grpo(rewards, mask, index, norm_adv_by_std_in_grpo=False)[0],
        "rloo": rloo(rewards, mask, index)[0],
        "rloo_group_of_one": rloo(rewards, mask, alone)[0],
        "reinforce_pp": plus(rewards, mask, config=AlgoConfig(gamma=0.97))[0],
        "reward_on_observation": late,
        "reinforce_pp_reward_on_observation": plus(late, mask, config=AlgoConfig(gamma=1.0))[0],
        "reinforce_pp_baseline": (
            core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(rewards, mask, index)
        )[0],
        "clip": loss("vanilla", (0.2, 0.28), x["token_advantages"], "token-mean", **no_dual_clip),
        "dual_clip": loss(
            "vanilla", (0.2, 0.28), x["token_advantages"], "token-mean", clip_ratio_c=1.3
        ),
        "gspo": loss("gspo", (3e-4, 4e-4), by_episode, "seq-mean-token-mean"),
        "gspo_by_token": loss("gspo", (0.1, 0.1), x["token_advantages"], "seq-mean-token-mean"),
        "cispo": loss("cispo", (0.2, 0.5), x["token_advantages"], "token-mean", clip_ratio_c=1.3),
        "clip_sequence_mean": loss(
            "vanilla", (0.2, 0.2), x["token_advantages"], "seq-mean-token-mean", **no_dual_clip
        ),
        "aggregated": {
            "token_mean": core_algos.agg_loss(x["returns"], mask, "token-mean"),
            "sequence_mean": core_algos.agg_loss(x["returns"], mask, "seq-mean-token-mean"),
            "fixed_length": core_algos.agg_loss(
                x["returns"], mask, "seq-mean-token-sum-norm", loss_scale_factor=16
            ),
        },
        "kl": {
            kind: core_algos.kl_penalty(x["logprobs"], x["reference_logprobs"], kind)
            for kind in ("k1", "k2", "k3")
        },
        "k3_far_away": core_algos.kl_penalty(torch.tensor([-9.0]), torch.tensor([-1.0]), "k3"),
        "gae": {name: gae(x["dense_rewards"], full, *of) for name, of in GAE.items()},
        "gae_observations": gae(rewards, mask, 0.99, 0.95),
        "value_loss": value_loss(0.2),
        "truncated": rollout_corr_helper.compute_rollout_correction_weights(
            log_ratio, mask, "token", 1.5
        )[0],
        "sequence_mask": rollout_corr_helper.compute_rollout_rejection_mask(
            log_ratio, mask, "seq_mean_k1", "0.8_1.25"
        )[0],
        "adaptive_coefficients": coefficients((0.1, 0.11, 5.0, 0.0)),
    }


def stand_in(**attributes):
    """Returns a mock of a trainer on one process, whose network returns stored results."""
    trainer = mock.MagicMock(**attributes)
    trainer.accelerator.device, trainer.accelerator.num_processes = "cpu", 1
    trainer.accelerator.process_index = 0
    trainer.accelerator.reduce.side_effect = lambda x, reduction: x
    trainer.accelerator.gather.side_effect = lambda x: x
    trainer.accelerator.gather_for_metrics.side_effect = lambda x: x
    return trainer


def from_trl(inputs, old_folder):
    x = {name: torch.tensor(values) for name, values in inputs.items()}
    nothing = torch.zeros(B, 1, dtype=torch.long)

    def loss(loss_type, level, bounds, advantages, beta=0.0):
        logprobs = x["logprobs"].clone().requires_grad_()
        trainer = stand_in(
            loss_type=loss_type,
            importance_sampling_level=level,
            epsilon_low=bounds[0],
            epsilon_high=bounds[1],
            beta=beta,
            max_completion_length=16,
            current_gradient_accumulation_steps=1,
            top_entropy_quantile=1.0,
            off_policy_mask_threshold=None,
            use_vllm=False,
            aux_loss_enabled=False,
            _entropy_bonus_enabled=False,
        )
        trainer.args.delta, trainer.args.use_bias_correction_kl = None, False
        trainer.args.steps_per_generation = 1
        answer = (logprobs, torch.zeros(B, T), None)
        trainer._get_per_token_logps_and_entropies.return_value = answer
        batch = {
            "prompt_ids": nothing,
            "prompt_mask": nothing,
            "completion_ids": torch.zeros(B, T, dtype=torch.long),
            "completion_mask": x["mask"],
            "advantages": advantages,
            "old_per_token_logps": x["old_logprobs"],
            "ref_per_token_logps": x["reference_logprobs"],
            "num_items_in_batch": x["mask"].sum(),
        }
        total = GRPOTrainer._compute_loss(trainer, None, batch)
        total.backward()
        return {"loss": total, "gradient": logprobs.grad}

    def advantages(trainer_class, returns, generated, **options):
        trainer = stand_in(
            num_generations=GROUP,
            beta=0.0,
            reward_weights=torch.ones(1, dtype=torch.float64),
            reward_func_names=["return"],
            mask_truncated_completions=False,
            pad_to_multiple_of=None,
            reward_clip_range=None,
            **options,
        )
        trainer._tokenizer.pad_token_id = 0
        trainer._pending_extra_logs, trainer._pending_metrics = {}, {}
        trainer._get_per_token_logps_and_entropies.return_value = (torch.zeros(B, 1), None, None)
        trainer._calculate_rewards.return_value = returns[:, None]
        trainer._generate.return_value = generated
        asked = [{"prompt": "?"}] * B
        return trainer_class._generate_and_score_completions(trainer, asked)["advantages"]

    one = [[1]] * B
    returns = x["rewards"].sum(1)
    unscored = torch.where(torch.arange(B) == 5, torch.nan, returns)
    of_rloo = (one, one, ["!"] * B)
    of_grpo = (one, one, None, ["!"] * B, None, {}, None, None)
    grpo_options = {
        "multi_objective_aggregation": "sum_then_normalize",
        "tools": None,
        "environment_factories": None,
        "environments": None,
        "use_vllm": False,
        "off_policy_mask_threshold": None,
    }

    def grpo(returns, scale):
        return advantages(GRPOTrainer, returns, of_grpo, scale_rewards=scale, **grpo_options)

    def preference(loss_type, beta):
        values = []
        for pair in range(0, B, 2):
            rows = slice(pair, pair + 2)
            trainer = stand_in(
                aux_loss_enabled=False,
                ld_alpha=None,
                precompute_ref_logps=True,
                f_divergence_type="reverse_kl",
                loss_types=[loss_type],
                loss_weights=[1.0],
                use_weighting=False,
                beta=beta,
            )
            trainer.model.training = False
            reference = (x["reference_logprobs"] * x["mask"])[rows].sum(1)
            model, measured = mock.MagicMock(), torch.zeros(2, T)
            model.return_value.log_probs = (x["logprobs"] * x["mask"])[rows]
            model.return_value.entropy = model.return_value.mean_logits = measured
            model.return_value.is_top1 = measured > 0
            batch = {
                "input_ids": torch.zeros(2, T + 1, dtype=torch.long),
                "completion_mask": torch.nn.functional.pad(x["mask"][rows], (1, 0)).long(),
                "ref_chosen_logps": reference[:1],
                "ref_rejected_logps": reference[1:],
            }
            values.append(DPOTrainer._compute_loss(trainer, model, batch, False))
        return torch.stack(values)

    by_episode, clip = x["episode_advantages"], (0.2, 0.28)
    return {
        "grpo_advantage": grpo(returns, "group"),
        "dr_grpo_advantage": grpo(returns, "none"),
        "grpo_advantage_unscored": grpo(unscored, "group"),
        "rloo_advantage": advantages(RLOOTrainer, returns, of_rloo, normalize_advantages=False),
        "rloo_advantage_unscored": advantages(
            RLOOTrainer, unscored, of_rloo, normalize_advantages=False
        ),
        "grpo": loss("grpo", "token", clip, by_episode),
        "grpo_with_kl": loss("grpo", "token", clip, by_episode, beta=0.04),
        "dr_grpo": loss("dr_grpo", "token", clip, by_episode),
        "dapo": loss("dapo", "token", clip, by_episode),
        "gspo": loss("grpo", "sequence", (3e-4, 4e-4), by_episode),
        "cispo": loss("cispo", "token", (0.0, 1.5), by_episode),
        "dpo": preference("sigmoid", 0.3),
        "dpo_normalised": preference("sigmoid_norm", 0.3),
        "ipo": preference("ipo", 0.3),
        "ppo": trl_ppo(x, old_folder),
    }


def functions_of(path, names, namespace):
    """Loads the named functions of a file without importing the file.

    Importing the file would fail, because it imports modules that no longer exist.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                argument.annotation = None
            node.returns, node.decorator_list = None, []
            exec(compile(ast.unparse(node), str(path), "exec"), namespace)
    return namespace


def trl_ppo(x, folder):
    """Returns advantages (GAE) and PPO losses of the trl version in `folder`."""
    namespace = {"torch": torch}
    helpers = {"masked_mean", "masked_var", "masked_whiten", "clip_by_value", "entropy_from_logits"}
    functions_of(folder / "trl" / "core.py", helpers, namespace)
    namespace["flatten_dict"] = lambda measured: measured
    functions_of(
        folder / "trl" / "trainer" / "ppo_trainer.py", {"compute_advantages", "loss"}, namespace
    )
    mask, full = x["mask"], torch.ones_like(x["mask"])
    found = {}
    for name, (discount, gae_lambda) in GAE.items():
        config = types.SimpleNamespace(whiten_rewards=False, gamma=discount, lam=gae_lambda)
        _, whitened, returns = namespace["compute_advantages"](
            types.SimpleNamespace(config=config), x["old_values"], x["dense_rewards"], full
        )
        advantages = returns - x["old_values"]
        found[name] = {"whitened": whitened, "advantages": advantages, "returns": returns}
    config = types.SimpleNamespace(
        cliprange=0.2, cliprange_value=0.2, vf_coef=1.0, ratio_threshold=1e9
    )
    logprobs, values = (x[k].clone().requires_grad_() for k in ("logprobs", "values"))
    policy, critic, stats = namespace["loss"](
        types.SimpleNamespace(config=config),
        x["old_logprobs"],
        x["old_values"],
        torch.zeros(B, T, 2, dtype=torch.float64),
        values,
        logprobs,
        mask,
        x["token_advantages"],
        x["returns"],
    )
    (policy + critic).backward()
    return {
        "version": "0.11.4",
        "gae": found,
        "clip": {"loss": policy, "gradient": logprobs.grad},
        "value_loss": {
            "loss": critic,
            "gradient": values.grad,
            "clip_fraction": stats["val"]["clipfrac"],
        },
    }


def from_rlax(inputs):
    x = {name: jnp.asarray(values, jnp.float32) for name, values in inputs.items()}
    rewards, values = x["dense_rewards"], x["old_values"]
    after = jnp.pad(values, ((0, 0), (0, 1)))  # an episode ends at the end of its row

    def gae(discount, gae_lambda):
        def compute_row(reward_T, value_T):
            return rlax.truncated_generalized_advantage_estimation(
                reward_T, jnp.full(T, discount), gae_lambda, value_T
            )

        advantages = jax.vmap(compute_row)(rewards, after)
        return {"advantages": advantages, "returns": advantages + values}

    def clip(logprobs):
        ratio = jnp.exp(logprobs - x["old_logprobs"]).ravel()
        return rlax.clipped_surrogate_pg_loss(ratio, x["token_advantages"].ravel(), 0.2)

    def returns(reward_T):
        return rlax.discounted_returns(reward_T, jnp.full(T, 0.97), jnp.zeros(T))

    total, gradient = jax.value_and_grad(clip)(x["logprobs"])
    return {
        "gae": {name: gae(*of) for name, of in GAE.items()},
        "clip": {"loss": total, "gradient": gradient},
        "returns": jax.vmap(returns)(rewards),
    }


def plain(value):
    """Returns arrays as nested lists of numbers."""
    if isinstance(value, dict):
        return {name: plain(of) for name, of in value.items()}
    if hasattr(value, "detach"):
        value = value.detach()
    return value if isinstance(value, str) else np.asarray(value).tolist()


def main():
    inputs = example()
    outputs = {
        "verl": from_verl(inputs),
        "trl": from_trl(inputs, pathlib.Path(sys.argv[1])),
        "rlax": from_rlax(inputs),
    }
    (HERE / "peers_inputs.json").write_text(
        json.dumps({"group_size": GROUP} | plain(inputs)) + "\n"
    )
    for package, found in outputs.items():
        record = {"package": package, "version": importlib.metadata.version(package)}
        (HERE / f"{package}.json").write_text(json.dumps(record | plain(found)) + "\n")


if __name__ == "__main__":
    main()
