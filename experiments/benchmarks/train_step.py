r"""Measures the training tokens per second of one optimiser step, compared with tunix and
transformers on torch.

  PYTHONPATH=. python experiments/benchmarks/train_step.py --shape=30m --rows=8 --tokens=512 \
      --tunix_python=tunix-env/bin/python --torch_python=torch-env/bin/python

The batch has full rows of random tokens; AdamW has float32 moments. The fraction is relative to the
machine's rate of large products; forward and backward pass count as three forward passes, with all
logits. `peak_gib` is the peak memory of the process; weights, gradients and two moments take 16
bytes per weight.

In bfloat16 torch needs a processor with bfloat16 products; without AVX-512 a step takes minutes. In
that case --torch_dtype=float32 compares with torch in float32. The next command runs a step of real
size, one process at a time:

  PYTHONPATH=. python experiments/benchmarks/train_step.py --shape=0.5b --rows=1 --tokens=1024 \
      --dtype=bfloat16 --torch_dtype=float32 --vocab_chunk=128 --rounds=2 --nokeep_alive \
      --torch_python=torch-env/bin/python

--lora_rank=16 trains adapters of frozen weights, in torch with the library PEFT.

--action_share=0.25 gives an agent's batch: of every 128 tokens the last 32 were sampled and have a
loss, the other tokens are observations. --vocab changes the vocabulary size of the shape, to
measure how memory grows with the vocabulary.
"""

import sys

import machine
import side_by_side
from absl import app, flags
from shapes import SHAPES, shape_of, train_flops
from side_by_side import Contender

from agentgym_jax.models.policy import ATTENTIONS

_SHAPE = flags.DEFINE_enum("shape", "30m", sorted(SHAPES), "Shape of the network.")
_ROWS = flags.DEFINE_integer("rows", 8, "Rows of a step.")
_TOKENS = flags.DEFINE_integer("tokens", 512, "Tokens of a row.")
_ACTIONS = flags.DEFINE_float(
    "action_share", 1.0, "Share of the tokens that have a loss.", 0.0, 1.0
)
_VOCAB = flags.DEFINE_integer("vocab", 0, "Size of the vocabulary; 0: that of the shape.", 0)
_MICRO_ROWS = flags.DEFINE_integer("micro_rows", 0, "Rows that our step computes together; 0: all.")
_VOCAB_CHUNK = flags.DEFINE_integer(
    "vocab_chunk", 512, "Tokens for which our step computes logits together."
)
_DTYPE = flags.DEFINE_enum(
    "dtype", "float32", ["float32", "bfloat16"], "Data type of matrix products."
)
_TORCH_DTYPE = flags.DEFINE_enum(
    "torch_dtype",
    "",
    ["", "float32", "bfloat16"],
    "Data type of torch's products; empty: the same as --dtype.",
)
_REMAT = flags.DEFINE_string(
    "remat",
    "none",
    "Rematerialisation of our step: none, block or dots. Torch has one kind, used if not none.",
)
_LORA = flags.DEFINE_integer(
    "lora_rank", 0, "Rank of adapters of all kernels of the layers; 0 trains all weights.", 0
)
_ATTENTION = flags.DEFINE_enum(
    "attention", "kernels", ATTENTIONS, "Attention of our step on a GPU; rows have one segment."
)
_MOMENTS = flags.DEFINE_enum(
    "moments", "float32", ["float32", "bfloat16", "int8"], "Type of our optimiser's moments."
)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Number of measurements of each contender.")
_KEEP = flags.DEFINE_bool("keep_alive", True, "Whether all workers stay in memory together.")
_TUNIX = flags.DEFINE_string(
    "tunix_python", "", "Python interpreter that has google-tunix; empty: not measured."
)
_TORCH = flags.DEFINE_string(
    "torch_python", "", "Python interpreter that has torch; empty: not measured."
)
_OUT = flags.DEFINE_string("out", "", "File that the JSON line is appended to.")


def contenders() -> list[Contender]:
    """Returns the libraries to compare, ours first."""
    options = dict(
        task="train",
        shape=_SHAPE.value,
        dtype=_DTYPE.value,
        rows=_ROWS.value,
        tokens=_TOKENS.value,
        action_share=_ACTIONS.value,
        vocab=_VOCAB.value,
        remat=_REMAT.value,
        lora_rank=_LORA.value,
    )
    of_ours = options | dict(
        micro_rows=_MICRO_ROWS.value or _ROWS.value,
        vocab_chunk=_VOCAB_CHUNK.value,
        moments=_MOMENTS.value,
        attention=_ATTENTION.value,
    )
    found = [Contender("ours", "worker_ours.py", sys.executable, of_ours)]
    if _TUNIX.value:
        found.append(Contender("tunix", "worker_tunix.py", _TUNIX.value, options))
    if _TORCH.value:
        of_torch = options | dict(dtype=_TORCH_DTYPE.value or _DTYPE.value)
        found.append(Contender("transformers", "worker_torch.py", _TORCH.value, of_torch))
    return found


def main(_: list[str]) -> None:
    """Prints one JSON line and a table."""
    limits = machine.limits(sys.executable, _TORCH.value)
    found = side_by_side.compare(contenders(), rounds=_ROUNDS.value, keep_alive=_KEEP.value)
    tokens = _ROWS.value * _TOKENS.value
    shape = shape_of(dict(shape=_SHAPE.value, vocab=_VOCAB.value))
    least_s = train_flops(shape, _ROWS.value, _TOKENS.value) / (
        1e9 * limits["matmul_gflops"][_DTYPE.value]
    )
    table = {}
    for name, record in found.items():
        for run in record["runs"]:
            run["tokens_per_s"] = tokens / run["wall_s"]
        table[name] = dict(
            tokens_per_s=side_by_side.median(found, name, "tokens_per_s"),
            share_of_limit=least_s / side_by_side.median(found, name, "wall_s"),
            peak_gib=side_by_side.median(found, name, "peak_gib"),
            ours_over_it=side_by_side.ratio_text(
                side_by_side.ratios(found, "ours", name, "tokens_per_s")
            ),
        )
    names = ("shape", "vocab", "rows", "tokens", "action_share", "dtype")
    names += ("micro_rows", "vocab_chunk", "remat", "lora_rank", "moments", "torch_dtype")
    names += ("attention",)
    options = {name: flags.FLAGS[name].value for name in names}
    record = dict(benchmark="train_step", options=options, machine=limits, table=table, found=found)
    side_by_side.write(record, _OUT.value)
    for name, line in table.items():
        sys.stderr.write(
            f"{name:14} {line['tokens_per_s']:8.1f} tokens/s  {100 * line['share_of_limit']:3.0f} % "
            f"of the limit  {line['peak_gib']:.2f} GiB  ours over it {line['ours_over_it']}\n"
        )


if __name__ == "__main__":
    app.run(main)
