"""Scales the last norm of a Hugging Face directory with random weights.

python experiments/2026-11-27_tinker_recipes/scale_base.py HF_DIR

Adapters change neither the last norm nor the tied embeddings. With the usual small random weights the
largest logits are about 3, so no adapter could make an answer likely. The factor 8 allows logits of
about 20.
"""

import pathlib
import sys

from safetensors.numpy import load_file, save_file

FACTOR = 8.0


def main() -> None:
    path = pathlib.Path(sys.argv[1]) / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * FACTOR
    save_file(tensors, path, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
