"""Compilation of this package's C++ sources when they are first needed."""

import ctypes
import functools
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

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
# Suffix of the function names for each type of weights or cache.
SUFFIXES = {jnp.dtype(jnp.float32): "", jnp.dtype(jnp.bfloat16): "_bfloat16"}
COMPILERS = ("c++", "g++", "clang++")
SWITCH = "AGENTGYM_JAX_NATIVE"  # environment variable; 0 disables the native functions
COMPILER_TIMEOUT_S = 600.0
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-w")


def _cache_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if base.startswith("~"):
        raise FileNotFoundError("no folder for compiled functions: set HOME or XDG_CACHE_HOME")
    return pathlib.Path(base) / "agentgym_jax" / "native"


class Compiler(NamedTuple):
    """A C++ compiler."""

    command: tuple[str, ...]  # path, then arguments of every call
    version: str  # first line of the output of `--version`


def find_compiler() -> Compiler:
    """Returns the compiler in the variables CXX or CC, else the first installed of COMPILERS."""
    if named := os.environ.get("CXX"):
        choices = [shlex.split(named)]
    elif named := os.environ.get("CC"):
        # A C compiler does not link the C++ library by itself.
        choices = [[*shlex.split(named), "-lstdc++"]]
    else:
        choices = [[name] for name in COMPILERS]
    for name, *arguments in choices:
        if path := shutil.which(name):
            version = _run([path, "--version"], check=False)
            return Compiler((path, *arguments), version.partition("\n")[0])
    raise FileNotFoundError(f"no C++ compiler, tried {', '.join(c[0] for c in choices)}")


def _run(command: Sequence[str], *, check: bool) -> str:
    """Returns the standard output of a compiler."""
    result = subprocess.run(
        command, check=check, capture_output=True, text=True, timeout=COMPILER_TIMEOUT_S
    )
    return result.stdout


@functools.cache
def _processor() -> str:
    """Returns the properties of the processor that determine the result of `-march=native`."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    flags = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return "\n".join([platform.platform(), platform.machine(), *sorted(set(flags))])


def has_tiles() -> bool:
    """Returns True if the processor has a tile unit for bfloat16."""
    return "amx_bf16" in _processor()


def compiled(
    sources: pathlib.Path, compiler: Compiler, flags: Sequence[str], folder: pathlib.Path
) -> pathlib.Path:
    """Returns the shared library of all `*.cc` in `sources`; compiles it if `folder` lacks it.

    Several processes may compile at the same time: each process writes a temporary file and renames
    it. The file name ends with a hash of the file's contents, because loading a truncated file
    kills the process.
    """
    files = sorted([*sources.glob("*.cc"), *sources.glob("*.h")])
    texts = [file.read_text(encoding="utf-8") for file in files]
    # Machines with different processors may share the folder.
    facts = (texts, compiler, *flags, jaxlib.__version__, _processor())
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    for kept in sorted(folder.glob(f"{key}-*.so")):
        if kept.name == f"{key}-{_hash_of(kept)}.so":
            return kept
        kept.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as workspace:
        built = pathlib.Path(workspace) / "library.so"
        units = [str(file) for file in files if file.suffix == ".cc"]
        path, *arguments = compiler.command
        _run([path, *flags, *units, *arguments, "-o", str(built)], check=True)
        target = folder / f"{key}-{_hash_of(built)}.so"
        os.replace(built, target)
    return target


def _hash_of(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:32]


@functools.cache
def is_registered() -> bool:
    """Registers the functions of TARGETS with XLA; returns True if they are available.

    Logs one line if they cannot be compiled.
    """
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "0", "1"):
        raise ValueError(f"{SWITCH}={switch!r}: set it to 0 or 1, or unset it")
    if switch == "0":
        return False
    try:
        flags = (*FLAGS, f"-I{jax.ffi.include_dir()}")
        library = ctypes.CDLL(str(compiled(FOLDER, find_compiler(), flags, _cache_folder())))
    except (OSError, subprocess.SubprocessError) as error:
        complaint = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        reason = (complaint or str(error)).strip().splitlines()[0]
        logging.warning("decoding on CPU without native functions, slower: %s", reason)
        return False
    for target, function in TARGETS.items():
        capsule = jax.ffi.pycapsule(getattr(library, function))
        jax.ffi.register_ffi_target(target, capsule, platform="cpu")
    return True


def machine() -> dict[str, Any]:
    """Returns the properties of this machine that affect the bits of a run on CPU."""
    models = [line for line in _processor().splitlines() if line.startswith("model name")]
    is_native = jax.default_backend() == "cpu" and is_registered()
    return {
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "native": is_native,
        "compiler": find_compiler().version if is_native else None,
    }


def call(function: str, dtype: jax.typing.DTypeLike, result: jax.ShapeDtypeStruct):
    """Returns the function of TARGETS for inputs of type `dtype`; `result` is its output shape."""
    return jax.ffi.ffi_call(function + SUFFIXES[jnp.dtype(dtype)], result)
