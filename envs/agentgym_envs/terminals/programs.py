"""Small Python programs with one mistake each, for the tasks that repair them.

A template is the right program, in which `$0` and `$1` are numbers and `{right|wrong}` marks
the mistake. Its function computes the expected outputs without running the program.
"""

import dataclasses
import random
import re
from collections.abc import Callable

_CHOICE = re.compile(r"\{([^{}|\n]*)\|([^{}|\n]*)\}")
_RUNS = 6  # hidden inputs


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, its purpose, and its expected outputs by input; the first is shown."""

    name: str
    purpose: str
    broken: str
    right: str
    runs: list[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class _Template:
    purpose: str
    code: str
    answer: Callable[[list[int], int, int], str]


_READ = "import sys\n\nnumbers = [int(word) for word in sys.stdin.read().split()]\n"

_TEMPLATES = {
    "total": _Template(
        "It prints the sum of the numbers above $0.",
        "print(sum(n for n in numbers if n {> $0|>= $0}))\n",
        lambda numbers, a, b: str(sum(n for n in numbers if n > a)),
    ),
    "scaled": _Template(
        "It prints each number times $0 plus $1, one per line.",
        "for n in numbers:\n    print({n * $0 + $1|n * ($0 + $1)})\n",
        lambda numbers, a, b: "\n".join(str(n * a + b) for n in numbers),
    ),
    "largest": _Template(
        "It prints the $0 largest numbers, the largest first, one per line.",
        "for n in sorted(numbers{, reverse=True|})[:$0]:\n    print(n)\n",
        lambda numbers, a, b: "\n".join(map(str, sorted(numbers, reverse=True)[:a])),
    ),
    "windows": _Template(
        "It prints the sum of every $0 neighbouring numbers, one per line.",
        "for i in range(len(numbers) - $0{ + 1|}):\n    print(sum(numbers[i : i + $0]))\n",
        lambda numbers, a, b: "\n".join(
            str(sum(numbers[i : i + a])) for i in range(len(numbers) - a + 1)
        ),
    ),
    "unique": _Template(
        "It prints each number modulo $0 once, in the order of the first occurrence, one per line.",
        "seen = set()\nfor n in numbers:\n    if n % $0 not in seen:\n        print(n % $0)\n"
        "    seen.add({n % $0|n})\n",
        lambda numbers, a, b: "\n".join(map(str, dict.fromkeys(n % a for n in numbers))),
    ),
    "running": _Template(
        "It prints the running maximum of the numbers plus $1, one per line.",
        "best = numbers[0]\nfor n in numbers:\n    best = {max(best, n)|max(best, numbers[0])}\n"
        "    print(best + $1)\n",
        lambda numbers, a, b: "\n".join(
            str(max(numbers[: i + 1]) + b) for i in range(len(numbers))
        ),
    ),
    "differences": _Template(
        "It prints the absolute differences of neighbouring numbers times $0, one per line.",
        "for first, second in zip(numbers, numbers[1:]):\n"
        "    print({abs(second - first)|(second - first)} * $0)\n",
        lambda numbers, a, b: "\n".join(
            str(abs(y - x) * a) for x, y in zip(numbers, numbers[1:], strict=False)
        ),
    ),
    "digits": _Template(
        "It prints the sum of the digits of each number in base $0, one per line.",
        "for n in numbers:\n    total = 0\n    while n:\n        total += n % $0\n"
        "        n = {n // $0|n // 10}\n    print(total)\n",
        lambda numbers, a, b: "\n".join(str(_digit_sum(n, a)) for n in numbers),
    ),
    "grouped": _Template(
        "It prints how many numbers have each remainder modulo $0, from 0 to the largest, one per "
        "line.",
        "counts = [0] * $0\nfor n in numbers:\n    counts[n % $0] {+= 1|= 1}\nfor count in counts:\n"
        "    print(count)\n",
        lambda numbers, a, b: "\n".join(str(sum(n % a == r for n in numbers)) for r in range(a)),
    ),
}


def draw(rng: random.Random) -> Program:
    """Returns a random program with its hidden inputs."""
    name = rng.choice(sorted(_TEMPLATES))
    template = _TEMPLATES[name]
    a, b = rng.randint(3, 9), rng.randint(2, 40)

    def fill(text: str) -> str:
        return text.replace("$0", str(a)).replace("$1", str(b))

    # Each input has equal neighbours, the bound itself, and falling numbers, so mistakes show.
    inputs = [
        [rng.randint(20, 60), a, a, *(rng.randint(1, 99) for _ in range(9))] for _ in range(_RUNS)
    ]
    code = fill(_READ + template.code)
    return Program(
        name,
        fill(template.purpose),
        broken=_CHOICE.sub(r"\2", code),
        right=_CHOICE.sub(r"\1", code),
        runs=[
            (" ".join(map(str, numbers)) + "\n", template.answer(numbers, a, b) + "\n")
            for numbers in inputs
        ],
    )


def _digit_sum(number: int, base: int) -> int:
    total = 0
    while number:
        number, digit = divmod(number, base)
        total += digit
    return total
