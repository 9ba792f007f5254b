r"""Prints the results of gpu.sh as Markdown tables.

python experiments/benchmarks/report.py FOLDER/gpu.jsonl
"""

import contextlib
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
            attention = f", {options['attention']}" if options.get("attention") == "cudnn" else ""
            yield (
                options["shape"],
                f"{options['rows']} x {options['tokens']}",
                (f"LoRA {rank}" if rank else "all") + attention,
                name,
                f"{found['tokens_per_s']:,.0f}",
                f"{100 * found['share_of_limit']:.0f} %",
                f"{found['peak_gib']:.1f} GiB",
            )


def rl_rows(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    """Yields variant, seconds of the step and its parts, tokens per second, MFU and gap."""
    for line in lines:
        yield (
            line["variant"],
            line["model"],
            *(f"{line[name]:.2f}" for name in ("step_s", "rollout_s", "prefill_s", "decode_s")),
            f"{line['tokens_per_s']:,.0f}",
            f"{1 / line['tokens_per_step']:.2f}",
            f"{line['update_s']:.2f}",
            f"{100 * line['mfu']:.1f} %",
            f"{line['gap_mean']:.4f}, {line['gap_max']:.3f}",
        )


def attention_rows(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    """Yields heads, rows and segments, and milliseconds and error of each attention."""
    for line in lines:
        for name, found in line["table"].items() if line["kernel"] == "packed" else ():
            rows, tokens, segment = line["options"]
            error = found["error"]
            yield (
                line["shape"],
                f"{rows} x {tokens}, segments of {segment}",
                name,
                f"{found['forward_ms']:.2f}",
                f"{found['both_ms']:.2f}",
                "" if error is None else f"{error:.4f}",
            )


def ratio_rows(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    """Yields the columns of docs/results.md: work, type, device and commit, and the ratio to each
    other library in the same run.
    """
    for line in lines:
        options = line.get("options") or line | dict(tokens=f"{line['prompt']} + {line['new']}")
        weights = f", LoRA {options['lora_rank']}" if options.get("lora_rank") else ""
        dtype = options.get("dtype", "bfloat16")
        ratios = {name: found.get("ours_over_it", "") for name, found in line["table"].items()}
        torch = ratios.get("transformers") or ratios.get(f"transformers {dtype}", "")
        if "tunix" in ratios or torch:
            yield (
                f"{line['benchmark'].replace('_', ' ')}, {options['shape']} shape, "
                f"{options['rows']} x {options['tokens']} tokens{weights}",
                dtype,
                f"{line['machine']['by_library']['jax']['device']}, {line.get('commit', '')}",
                ratios.get("tunix", ""),
                torch,
            )


# What a result measures; a later result replaces an earlier one of the same.
MEASURED = ("benchmark", "variant", "model", "kernel", "shape", "rows", "options")

TABLES = {
    "rl_step": (
        rl_rows,
        ("settings", "model", "step, s", "rollout", "prefill", "decode", "tokens/s")
        + ("steps per token", "update, s", "MFU", "gap, mean and largest"),
    ),
    "attention_kernels": (
        attention_rows,
        ("heads", "rows", "attention", "forward, ms", "both passes, ms", "error"),
    ),
    "train_step, decode": (
        ratio_rows,
        ("work", "type", "processor, commit", "tunix", "transformers / torch"),
    ),
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
    """Prints the tables for which the file has results."""
    results = {}
    for text in pathlib.Path(path).read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # a line that was cut when the script ended
            line = json.loads(text)
            results[json.dumps([line.get(name) for name in MEASURED])] = line
    for names, (rows, heads) in TABLES.items():
        found = list(rows([x for x in results.values() if x["benchmark"] in names.split(", ")]))
        if found:
            table = [heads, tuple("---" for _ in heads), *found]
            text = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
            sys.stdout.write(f"\n{text}\n")


if __name__ == "__main__":
    main(sys.argv[1])
