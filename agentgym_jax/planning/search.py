"""Search for the fastest mesh and micro-batch that fit a slice."""

import dataclasses
from collections.abc import Callable, Iterator

import jax.numpy as jnp

from agentgym_jax.models.policy import Policy
from agentgym_jax.planning.plan_report import Plan, make_plan
from agentgym_jax.planning.programs import get_decoder_config
from agentgym_jax.planning.topology import PlanError, Topology
from agentgym_jax.rl.rl_config import RLSettings


def search_plan(
    settings: RLSettings, topology: Topology, progress: Callable[[str], None]
) -> tuple[Plan, dict[str, int]]:
    """Returns the fastest plan that fits, and its config values.

    Args:
      settings: Checked config; its mesh and `learner.micro_rows` are replaced.
      topology: The slice.
      progress: Function that gets a line about each candidate.

    Raises:
      PlanError: No candidate fits; the message has the one that needs the least memory.
    """
    plans = []
    for mesh, micro_rows in _candidates(settings, topology):
        learner = dataclasses.replace(settings.learner, micro_rows=micro_rows)
        plan = make_plan(dataclasses.replace(settings, learner=learner), mesh, topology)
        progress(f"{_describe(plan)}: {plan.verdict()}")
        plans.append(plan)
    fitting = [plan for plan in plans if plan.fits]
    if not fitting:
        nearest = min(plans, key=lambda plan: plan.peak)
        raise PlanError(
            f"nothing fits {topology.name}. Nearest: {_describe(nearest)} {nearest.verdict()}"
        )
    best = min(fitting, key=lambda plan: plan.step_s)
    return best, {**best.mesh, "micro_rows": best.micro_rows}


def _describe(plan: Plan) -> str:
    return ", ".join(f"{name}={size}" for name, size in plan.mesh.items()) + (
        f", micro_rows={plan.micro_rows}"
    )


def _candidates(settings: RLSettings, topology: Topology) -> Iterator[tuple[dict[str, int], int]]:
    """Yields meshes whose tensor axis divides the heads and stays inside a host.

    While decoding, layers are divided until the weights of a chip take at most a third of its
    memory.
    """
    config = get_decoder_config(settings)
    bytes_per_weight = jnp.dtype(settings.model.decode_dtype).itemsize
    num_bytes = Policy(config).num_parameters * bytes_per_weight
    here = topology.devices[0].process_index
    local_chips = sum(device.process_index == here for device in topology.devices)
    tensor = decode_tensor = 1
    while num_bytes / decode_tensor > topology.chip.memory / 3 and decode_tensor < local_chips:
        decode_tensor *= 2
    while tensor <= min(local_chips, config.num_kv_heads):
        if topology.num_chips % tensor == 0 and config.num_kv_heads % tensor == 0:
            fsdp = topology.num_chips // tensor
            for rows_per_shard in (1, 2):
                mesh = dict(data=1, fsdp=fsdp, tensor=tensor)
                mesh["decode_tensor"] = max(tensor, decode_tensor)
                yield mesh, fsdp * rows_per_shard
        tensor *= 2
