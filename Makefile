PYTHON ?= python

.PHONY: check format lint types test

check: lint types test

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

lint:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy envs/agentgym_envs agentgym_jax/env_client agentgym_jax/rollout agentgym_jax/text agentgym_jax/trajectory.py agentgym_jax/run

test:
	$(PYTHON) -m pytest
