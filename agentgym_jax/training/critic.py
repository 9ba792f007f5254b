"""A critic beside the policy: its part of the state, its values of episodes, how good they are."""

from collections.abc import Sequence

import jax
import numpy as np

from agentgym_jax import batch as batching
from agentgym_jax.learner import train_state
from agentgym_jax.learner.experience import Experience
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.run.rl import RLParts
from agentgym_jax.training.learning import on_device, whole_episodes
from agentgym_jax.trajectory import Trajectory


def abstract_state(parts: RLParts) -> TrainState:
    """Shapes of the state of policy and critic: what a restore asks for."""
    layout, critic = parts.model.layout, parts.critic
    state = train_state.abstract_state(parts.model.policy, parts.optimizer, layout)
    if critic is None:
        return state
    of_critic = train_state.abstract_state(critic.network, critic.optimizer, layout)
    return state.replace(critic=of_critic)


def create_state(parts: RLParts, params) -> TrainState:
    """The state before the first step; a critic with a trunk of its own starts as the policy."""
    layout, critic = parts.model.layout, parts.critic
    state = train_state.create(parts.model.policy, parts.optimizer, params, layout)
    if critic is None:
        return state
    first = critic.network.initial_params(params)
    of_critic = train_state.create(critic.network, critic.optimizer, first, layout)
    return state.replace(critic=of_critic)


def values_after(
    parts: RLParts, state: TrainState, trajectories: Sequence[Trajectory]
) -> list[np.ndarray] | None:
    """float32 [n] by episode: what the critic expects after every token; None without a critic."""
    if parts.critic is None or state.critic is None:
        return None
    batch = whole_episodes(parts, trajectories)
    score, params = parts.critic.score, state.critic.params
    values = [score(state.params, params, one) for one in on_device(parts, batch)]
    return batching.unpack(np.stack(jax.device_get(values)), batch, len(trajectories))


def metrics_of(experience: Experience) -> dict[str, float]:
    """How well the critic knew what came, over the action tokens of the valid episodes.

    `critic/explained_variance` is 1 - var(return - value) / var(return): 1 is perfect, 0 as good
    as the mean, and 0 as well where all returns are equal.
    """
    if experience.return_BT is None or experience.value_BT is None:
        return {}
    mask_BT = experience.action_mask_BT & experience.valid_B[:, None]
    returns = experience.return_BT[mask_BT].astype(np.float64)
    values = experience.value_BT[mask_BT].astype(np.float64)
    if not returns.size:
        return {}
    # Returns that differ by rounding alone are equal: their variance would blow up the fraction.
    is_equal = np.ptp(returns) <= 1e-5 * np.abs(returns).max()
    explained = 0.0 if is_equal else 1.0 - (returns - values).var() / returns.var()
    return {
        "critic/value_mean": float(values.mean()),
        "critic/return_mean": float(returns.mean()),
        "critic/explained_variance": float(explained),
    }
