"""Installs the environment servers, their web sites and their facts on a machine without JAX."""

import pathlib
import runpy

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
SERVERS = runpy.run_path(str(HERE / "dependencies.py"))

setup(
    name="agentgym-envs",
    version=SERVERS["VERSION"],
    description="Environment servers for LLM agents that speak AgentGym's HTTP protocol.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["agentgym_*"]),
    package_data=SERVERS["PACKAGE_DATA"],
    install_requires=SERVERS["ENVIRONMENTS"],
    extras_require={
        name.lower(): SERVERS[name]
        for name in "SCIWORLD ALFWORLD SEARCH WEB REASONING_GYM TEXTARENA TAU2 BFCL".split()
    },
    entry_points=SERVERS["ENTRY_POINTS"],
)
