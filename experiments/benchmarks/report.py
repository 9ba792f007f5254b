r"""Prints the results of gpu.sh as Markdown tables.

python experiments/benchmarks/report.py FOLDER/gpu.jsonl
"""

import json
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Line = Mapping[str, Any]


def decode_rows(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    """Yields shape, rows, tokens per second, milliseconds per step, and share of the limit."""
    for line in lines:
        for name, found in line["table"].items():
            yield (
                line["shape"],
                str(line["rows"]),
                name,
                f"{found['tokens_per_s']:,.0f}",
                f"{found['step_ms']:.2f}",
                f"{100 * found['share_of_decode_limit']:.0f} %",
            )


def load_rows(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    """Yields the same columns for the published load, and the share of time for prompts."""
    for line in lines:
        yield (
            line["shape"],
            str(line["rows"]),
            f"{line['tokens_per_s']:,.0f}",
            f"{line['step_ms']:.2f}",
            f"{100 * line['share_of_decode_limit']:.0f} %",
            f"{100 * line['prefill_s'] / line['seconds']:.0f} %",
        )


def train_rows(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    """Yields shape, batch, trained weights, tokens per second, share of the limit and memory."""
    for line in lines:
        options = line["options"]
        rank = options["lora_rank"]
        for name, found in line["table"].items():
            yield (
                options["shape"],
                f"{options['rows']} x {options['tokens']}",
                f"LoRA {rank}" if rank else "all",
                name,
                f"{found['tokens_per_s']:,.0f}",
                f"{100 * found['share_of_limit']:.0f} %",
                f"{found['peak_gib']:.1f} GiB",
            )


TABLES = {
    "request_load": (
        load_rows,
        ("shape", "rows", "tokens/s", "ms per step", "of the decode limit", "time of prompts"),
    ),
    "decode": (
        decode_rows,
        ("shape", "rows", "library", "tokens/s", "ms per step", "of the decode limit"),
    ),
    "train_step": (
        train_rows,
        ("shape", "batch", "weights", "library", "tokens/s", "of the limit", "peak of the host"),
    ),
}


def main(path: str) -> None:
    """Prints one table per benchmark that the file has."""
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    for name, (rows, heads) in TABLES.items():
        own = [line for line in lines if line["benchmark"] == name]
        if own:
            table = [heads, tuple("---" for _ in heads), *rows(own)]
            text = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
            sys.stdout.write(f"\n{text}\n")


if __name__ == "__main__":
    main(sys.argv[1])
