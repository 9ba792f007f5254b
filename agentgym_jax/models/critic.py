"""Critic: the expected return, as a linear head on a decoder's hidden states."""

import dataclasses

import jax
import jax.numpy as jnp

from agentgym_jax.models.policy import Params, Policy


@dataclasses.dataclass(frozen=True)
class Critic:
    """Critic as pure functions of its weights.

    The weights are {"head": {"kernel": [D], "bias": []}} and, with a separate trunk, {"trunk":
    weights of the decoder}. All weights are float32.

    Attributes:
      policy: Functions of the decoder.
      is_shared: True if the head reads the policy's hidden states. The loss of the values then
        also trains the policy.
    """

    policy: Policy
    is_shared: bool

    def initial_params(self, policy_params: Params) -> Params:
        """Returns a head of zeros, so that every value is 0 at first, and for a separate trunk the
        policy's weights.
        """
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
        """Returns expected returns, float32 [B, T]: index t is the return given the tokens up to
        and including t.
        """
        kernel_D, bias = params["head"]["kernel"], params["head"]["bias"]
        return jnp.einsum("btd,d->bt", hidden_BTD.astype(jnp.float32), kernel_D) + bias

    def _with_trunk(self, head: Params, trunk: Params) -> Params:
        return {"head": head} if self.is_shared else {"head": head, "trunk": trunk}


def values_before(after_BT: jax.Array) -> jax.Array:
    """Returns the value before each token, which was computed after the token to its left.

    The first token of a segment gets a value of the neighbouring segment, but it is never an action
    token. The value before a turn's first token is computed at the last token of the prompt. The
    loss trains it like every other value that is used.
    """
    return jnp.pad(after_BT[:, :-1], ((0, 0), (1, 0)))
