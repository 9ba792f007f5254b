r"""Measures the tokens per second of generation, compared with tunix and transformers, and as a
fraction of the machine's limit.

  PYTHONPATH=. python experiments/benchmarks/decode.py --shape=0.5b --rows=8 \
      --tunix_python=tunix-env/bin/python --torch_python=torch-env/bin/python

All libraries use random weights, prompts of equal length and temperature 1 over the whole
vocabulary; no row ends early. Ours and tunix return the log-probability of every token,
transformers does not. All workers stay in memory and alternate. The time of a decode step is (time
of all tokens - time of one token) / (tokens - 1).
"""

import sys

import machine
import side_by_side
from absl import app, flags
from shapes import SHAPES, decode_limit_s, prefill_limit_s
from side_by_side import Contender

_SHAPE = flags.DEFINE_enum("shape", "30m", sorted(SHAPES), "Shape of the network.")
_ROWS = flags.DEFINE_multi_integer("rows", [8], "Rows that decode together; repeatable.")
_PROMPT = flags.DEFINE_integer("prompt", 128, "Tokens of a prompt.")
_NEW = flags.DEFINE_integer("new", 128, "Tokens to sample in each row.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Number of measurements of each contender.")
_DTYPE = flags.DEFINE_enum(
    "dtype", "float32", ["float32", "bfloat16"], "Data type of ours and tunix."
)
_TUNIX = flags.DEFINE_string(
    "tunix_python", "", "Python interpreter that has google-tunix; empty: not measured."
)
_TORCH = flags.DEFINE_string(
    "torch_python", "", "Python interpreter that has torch; empty: not measured."
)
_BF16 = flags.DEFINE_bool(
    "torch_bfloat16", True, "Whether to measure transformers in bfloat16, too."
)
_OUT = flags.DEFINE_string("out", "", "File that the JSON lines are appended to.")


def contenders(rows: int) -> list[Contender]:
    """Returns the libraries to compare, ours first."""
    options = dict(
        task="decode", shape=_SHAPE.value, rows=rows, prompt=_PROMPT.value, new=_NEW.value
    )
    typed = options | {"dtype": _DTYPE.value}
    found = [Contender("ours", "worker_ours.py", sys.executable, typed)]
    if _TUNIX.value:
        found.append(Contender("tunix", "worker_tunix.py", _TUNIX.value, typed))
    if _TORCH.value:
        for dtype in ("float32", "bfloat16")[: 1 + _BF16.value]:
            name = f"transformers {dtype}"
            typed = options | {"dtype": dtype}
            found.append(Contender(name, "worker_torch.py", _TORCH.value, typed))
    return found


def summary(found: dict, rows: int, limits: dict) -> dict:
    """Returns the rate, share of the limit and ratio of each library."""
    shape, new = SHAPES[_SHAPE.value], _NEW.value
    table = {}
    for name, record in found.items():
        for run in record["runs"]:
            run["tokens_per_s"] = rows * new / run["whole_s"]
            run["step_ms"] = 1e3 * (run["whole_s"] - run["first_s"]) / (new - 1)
        dtype = "bfloat16" if name.endswith("bfloat16") else _DTYPE.value
        step_s = decode_limit_s(shape, rows, _PROMPT.value + new / 2, dtype, limits)
        prefill_s = prefill_limit_s(shape, rows, _PROMPT.value, dtype, limits)
        tokens_per_s = side_by_side.median(found, name, "tokens_per_s")
        step_ms = side_by_side.median(found, name, "step_ms")
        table[name] = dict(
            tokens_per_s=tokens_per_s,
            step_ms=step_ms,
            share_of_limit=(prefill_s + new * step_s) * tokens_per_s / (rows * new),
            share_of_decode_limit=1e3 * step_s / step_ms,
            ours_over_it=side_by_side.ratio_text(
                side_by_side.ratios(found, "ours", name, "tokens_per_s")
            ),
        )
    return table


def main(_: list[str]) -> None:
    """Prints a JSON line and a table for every number of rows."""
    limits = machine.limits(sys.executable, _TORCH.value)
    for rows in _ROWS.value:
        found = side_by_side.compare(contenders(rows), rounds=_ROUNDS.value, keep_alive=True)
        table = summary(found, rows, limits)
        side_by_side.write(
            dict(
                benchmark="decode",
                shape=_SHAPE.value,
                rows=rows,
                prompt=_PROMPT.value,
                new=_NEW.value,
                dtype=_DTYPE.value,
                machine=limits,
                table=table,
                found=found,
            ),
            _OUT.value,
        )
        sys.stderr.write(f"\n{_SHAPE.value}, {rows} rows\n")
        for name, line in table.items():
            sys.stderr.write(
                f"{name:22} {line['tokens_per_s']:8.1f} tokens/s  {line['step_ms']:7.1f} ms a step  "
                f"{100 * line['share_of_limit']:3.0f} % of the limit, decoding "
                f"{100 * line['share_of_decode_limit']:3.0f} %  ours over it {line['ours_over_it']}\n"
            )


if __name__ == "__main__":
    app.run(main)
