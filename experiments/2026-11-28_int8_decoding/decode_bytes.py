r"""Bytes of HBM that one compiled decode step reads and writes, with bfloat16 and with int8 weights or cache.

  PYTHONPATH=. python experiments/2026-11-28_int8_decoding/decode_bytes.py \
      --slices=v5e-16,h100-8 --sizes=0p5b,7b --cache_length=1024

Needs the extras `plan` and `cuda`. `--cache_length=0` keeps that of the config (10,752 tokens).
"""

import itertools
import pathlib

import jax
from absl import app, flags

from agentgym_jax.config.sections import plain
from agentgym_jax.planning import hlo
from agentgym_jax.planning.programs import make_programs
from agentgym_jax.planning.topology import compile_absent, parse_topology
from agentgym_jax.rl.rl_config import parse
from configs.paper import textcraft
from configs.paper.common import CHIPS

SLICES = flags.DEFINE_list(
    "slices", ["v5e-16", "h100-8"], "Keys of CHIPS in configs/paper/common.py."
)
SIZES = flags.DEFINE_list("sizes", ["0p5b", "7b"], "Sizes of Qwen2.5.")
DTYPES = flags.DEFINE_list("dtypes", ["bfloat16", "int8"], "Values of model.decode_dtype.")
CACHES = flags.DEFINE_list("caches", ["computed"], "Values of model.cache_dtype.")
CACHE_LENGTH = flags.DEFINE_integer("cache_length", 1024, "Tokens per row of the cache.", 0)
TEXTS = flags.DEFINE_string("texts", "", "Folder for the texts of the compiled programs.")


def measure(size, chips, dtype, cache_dtype):
    """Prints bytes and roofline time of a decode step."""
    config = plain(textcraft.get_config(f"size={size},chips={chips}"))
    config["model"]["decode_dtype"] = dtype
    config["model"]["cache_dtype"] = cache_dtype
    config["algorithm"]["correction"] = dict(kind="truncated", cap=2.0)
    if CACHE_LENGTH.value:
        config["sampler"]["cache_length"] = CACHE_LENGTH.value
        config["sampling"]["max_tokens"] = CACHE_LENGTH.value
        config["sampler"]["buckets"] = ()
    topology = parse_topology(CHIPS[chips][0])
    settings = parse(config)
    made = make_programs(settings, config["mesh"], topology.devices, topology.host_devices)
    program = next(p for p in made.programs if p.name.startswith("decode"))
    text = compile_absent(program.traced).as_text()
    if TEXTS.value:
        path = pathlib.Path(TEXTS.value) / f"{chips}_{size}_{dtype}_{cache_dtype}.txt"
        path.write_text(text)
    steps = program.trips["decode_steps"]
    per_step = hlo.measure(text, program.trips).traffic / steps
    weights, cache = made.residents["decode weights"], made.residents["cache"]
    print(
        f"{chips} {size} {dtype}, cache {cache_dtype}: {per_step / 1e9:.3f} GB and "
        f"{1e3 * per_step / topology.chip.memory_bandwidth:.2f} ms per step; decode weights "
        f"{weights / 1e9:.3f} GB, cache {cache / 1e9:.3f} GB per chip",
        flush=True,
    )


def main(argv):
    """Measures all chosen programs."""
    del argv
    jax.config.update("jax_platforms", "cpu")
    for chips in SLICES.value:
        for size in SIZES.value:
            for dtype, cache_dtype in itertools.product(DTYPES.value, CACHES.value):
                measure(size, chips, dtype, cache_dtype)


if __name__ == "__main__":
    app.run(main)
