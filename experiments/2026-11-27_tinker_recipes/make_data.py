"""Writes sums as conversations, in the form of tinker-cookbook's example data.

python experiments/2026-11-27_tinker_recipes/make_data.py OUT.jsonl
"""

import json
import pathlib
import random
import sys

COUNT = 4000


def main() -> None:
    numbers = random.Random(0)
    with pathlib.Path(sys.argv[1]).open("w") as out:
        for _ in range(COUNT):
            x, y = numbers.randrange(101), numbers.randrange(101)
            messages = [
                {"role": "user", "content": "What is 4 + 5?"},
                {"role": "assistant", "content": "9"},
                {"role": "user", "content": f"What is {x} + {y}?"},
                {"role": "assistant", "content": str(x + y)},
            ]
            out.write(json.dumps({"messages": messages}) + "\n")


if __name__ == "__main__":
    main()
