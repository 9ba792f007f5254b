PYTHON ?= python

.PHONY: check format lint types test test-all site lowest

check: lint types test

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -m "not slow"

test-all:
	$(PYTHON) -m pytest

site:
	$(PYTHON) -m mkdocs build --strict

# Runs the bandit and some tests with the oldest versions that setup.py allows; needs uv.
LOWEST = build/lowest
lowest:
	$(PYTHON) -m uv venv --clear $(LOWEST)
	$(PYTHON) -m uv pip install -q --python $(LOWEST)/bin/python --resolution lowest-direct -e ".[dev]"
	$(LOWEST)/bin/python -m agentgym_jax.train --config=configs/rl/bandit.py:smoke --workdir=$(LOWEST)/bandit
	$(LOWEST)/bin/python -m pytest -n 0 -m "not slow" tests/learner tests/text tests/test_export.py tests/envs/base/test_server.py
