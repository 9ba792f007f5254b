"""Traffic and collectives of a compiled program, read from its text, with loops multiplied.

A conditional counts as its most expensive branch in bytes of traffic and collectives, so the cost is
an upper bound for the program's inputs.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
_BITS = {"pred": 8, "s4": 4, "u4": 4, "f8": 8, "bf16": 16, "token": 0, "opaque": 0}
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\](\{[^}]*\})?")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_NAME = re.compile(r"%([\w.\-]+)")
_TRIPS = re.compile(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)')
# Instructions that move no data.
_FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id "
    "optimization-barrier while conditional call async-start".split()
)
_READS_A_PART = ("slice", "dynamic-slice", "gather")
_WRITES_A_PART = ("dynamic-update-slice", "scatter")
# Instructions of a fusion that only copies.
_COPIES = frozenset("parameter constant bitcast slice dynamic-slice copy".split())
# Traffic that a kernel states, on TPU and on GPU.
_STATED = re.compile(r'bytes_accessed(?:"|\\22):\s*(?:"|\\22)(\d+)')


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a compiled program.

    Attributes:
      opcode: Operation, such as `fusion` or `all-gather-start`.
      sizes: Bytes of each array of the result that is in HBM.
      whole: Bytes of the result in any memory.
      operands: Names of the operands.
      text: Operands and attributes.
      is_root: True if the line is the result of its computation.
    """

    name: str
    opcode: str
    sizes: tuple[int, ...]
    whole: int
    operands: tuple[str, ...]
    text: str
    is_root: bool

    @property
    def num_bytes(self) -> int:
        """Bytes of the result."""
        return sum(self.sizes)

    def is_parameter(self, index: int) -> bool:
        """Returns True for the parameter with this number."""
        return self.opcode == "parameter" and self.text.startswith(f"({index})")

    def called(self, key: str) -> list[str]:
        """Returns the computations that an attribute such as `body` or `calls` names."""
        found = re.search(key + r"=(?:\{([^}]*)\}|(%?[\w.\-]+))", self.text)
        names = "" if found is None else found.group(1) or found.group(2)
        return [name.strip().lstrip("%") for name in names.split(",") if name]


@dataclasses.dataclass
class Cost:
    """Work of a program per chip.

    Attributes:
      traffic: Bytes read from and written to HBM.
      collectives: Number and bytes of each type of collective.
      launches: Number of executed instructions that move data.
      largest_copy_in_loop: Bytes of the largest copied array inside a loop.
    """

    traffic: float = 0.0
    collectives: dict[str, tuple[int, float]] = dataclasses.field(default_factory=dict)
    launches: int = 0
    largest_copy_in_loop: int = 0

    @property
    def collective_bytes(self) -> float:
        """Bytes that all collectives move."""
        return sum(size for _, size in self.collectives.values())


Computation = dict[str, Instruction]
Module = dict[str, Computation]


def measure(text: str, trips: Mapping[str, float]) -> Cost:
    """Measures a compiled program, given the text of its module.

    `trips` is the number of iterations of loops without a constant number, by a `jax.named_scope`
    around the loop. A loop in no scope counts once.
    """
    module, entry = parse(text)
    return _measure(module, _executed(module, entry, trips, 1.0))


def _measure(module: Module, executed: Iterator[tuple[Computation, Instruction, float]]) -> Cost:
    cost = Cost()
    for own, instruction, times in executed:
        for opcode, moved in _collectives(module, own, instruction):
            count, size = cost.collectives.get(opcode, (0, 0.0))
            cost.collectives[opcode] = (count + round(times), size + moved * times)
        if instruction.opcode in _FREE or instruction.opcode.endswith("-done"):
            continue
        cost.launches += round(times)
        cost.traffic += times * _traffic(module, own, instruction)
        if times > 1 and _is_copy(module, instruction):
            largest = max(instruction.sizes, default=0)
            cost.largest_copy_in_loop = max(cost.largest_copy_in_loop, largest)
    return cost


def parse(text: str) -> tuple[Module, str]:
    """Returns the instructions of each computation, and the name of the entry computation."""
    module: Module = {}
    entry, current = "", ""
    for line in text.splitlines():
        start = _COMPUTATION.match(line)
        if start is not None:
            current = start.group(2)
            module[current] = {}
            entry = current if start.group(1) else entry
        elif line.startswith("  ") and " = " in line and current:
            instruction = _parse_line(line.strip())
            module[current][instruction.name] = instruction
    return module, entry


def _parse_line(line: str) -> Instruction:
    left, _, right = line.partition(" = ")
    end = _matching(right, 0) + 1 if right.startswith("(") else right.index(" ")
    result, rest = right[:end], right[end:].lstrip()
    opcode = rest[: rest.index("(")]
    close = _matching(rest, len(opcode))
    return Instruction(
        name=left.removeprefix("ROOT ").lstrip("%"),
        opcode=opcode,
        sizes=tuple(0 if on_chip else size for size, on_chip in _sizes(result)),
        whole=sum(size for size, _ in _sizes(result)),
        operands=tuple(_NAME.findall(rest[len(opcode) : close])),
        text=rest[len(opcode) :],
        is_root=left.startswith("ROOT "),
    )


def _matching(text: str, start: int) -> int:
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise ValueError(f"no closing parenthesis in {text[start : start + 80]!r}")


def _sizes(text: str) -> Iterator[tuple[int, bool]]:
    """Yields the bytes of each array of a type, and True if the array is in on-chip memory."""
    for dtype, dims, layout in _SHAPE.findall(text):
        digits = re.search(r"\d+", dtype)
        bits = _BITS[dtype] if dtype in _BITS else int(digits.group()) if digits else 32
        size = math.prod(int(n) for n in dims.split(",") if n) * bits // 8
        yield size, re.search(r"S\([1-9]\)", layout) is not None


def _collectives(
    module: Module, own: Computation, instruction: Instruction
) -> Iterator[tuple[str, int]]:
    """Yields type and bytes of the collectives of an instruction; a fusion can have some.

    The bytes are those of the operands or of the results, the larger of the two. The TPU compiler
    fuses an all-reduce with the slice of each chip, which is a reduce-scatter.
    """
    opcode = instruction.opcode.removesuffix("-start")
    if opcode in COLLECTIVES:
        given = sum(own[name].whole for name in instruction.operands if name in own)
        yield opcode, max(given, instruction.whole - _repeated(instruction, given))
    elif opcode == "fusion":
        for name in instruction.called("calls"):
            for line in module[name].values():
                for inner, size in _collectives(module, module[name], line):
                    is_scatter = inner == "all-reduce" and "scatter" in name
                    yield ("reduce-scatter" if is_scatter else inner), size


def _repeated(instruction: Instruction, given: int) -> int:
    """Returns the bytes of a result that are those of the operands (`given`).

    The start of an asynchronous collective returns its operands next to its results; that of an
    all-reduce returns its results only.
    """
    is_start = instruction.opcode.endswith("-start") and instruction.opcode != "all-reduce-start"
    return given if is_start else 0


def _is_copy(module: Module, instruction: Instruction) -> bool:
    """Returns True for a copy, which can be a fusion on GPU."""
    if instruction.opcode != "fusion":
        return instruction.opcode.startswith("copy")
    body = [line for name in instruction.called("calls") for line in module[name].values()]
    return all(line.opcode in _COPIES for line in body) and any(
        line.opcode == "copy" for line in body
    )


def _executed(
    module: Module, name: str, trips: Mapping[str, float], times: float
) -> Iterator[tuple[Computation, Instruction, float]]:
    """Yields the instructions outside fusions, with their computation and number of executions."""
    for instruction in module[name].values():
        yield module[name], instruction, times
        if instruction.opcode == "while":
            (body,) = instruction.called("body")
            yield from _executed(module, body, trips, times * _trips(module, instruction, trips))
        elif instruction.opcode == "conditional":
            branches = instruction.called("branch_computations") or [
                *instruction.called("true_computation"),
                *instruction.called("false_computation"),
            ]
            costs = {b: _measure(module, _executed(module, b, trips, 1.0)) for b in branches}
            size = {b: cost.traffic + cost.collective_bytes for b, cost in costs.items()}
            yield from _executed(module, max(size, key=size.__getitem__), trips, times)
        elif instruction.opcode in ("call", "async-start"):
            for called in instruction.called("to_apply") or instruction.called("calls"):
                yield from _executed(module, called, trips, times)


def _trips(module: Module, loop: Instruction, trips: Mapping[str, float]) -> float:
    scopes = re.search(r'op_name="([^"]*)"', loop.text)
    path = scopes.group(1) if scopes else ""
    last = path.rpartition("/while")[0].rpartition("/")[2]
    named = [count for scope, count in trips.items() if scope in last]
    if named:
        return named[0]
    known = _TRIPS.search(loop.text)
    if known is not None:
        return float(known.group(1))
    # The TPU compiler states no number. A loop with a constant number compares its counter, which
    # starts at 0, with the only constant of its condition.
    limits = [
        line.text.strip("(").split(")")[0]
        for name in loop.called("condition")
        for line in module[name].values()
        if line.opcode == "constant"
    ]
    return float(limits[0]) if len(limits) == 1 and limits[0].isdigit() else 1.0


def _traffic(module: Module, own: Computation, instruction: Instruction) -> int:
    """Returns the bytes that an instruction reads from and writes to HBM."""
    operands = [own[name] for name in instruction.operands if name in own]
    if instruction.opcode in _READS_A_PART:
        return 2 * instruction.num_bytes
    if instruction.opcode in _WRITES_A_PART:
        return 2 * sum(operand.num_bytes for operand in operands[1:])
    stated = _STATED.search(instruction.text)
    if instruction.opcode == "custom-call" and stated is not None:  # a kernel states its traffic
        return int(stated.group(1))
    if instruction.opcode != "fusion":
        given = sum(operand.num_bytes for operand in operands)
        return given + instruction.num_bytes - _repeated(instruction, given)
    reads = [_read(module, instruction, i, x.num_bytes) for i, x in enumerate(operands)]
    writes = 0 if any(in_place for _, in_place in reads) else instruction.num_bytes
    return writes + sum(size for size, _ in reads)


def _read(module: Module, fusion: Instruction, index: int, whole: int) -> tuple[int, bool]:
    """Returns the bytes that a fusion reads of an operand, and True if it updates it in place.

    A fusion that slices an operand reads the slices only. One that updates a slice of an operand
    writes this slice only, so the bytes are those of the slice and its source.
    """
    (name,) = fusion.called("calls")
    body = module[name]
    parameter = next(line for line in body.values() if line.is_parameter(index))
    size, in_place = 0, False
    for line in _users(module, body, parameter):
        if line.opcode in _READS_A_PART:
            size += line.num_bytes
        elif line.opcode in _WRITES_A_PART and line.operands[0] == parameter.name:
            size += 2 * sum(body[name].num_bytes for name in line.operands[1:2])
            in_place = True
        elif line.opcode == "fusion":
            inner, updated = _read(module, line, line.operands.index(parameter.name), whole)
            size, in_place = size + inner, in_place or updated
        else:
            return whole, False
    return min(size, whole), in_place


def _users(module: Module, body: Computation, producer: Instruction) -> Iterator[Instruction]:
    """Yields the instructions of a fusion that use a value, directly or through other forms of it.

    These forms are a bitcast and a copy in place: the TPU compiler changes the tiles of int8 weights
    while it reads them.
    """
    for line in body.values():
        if producer.name in line.operands:
            in_place = "output_to_operand_aliasing" in line.text and _is_copy(module, line)
            if (line.opcode == "bitcast" or in_place) and not line.is_root:
                yield from _users(module, body, line)
            else:
                yield line
