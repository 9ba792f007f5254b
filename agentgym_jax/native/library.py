"""Compiles the C++ sources of this package at their first use and loads them."""

import ctypes
import functools
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import jaxlib
from absl import logging

FOLDER = pathlib.Path(__file__).parent
TARGETS = {
    "agentgym_skinny_matmul": "SkinnyMatmul",
    "agentgym_skinny_matmul_bfloat16": "SkinnyMatmulBFloat16",
    "agentgym_decode_attention": "DecodeAttention",
    "agentgym_decode_attention_bfloat16": "DecodeAttentionBFloat16",
}
# Each function exists for weights, or a cache, of these types.
SUFFIXES = {jnp.dtype(jnp.float32): "", jnp.dtype(jnp.bfloat16): "_bfloat16"}
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-w")


def cache_folder() -> pathlib.Path:
    """Where compiled sources are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "agentgym_jax" / "native"


@functools.cache
def processor() -> str:
    """What `-march=native` depends on: a home folder may be shared by different machines."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    flags = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return "\n".join([platform.platform(), platform.machine(), *sorted(set(flags))])


def has_tiles() -> bool:
    """If the processor multiplies tiles of bfloat16."""
    return "amx_bf16" in processor()


def compiled(
    sources: pathlib.Path, compilers: Sequence[str], flags: Sequence[str], folder: pathlib.Path
) -> pathlib.Path:
    """The shared library of all `*.cc` in `sources`, compiled unless the folder has it.

    Processes may race for it: each writes a file of its own and renames it.

    Raises:
      FileNotFoundError: none of the compilers exists.
      subprocess.CalledProcessError: the compiler failed; `stderr` says why.
      OSError: the folder cannot be written.
    """
    compiler = next((path for name in compilers if (path := shutil.which(name))), None)
    if compiler is None:
        raise FileNotFoundError(f"no C++ compiler, tried {', '.join(compilers)}")
    files = sorted([*sources.glob("*.cc"), *sources.glob("*.h")])
    texts = [file.read_text(encoding="utf-8") for file in files]
    facts = (texts, compiler, *flags, jaxlib.__version__, processor())
    target = folder / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}.so"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as workspace:
        built = pathlib.Path(workspace) / target.name
        units = [str(file) for file in files if file.suffix == ".cc"]
        command = [compiler, *flags, *units, "-o", str(built)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        os.replace(built, target)
    return target


@functools.cache
def is_registered() -> bool:
    """Makes the functions of TARGETS known to XLA; False, and one line in the log, if impossible."""
    try:
        flags = (*FLAGS, f"-I{jax.ffi.include_dir()}")
        library = ctypes.CDLL(str(compiled(FOLDER, COMPILERS, flags, cache_folder())))
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", None) or str(error)
        reason = told.strip().splitlines()[0]
        logging.warning("decoding on CPU without native functions, slower: %s", reason)
        return False
    for target, function in TARGETS.items():
        capsule = jax.ffi.pycapsule(getattr(library, function))
        jax.ffi.register_ffi_target(target, capsule, platform="cpu")
    return True


def call(function: str, dtype: jax.typing.DTypeLike, result: jax.ShapeDtypeStruct):
    """A function of TARGETS, the one for this type."""
    return jax.ffi.ffi_call(function + SUFFIXES[jnp.dtype(dtype)], result)
