"""Critic: the return that is to be expected, as a linear head on a decoder's hidden states."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from agentgym_jax.models.policy import Params, Policy

_HEAD_AXES = {"kernel": ("embed",), "bias": ()}


@dataclasses.dataclass(frozen=True)
class Critic:
    """How to compute values with the weights; holds none.

    The weights are {"head": {"kernel": [D], "bias": []}} and, with a trunk of its own,
    {"trunk": weights of the decoder} beside it. All are float32.

    Attributes:
      policy: the decoder.
      is_shared: the head reads the policy's hidden states, and its gradient goes into the policy.
    """

    policy: Policy
    is_shared: bool

    def initial_params(self, policy_params: Params) -> Params:
        """A trunk that is the policy's and a head of zeros: every value is 0 at first."""
        head = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self._abstract_head())
        return {"head": head} if self.is_shared else {"head": head, "trunk": policy_params}

    def abstract_params(self) -> Params:
        """Shapes and types of the weights, as a tree of jax.ShapeDtypeStruct."""
        return self._with_trunk(self._abstract_head(), self.policy.abstract_params)

    def logical_axes(self) -> Params:
        """Logical axis names of the weights, as a tree of tuples."""
        return self._with_trunk(dict(_HEAD_AXES), self.policy.logical_axes)

    def hidden(self, params: Params, tokens_BT, positions_BT, segment_ids_BT) -> jax.Array:
        """Hidden states [B, T, D] of the trunk of its own (`Policy.hidden`)."""
        return self.policy.hidden(params["trunk"], tokens_BT, positions_BT, segment_ids_BT)

    def values_after(self, params: Params, hidden_BTD: jax.Array) -> jax.Array:
        """float32 [B, T]: return that is expected when tokens up to and including t are known."""
        head = params["head"]
        return (
            jnp.einsum("btd,d->bt", hidden_BTD.astype(jnp.float32), head["kernel"]) + head["bias"]
        )

    def _abstract_head(self) -> Params:
        D = self.policy.config.hidden_size
        shapes = {"kernel": (D,), "bias": ()}
        return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}

    def _with_trunk(self, head: Params, trunk: Any) -> Params:
        return {"head": head} if self.is_shared else {"head": head, "trunk": trunk()}


def values_before(after_BT: jax.Array) -> jax.Array:
    """Values that are known before token t is: those after the token to the left of it.

    The first token of a segment gets its neighbour's; it is never an action token. So the value of
    a turn's first token stands on the last token of the prompt, which the loss trains like all
    the others: no value is read where none was learned.
    """
    return jnp.pad(after_BT[:, :-1], ((0, 0), (1, 0)))
