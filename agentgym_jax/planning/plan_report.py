"""Plan of a run on one slice: memory, traffic and roofline time of each program."""

import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from agentgym_jax.planning import hlo
from agentgym_jax.planning.flops import count_flops
from agentgym_jax.planning.programs import Program, Programs, make_programs
from agentgym_jax.planning.topology import Topology, compile_absent
from agentgym_jax.rl.rl_config import RLSettings

GIB = 2**30
# error of the TPU compiler for a program whose temporary arrays exceed the memory
_TOO_LARGE = re.compile(r"required for HLO temporaries \(([\d.]+)G\)")


@dataclasses.dataclass(frozen=True)
class ProgramCost:
    """Cost of one call of a program, per chip.

    Attributes:
      calls: Calls per training step if all episodes have the maximum length.
      compile_s: Seconds to compile.
      temp: Bytes of temporary arrays, and of arguments that exist only for this call. If they
        exceed the memory, the compiler gives up; traffic and collectives are then unknown and 0.
      flops: FLOPs of matrix products.
      traffic: Bytes read from and written to HBM.
      collectives: Number and bytes of each type of collective.
      residents: Bytes of the arrays that exist before and after the call, by purpose.
      launches: Number of executed instructions.
      largest_copy_in_loop: Bytes of the largest array that is copied inside a loop.
      seconds: Roofline time by resource: `compute`, `memory` and `links`.
    """

    name: str
    calls: float
    compile_s: float
    temp: int
    flops: float
    traffic: float
    collectives: Mapping[str, tuple[int, float]]
    residents: Mapping[str, int]
    launches: int
    largest_copy_in_loop: int
    seconds: Mapping[str, float]

    @property
    def bound(self) -> str:
        """Resource with the longest roofline time."""
        return max(self.seconds, key=self.seconds.__getitem__)

    @property
    def peak(self) -> int:
        """Bytes in memory during a call."""
        return sum(self.residents.values()) + self.temp

    @property
    def time(self) -> float:
        """Roofline time of one call, in seconds."""
        return max(self.seconds.values())


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run on one slice of chips.

    Attributes:
      mesh: Section `mesh` of the config.
      micro_rows: Rows whose gradient is computed together.
      residents: Bytes per chip of arrays that outlive calls, by purpose. A rollout has all of them;
        other programs may run when some are freed.
    """

    topology: Topology
    mesh: Mapping[str, int]
    micro_rows: int
    residents: Mapping[str, int]
    programs: Sequence[ProgramCost]

    @property
    def peak(self) -> int:
        """Bytes per chip while the program that needs the most memory runs."""
        return self.largest.peak

    @property
    def largest(self) -> ProgramCost:
        """Program that needs the most memory."""
        return max(self.programs, key=lambda program: program.peak)

    @property
    def fits(self) -> bool:
        """True if the peak is at most the memory of a chip."""
        return self.peak <= self.topology.chip.memory

    @property
    def step_s(self) -> float:
        """Roofline time of a training step whose episodes all have the maximum length."""
        return sum(program.calls * program.time for program in self.programs)

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers as plain values."""
        programs = [
            dataclasses.asdict(p) | {"peak": p.peak, "time_s": p.time, "bound": p.bound}
            for p in self.programs
        ]
        return dict(
            topology=self.topology.name,
            chips=self.topology.num_chips,
            mesh=dict(self.mesh),
            micro_rows=self.micro_rows,
            residents=dict(self.residents),
            programs=programs,
            peak=self.peak,
            memory=self.topology.chip.memory,
            fits=self.fits,
            step_s=self.step_s,
        )

    def verdict(self) -> str:
        """Returns one line: the peak, the memory, and what binds."""
        peak, memory = self.peak / GIB, self.topology.chip.memory / GIB
        slowest = max(self.programs, key=lambda p: p.calls * p.time)
        if self.fits:
            return (
                f"fits: {peak:.1f} of {memory:.1f} GiB per chip. A step of full-length episodes "
                f"takes at least {self.step_s:.0f} s; {slowest.name} takes most of it, bound by "
                f"{slowest.bound}"
            )
        present = self.largest.residents
        purpose = max(present, key=present.__getitem__)
        if self.largest.temp > present[purpose]:
            binding = f"temporary arrays of {self.largest.name} ({self.largest.temp / GIB:.1f} GiB)"
        else:
            binding = f"{purpose} ({present[purpose] / GIB:.1f} GiB)"
        return (
            f"does not fit: {peak:.1f} of {memory:.1f} GiB per chip in {self.largest.name}; the "
            f"largest part is {binding}"
        )


def make_plan(
    settings: RLSettings,
    mesh: Mapping[str, int],
    topology: Topology,
    progress: Callable[[str], None] = lambda message: None,
) -> Plan:
    """Compiles all programs of a run for a slice and measures them.

    `progress` gets a line before and after each program is compiled.
    """
    made = make_programs(settings, mesh, topology.devices, topology.host_devices)
    costs = [measure_program(program, made, topology, progress) for program in made.programs]
    return Plan(topology, mesh, settings.learner.micro_rows, made.residents, costs)


def measure_program(
    program: Program, made: Programs, topology: Topology, progress: Callable[[str], None]
) -> ProgramCost:
    """Compiles a program of a run and measures it; `progress` gets a line before and after."""
    progress(f"compiling {program.name}")
    residents = {k: v for k, v in made.residents.items() if k not in program.freed}
    started = time.perf_counter()
    flops = count_flops(program.traced.jaxpr, program.trips) / program.num_devices
    try:
        compiled = compile_absent(program.traced)
        memory, text = compiled.memory_analysis(), compiled.as_text()
        assert memory is not None and text is not None, "XLA describes what it compiles"
        temp = memory.temp_size_in_bytes + program.extra
        cost = hlo.measure(text, program.trips)
    except jax.errors.JaxRuntimeError as error:
        needed = _TOO_LARGE.search(str(error))
        if needed is None:
            raise
        temp, cost = round(float(needed[1]) * GIB), hlo.Cost()
    seconds = time.perf_counter() - started
    progress(f"compiled {program.name} in {seconds:.1f} s")
    return ProgramCost(
        name=program.name,
        calls=program.calls,
        compile_s=seconds,
        temp=temp,
        flops=flops,
        traffic=cost.traffic,
        collectives=cost.collectives,
        residents=residents,
        launches=cost.launches,
        largest_copy_in_loop=cost.largest_copy_in_loop,
        seconds={
            "compute": flops / topology.chip.flops,
            "memory": cost.traffic / topology.chip.memory_bandwidth,
            "links": cost.collective_bytes / topology.chip.link_bandwidth,
        },
    )


def format_plan(plan: Plan) -> str:
    """Returns the plan as text: memory by purpose, one line per program, and the verdict."""
    mesh = ", ".join(f"{axis}={size}" for axis, size in plan.mesh.items())
    lines = [
        f"{plan.topology.name}: {plan.topology.num_chips} chips, mesh {mesh}, "
        f"micro_rows={plan.micro_rows}",
        "GiB per chip: "
        + ", ".join(f"{name} {size / GIB:.2f}" for name, size in plan.residents.items()),
        "",
        f"{'program':<20}{'compile':>9}{'temp':>9}{'peak':>9}{'FLOPs':>9}{'HBM':>10}{'links':>9}"
        f"{'copy':>9}{'kernels':>9}{'time':>10}{'calls':>8}",
        f"{'':<20}{'s':>9}{'GiB':>9}{'GiB':>9}{'T':>9}{'GB':>10}{'GB':>9}{'GiB':>9}{'':>9}{'ms':>10}"
        f"{'a step':>8}",
    ]
    for p in plan.programs:
        moved = sum(size for _, size in p.collectives.values())
        lines.append(
            f"{p.name:<20}{p.compile_s:>9.1f}{p.temp / GIB:>9.2f}{p.peak / GIB:>9.2f}"
            f"{p.flops / 1e12:>9.2f}"
            f"{p.traffic / 1e9:>10.2f}{moved / 1e9:>9.2f}{p.largest_copy_in_loop / GIB:>9.2f}"
            f"{p.launches:>9}{p.time * 1e3:>10.1f}{p.calls:>8.0f}  {p.bound}"
        )
    return "\n".join([*lines, "", plan.verdict()])
