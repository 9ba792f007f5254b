"""One model in training: adapters of a frozen base, their gradient so far, and optimiser steps."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agentgym_jax.algorithms import masked
from agentgym_jax.algorithms.losses import PolicyTokens
from agentgym_jax.learner import accumulation, train_state
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.mesh.compiler_options import compiler_options
from agentgym_jax.mesh.sharding import Layout, constrain_rows, launch_lock, put, to_host
from agentgym_jax.models.lora import TARGETS, Adapters
from agentgym_jax.models.policy import Params, Policy
from agentgym_jax.models.token_logprobs import token_logprobs
from agentgym_jax.serving.requests import RequestError
from agentgym_jax.training_api import tinker_losses
from agentgym_jax.training_api.data import Datum, TargetBatch, check, pack

ALPHA = 32.0  # Tinker's scale of adapters times the rank
ATTENTION, MLP = ("q", "k", "v", "o"), ("gate", "up", "down")
_CHUNK = 512  # tokens whose logits exist at the same time
# The state of Adam is the same for all options.
_ADAM = optax.scale_by_adam()


@flax.struct.dataclass
class AdamOptions:
    """Options of one AdamW step, float32 scalars; `grad_clip_norm` 0 does not clip."""

    learning_rate: Any
    beta1: Any
    beta2: Any
    eps: Any
    weight_decay: Any
    grad_clip_norm: Any


@dataclasses.dataclass(frozen=True)
class Result:
    """Result of forward_backward; `logprobs` has one array per datum."""

    logprobs: list[np.ndarray]
    metrics: dict[str, float]


class Trainer:
    """Adapters in training, used by one thread at a time.

    Attributes:
      state: Adapters, state of AdamW and number of steps.
      num_pending: Number of forward_backward calls since the last optimiser step.
    """

    def __init__(
        self,
        policy: Policy,
        base: Params,
        adapters: Adapters,
        *,
        seed: int,
        context: int,
        micro_tokens: int,
        layout: Layout | None = None,
    ):
        """Creates new adapters, which change nothing."""
        self.adapters = adapters
        self._policy, self._base, self._layout = policy, base, layout
        self._context, self._micro_tokens = context, micro_tokens
        shardings = train_state.state_shardings(adapters, _ADAM, layout)
        of_params = shardings and shardings.params
        params = adapters.init_sharded(jax.random.key(seed), layout)
        self.state = train_state.create(adapters, _ADAM, params, layout)
        self.num_pending = 0
        self._gradient: Params | None = None  # sum since the last optimiser step
        self._zeros = jax.jit(
            functools.partial(jax.tree.map, jnp.zeros_like), out_shardings=of_params
        )
        self._add_gradient = jax.jit(
            self._compute,
            static_argnums=(0, 1),
            donate_argnums=4,
            out_shardings=(of_params, None),
            compiler_options=compiler_options("update", layout),
        )
        self._score = jax.jit(
            self._loss,
            static_argnums=(0, 1),
            compiler_options=compiler_options("score", layout),
        )
        self._step = jax.jit(_adam_step, donate_argnums=0, out_shardings=(shardings, None))

    @property
    def gradient(self) -> Params | None:
        """Returns the gradient since the last optimiser step, float32; None if there is none."""
        return self._gradient

    def abstract_state(self) -> TrainState:
        """Returns the shapes of the state, the target of a restore."""
        return train_state.abstract_state(self.adapters, _ADAM, self._layout)

    def replace_state(self, state: TrainState, *, keep_optimizer: bool) -> None:
        """Takes over a saved state and drops the gradient; without its optimiser, Adam starts again."""
        if not keep_optimizer:
            state = train_state.create(self.adapters, _ADAM, state.params, self._layout)
        self.state, self._gradient, self.num_pending = state, None, 0

    def forward_backward(
        self,
        data: Sequence[Datum],
        loss_fn: str,
        options: Mapping[str, float | str],
        *,
        forward_only: bool = False,
    ) -> Result:
        """Adds the gradient of the sum of a loss over all tokens of the data.

        Raises:
          RequestError: The data do not fit the loss or the model. The gradient is unchanged.
        """
        bound = tinker_losses.bind(loss_fn, options)
        vocab_size = self._policy.config.vocab_size
        sequences = check(data, loss_fn, context=self._context, vocab_size=vocab_size)
        total, scores, ids = 0.0, [], []
        try:
            for batch in pack(sequences, micro_tokens=self._micro_tokens):
                ids.append(batch.tokens.sequence_ids)
                loss, logprob_BT = self._run(loss_fn, bound, self._put(batch), forward_only)
                total += loss
                scores.append(logprob_BT)
        except Exception:  # such as too little memory: the sum has a part of this call's gradient
            if not forward_only:
                self._gradient, self.num_pending = None, 0
            raise
        logprobs = _split(np.concatenate(scores), np.concatenate(ids), len(data))
        if not forward_only:
            self.num_pending += 1
        return Result(logprobs, {"loss:sum": total})

    def step(self, options: AdamOptions) -> dict[str, float]:
        """Applies the gradient so far with AdamW; returns the metrics of the step.

        Raises:
          RequestError: There is no gradient, or it is not finite. Nothing but the gradient changes.
        """
        if self._gradient is None:
            raise RequestError(
                "optim_step without a gradient: call forward_backward first", "out_of_order"
            )
        gradient, count = self._gradient, self.num_pending
        self._gradient, self.num_pending = None, 0
        norm = float(to_host(optax.tree.norm(gradient)))
        if not np.isfinite(norm):
            raise RequestError(
                f"the gradient of {count} forward_backward calls is not finite and was dropped; the "
                "weights are as before: check the data, or lower the learning rate",
                "not_finite",
            )
        with launch_lock:
            self.state, update_norm = self._step(self.state, gradient, options)
        return {
            "grad_norm:mean": norm,
            "update_norm:mean": float(to_host(update_norm)),
            "step:max": float(to_host(self.state.step)),
        }

    def _put(self, batch: TargetBatch) -> TargetBatch:
        layout = self._layout

        def put_one(x):
            sharding = None if layout is None else layout.sharding(("batch", "length"), x.shape)
            return put(np.asarray(x), sharding)

        return jax.tree.map(put_one, batch)

    def _run(
        self, loss_fn: str, bound: Any, batch: TargetBatch, forward_only: bool
    ) -> tuple[float, np.ndarray]:
        """Returns the loss and the log-probabilities [B, T] of a micro-batch."""
        params = self.state.params
        with launch_lock:
            if forward_only:
                result = self._score(loss_fn, bound, params, self._base, batch)
            else:
                if self._gradient is None:
                    self._gradient = self._zeros(params)
                self._gradient, result = self._add_gradient(
                    loss_fn, bound, params, self._base, self._gradient, batch
                )
        loss, logprob_BT = to_host(result)
        return float(loss), logprob_BT

    def _compute(self, loss_fn, bound, params, base, gradient, batch):
        loss = functools.partial(self._loss, loss_fn, bound)
        result, own = jax.value_and_grad(loss, has_aux=True)(params, base, batch)
        return jax.tree.map(lambda g, x: g + x.astype(jnp.float32), gradient, own), result

    def _loss(self, loss_fn, bound, params, base, batch) -> tuple[jax.Array, jax.Array]:
        """Returns the sum of the loss, and the log-probabilities [B, T] of the targets."""
        batch = constrain_rows(self._layout, batch)
        rows, wanted_BT = batch.tokens, batch.tokens.action_mask
        weights = self.adapters.attach(base, params)
        hidden_BTD = self._policy.hidden(weights, rows.tokens, rows.positions, rows.segment_ids)

        def later(x):  # `token_logprobs` scores token t after hidden state t - 1
            return jnp.pad(x, ((0, 0), (1, 0)))

        scored = token_logprobs(
            self._policy,
            weights,
            jnp.pad(hidden_BTD, ((0, 0), (0, 1), (0, 0))),
            later(batch.targets),
            wanted_BT=later(wanted_BT),
            chunk_size=_CHUNK,
        )
        logprob_BT, entropy_BT = scored.logprob_BT[:, 1:], scored.entropy_BT[:, 1:]
        tokens = PolicyTokens(
            logprob_BT=logprob_BT,
            old_logprob_BT=rows.old_logprobs,
            advantage_BT=rows.advantages,
            sequence_BT=rows.segment_ids,
            sampler_logprob_BT=rows.old_logprobs,
            entropy_BT=entropy_BT,
            marked_BT=rows.marked,
        )
        loss_BT = tinker_losses.compute(loss_fn, bound, tokens)
        return masked.masked_sum(rows.weights * loss_BT, wanted_BT), logprob_BT


def make_trainer_targets(*, train_attn: bool, train_mlp: bool) -> tuple[str, ...]:
    """Returns the adapted kernels.

    Raises:
      RequestError: Neither attention nor MLP is trained.
    """
    chosen = (*(ATTENTION if train_attn else ()), *(MLP if train_mlp else ()))
    if not chosen:
        raise RequestError(
            "lora_config: this server adapts attention and MLP only; set train_attn or train_mlp",
            param="lora_config",
        )
    return tuple(target for target in TARGETS if target in chosen)


def _adam_step(state: TrainState, gradient: Params, options: AdamOptions):
    """Returns the state after one step, and the norm of the change; `state` is used up."""
    norm, limit = optax.tree.norm(gradient), options.grad_clip_norm
    factor = jnp.where((limit > 0) & (norm > limit), limit / jnp.maximum(norm, 1e-30), 1.0)
    gradient = jax.tree.map(lambda g: g * factor, gradient)
    adam = optax.scale_by_adam(options.beta1, options.beta2, options.eps)

    def scale(updates, opt_state, params):
        updates, opt_state = adam.update(updates, opt_state, params)
        rate, decay = options.learning_rate, options.weight_decay
        return jax.tree.map(lambda u, p: -rate * (u + decay * p), updates, params), opt_state

    optimizer = optax.GradientTransformation(adam.init, scale)
    return accumulation.apply_gradients(optimizer, state, gradient)


def _split(values_BT: np.ndarray, ids_BT: np.ndarray, count: int) -> list[np.ndarray]:
    """Returns the values of each datum, in the order of `ids_BT`."""
    return [values_BT[ids_BT == number] for number in range(count)]
