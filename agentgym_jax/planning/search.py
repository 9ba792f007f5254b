"""Search for the fastest mesh, micro-batch and compiler options that fit a slice."""

import dataclasses
import typing
from collections.abc import Callable, Iterator

import jax.numpy as jnp

from agentgym_jax.mesh import compiler_options
from agentgym_jax.mesh.compiler_options import Options
from agentgym_jax.models.policy import Policy
from agentgym_jax.planning.plan_report import GIB, Plan, ProgramCost, make_plan, measure_program
from agentgym_jax.planning.programs import get_decoder_config, make_programs
from agentgym_jax.planning.topology import PlanError, Topology
from agentgym_jax.rl.rl_config import RLSettings


def search_plan(
    settings: RLSettings, topology: Topology, progress: Callable[[str], None]
) -> tuple[Plan, dict[str, int]]:
    """Returns the fastest plan that fits, and its values of `mesh` and `learner.micro_rows`.

    `progress` gets lines about each candidate and its programs.

    Raises:
      PlanError: No candidate fits; the message has the one that needs the least memory.
    """
    plans = []
    for mesh, micro_rows in _candidates(settings, topology):
        learner = dataclasses.replace(settings.learner, micro_rows=micro_rows)
        plan = make_plan(dataclasses.replace(settings, learner=learner), mesh, topology, progress)
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


def compare_options(
    settings: RLSettings, plan: Plan, progress: Callable[[str], None]
) -> list[tuple[Options, ProgramCost]]:
    """Compiles the slowest program of the options' table with every candidate of the chip.

    `plan` has the options of the table. Returns options and costs, fastest first; those that do not
    fit are last.
    """
    topology, device = plan.topology, plan.topology.devices[0]
    names = typing.get_args(compiler_options.Program)
    slowest = max((p for p in plan.programs if p.name in names), key=lambda p: p.calls * p.time)
    chosen = compiler_options.look_up(device, slowest.name)
    found = [(chosen, slowest)]
    learner = dataclasses.replace(settings.learner, micro_rows=plan.micro_rows)
    settings = dataclasses.replace(settings, learner=learner)
    for options in compiler_options.CANDIDATES.get(device.platform, ()):
        if options == chosen:
            continue
        with compiler_options.trying(options):
            made = make_programs(settings, plan.mesh, topology.devices, topology.host_devices)
            program = next(p for p in made.programs if p.name == slowest.name)
            found.append((options, measure_program(program, made, topology, progress)))
    return sorted(found, key=lambda x: (x[1].peak > topology.chip.memory, x[1].time))


def format_options(plan: Plan, found: list[tuple[Options, ProgramCost]]) -> str:
    """Returns one line for each result of `compare_options`, and what to do with the table."""
    device, name = plan.topology.devices[0], found[0][1].name
    chosen = compiler_options.look_up(device, name)
    lines = []
    for options, cost in found:
        described = " ".join(f"{key}={value}" for key, value in options.items()) or "no options"
        lines.append(
            f"{name} with {described}: {cost.time:.2f} s ({cost.bound}), {cost.peak / GIB:.1f} GiB"
            + ", chosen by the table" * (options == chosen)
        )
    if len(found) == 1:
        lines.append(f"there are no other options to compare for {device.device_kind}")
    elif found[0][0] != chosen:
        lines.append(
            f"the table is not the fastest: change {device.device_kind!r} in "
            f"{compiler_options.__name__}"
        )
    return "\n".join(lines)


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
