"""Critic: a linear head on a decoder's hidden states that predicts the expected return."""

import dataclasses

import jax
import jax.numpy as jnp

from agentgym_jax.models.policy import Params, Policy


@dataclasses.dataclass(frozen=True)
class Critic:
    """Critic as pure functions of its float32 weights.

    The weights are {"head": {"kernel": [D], "bias": []}} and, with a separate trunk, {"trunk":
    weights of a decoder}.

    Attributes:
      policy: Functions of the decoder.
      is_shared: True if the head reads the policy's hidden states, so that its loss also trains the
        policy. False if the critic has a separate trunk.
    """

    policy: Policy
    is_shared: bool

    def initial_params(self, policy_params: Params) -> Params:
        """Returns a head of zeros, and the policy's weights for a separate trunk."""
        D = self.policy.config.hidden_size
        head = {"kernel": jnp.zeros(D, jnp.float32), "bias": jnp.zeros((), jnp.float32)}
        return self._with_trunk(head, policy_params)

    def abstract_params(self) -> Params:
        """Returns shapes and types of the weights, as a tree of jax.ShapeDtypeStruct."""
        return jax.eval_shape(self.initial_params, self.policy.abstract_params())

    def logical_axes(self) -> Params:
        """Returns logical axis names of the weights, as a tree of tuples."""
        return self._with_trunk({"kernel": ("embed",), "bias": ()}, self.policy.logical_axes())

    def hidden(self, params: Params, tokens_BT, positions_BT, segment_ids_BT) -> jax.Array:
        """Returns hidden states [B, T, D] of the separate trunk (`Policy.hidden`)."""
        return self.policy.hidden(params["trunk"], tokens_BT, positions_BT, segment_ids_BT)

    def values_after(self, params: Params, hidden_BTD: jax.Array) -> jax.Array:
        """Returns expected returns given the tokens up to and including t: float32 [B, T]."""
        kernel_D, bias = params["head"]["kernel"], params["head"]["bias"]
        return jnp.einsum("btd,d->bt", hidden_BTD.astype(jnp.float32), kernel_D) + bias

    def _with_trunk(self, head: Params, trunk: Params) -> Params:
        return {"head": head} if self.is_shared else {"head": head, "trunk": trunk}


def values_before(after_BT: jax.Array) -> jax.Array:
    """Returns the value before each token: the value after the previous token of the row.

    The first token of a segment gets a value of another segment, but it is never an action token.
    """
    return jnp.pad(after_BT[:, :-1], ((0, 0), (1, 0)))
