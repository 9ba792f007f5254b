r"""Writes a model as a Hugging Face directory, or the recorded episodes of a run as traces.

  python -m agentgym_jax.export --model=runs/textcraft --out=exports/textcraft
  python -m agentgym_jax.export --model=runs/lora --adapters --out=exports/adapters
  python -m agentgym_jax.export --trajectories=runs/textcraft --format=atif --out=exports/traces

The model is a run folder or its URL in a bucket (the latest checkpoint), a Hugging Face directory
or hub id, or a preset with random weights. Its tokenizer is written too. Adapters of a run with
`config.model.lora` are merged into their base, or written alone with --adapters. docs/offline.md
describes the formats of traces: `atif` (Harbor) and `training_trace` (OpenEnv).
"""

if __name__ == "__main__":  # before JAX is imported
    from agentgym_jax.runs import interrupts

    interrupts.install()

import pathlib
import sys
import tempfile
from collections.abc import Sequence

from absl import app, flags, logging

from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.cli.startup import launch
from agentgym_jax.learner import stored_weights
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.models import peft_files, sources
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import check_target, copy_tokenizer, save_hf
from agentgym_jax.traces.files import FORMATS, export_traces

DTYPES = ("bfloat16", "float32")
# suffixes of model files, which the name of an exported directory must not have
FILE_SUFFIXES = (".gguf", ".safetensors", ".bin", ".pt", ".onnx")


def export(model: str, out: str, *, dtype: str, overwrite: bool) -> pathlib.Path:
    """Exports a model as a Hugging Face directory; returns the path of the directory.

    `transformers` 5 splits words by Qwen2's rules for every model of type qwen2. A model with
    Qwen2.5's architecture and another tokenizer, such as one trained with this package, is
    therefore written with the model type llama, which computes the same function.

    Raises:
      FileExistsError: `out` exists, and `overwrite` is False or `out` is no earlier export.
      ValueError: `out` has the suffix of a file, or is the base of the model's adapters.
    """
    target = pathlib.Path(out).expanduser()
    if target.suffix in FILE_SUFFIXES:
        raise ValueError(
            f"--out={out} ends in {target.suffix} like a file, but an export is a directory of "
            f"safetensors: use --out={target.with_suffix('')}"
        )
    check_target(target, overwrite)  # the target is checked before the weights are loaded
    source = sources.resolve(model)
    _check_bases(source, target)
    policy = Policy(source.config)
    tokenizer, checked = source.tokenizer_path, None
    if tokenizer is not None:
        known = ("tokenizer.json", "tokenizer.model", "vocab.json")
        found = [name for name in known if (tokenizer / name).exists()]
        if source.kind != "workdir" and not found:
            tokenizer = None
        elif found and found != ["vocab.json"]:
            checked = sources.read_tokenizer(source)
    params = stored_weights.load(source, policy)
    with tempfile.TemporaryDirectory() as temporary:
        as_llama = False
        if tokenizer is None:
            logging.warning("%s has no tokenizer: %s will hold none", model, target)
        elif checked is not None:
            as_llama = source.config.qkv_bias and not checked.is_qwen2
            copy = pathlib.Path(temporary)
            copy_tokenizer(tokenizer, copy)
            if as_llama:  # the tokenizer files name the general class of `transformers`
                checked.save(copy)
            checked.save_end_ids(copy)  # those of the base, if the model is a directory of adapters
            tokenizer = copy
        save_hf(
            params,
            source.config,
            target,
            dtype=dtype,
            tokenizer_files=tokenizer,
            as_llama=as_llama,
            overwrite=overwrite,
        )
    logging.info("wrote %d parameters as %s to %s", policy.num_parameters, dtype, target)
    return target


def _check_bases(source: sources.ModelSource, target: pathlib.Path) -> None:
    """Raises ValueError if the export would replace weights that the model's adapters need."""
    base = stored_weights.base_source(source)
    while base is not None:
        if base.path is not None and target.exists() and target.samefile(base.path):
            raise ValueError(
                f"--out={target} is the base of the adapters of {source.model}, which need it: choose "
                "another --out"
            )
        base = stored_weights.base_source(base)


def export_adapters(model: str, out: str, *, dtype: str, overwrite: bool) -> pathlib.Path:
    """Exports the adapters of a run as a directory of the library PEFT; returns its path.

    Raises:
      FileExistsError: `out` exists, and `overwrite` is False or `out` is no earlier export.
      ValueError: The model is no run that trained adapters of stored weights.
    """
    target = pathlib.Path(out).expanduser()
    check_target(target, overwrite, (peft_files.CONFIG_FILE, peft_files.WEIGHTS_FILE))
    source = sources.resolve(model)
    adapters = params = None
    if source.kind == "workdir":
        policy = Policy(source.config)
        adapters, params = stored_weights.load_adapters(source, policy)
    if adapters is None or params is None:
        raise ValueError(f"--adapters: {model} is no run with config.model.lora")
    base = stored_weights.base_source(source)
    if base is None or base.kind != "hf_dir":
        raise ValueError(
            f"--adapters: the base of {model} is no Hugging Face directory or hub id, so other "
            "programs cannot load it; export the merged model without --adapters"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as temporary:
        new = pathlib.Path(temporary) / "new"
        new.mkdir()
        is_path = pathlib.Path(base.model).expanduser().exists()
        name = str(base.folder.resolve()) if is_path else base.model
        peft_files.save(new, adapters, params, base=name, dtype=dtype)
        copy_tokenizer(source.folder / "tokenizer", new)
        if target.exists():
            target.rename(pathlib.Path(temporary) / "old")
        new.rename(target)
    logging.info("wrote %d parameters as %s to %s", adapters.num_parameters, dtype, target)
    return target


def define_flags() -> None:
    """Defines the flags of the command line."""
    flags.DEFINE_string("model", None, "Run folder, Hugging Face directory or id, preset.")
    flags.DEFINE_string("out", None, "Directory to write.")
    flags.DEFINE_enum("dtype", "bfloat16", DTYPES, "Type of the stored tensors.")
    flags.DEFINE_bool("overwrite", False, "Replace an earlier export.")
    flags.DEFINE_bool("adapters", False, "Write only the adapters (LoRA), in PEFT's format.")
    flags.DEFINE_string("trajectories", None, "Run folder, or a file of its episodes.")
    flags.DEFINE_enum("format", None, FORMATS, "Format of the traces of --trajectories.")


def main(argv: Sequence[str]) -> None:
    """Runs the program; requires the flags of `define_flags`."""
    values = flags.FLAGS
    if (values.model is None) == (values.trajectories is None):
        raise app.UsageError("give either --model or --trajectories")
    if values.adapters and values.model is None:
        raise app.UsageError("--adapters needs --model, a run with config.model.lora")
    if (values.trajectories is None) != (values.format is None):
        raise app.UsageError(f"--trajectories needs --format, one of {', '.join(FORMATS)}")
    prepare()
    if values.trajectories is not None:
        target, count = export_traces(values.trajectories, values.out, form=values.format)
        sys.stdout.write(f"wrote {count} episodes as {values.format} to {target}\n")
        return
    write = export_adapters if values.adapters else export
    written = write(values.model, values.out, dtype=values.dtype, overwrite=values.overwrite)
    sys.stdout.write(f"wrote {values.model} as {values.dtype} to {written}\n")


if __name__ == "__main__":
    define_flags()
    launch(main, "out", errors=(ValueError, OSError, CheckpointError))
