"""The environment in docs/environments.md, which must work as described there."""

import contextlib
import os
import pathlib
import re

import pytest

from agentgym_jax.client.agentgym_originals.servers import ORIGINALS
from agentgym_jax.client.embedded import EmbeddedServers
from agentgym_jax.client.in_process import in_process_servers
from agentgym_jax.config.agent import parse_agent
from agentgym_jax.config.environment_sections import EnvironmentSettings
from agentgym_jax.config.sections import plain
from agentgym_jax.config.settings import RolloutSettings
from agentgym_jax.jobs.environments import open_environments
from agentgym_jax.runs.run_folder import RunFolder
from configs import common
from tests.env_clients import connect
from tests.run_python import run_python

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "environments.md"


def blocks():
    """Returns the Python blocks of "Adding an environment"; the first is the whole environment."""
    section = PAGE.read_text(encoding="utf-8").split("## Adding an environment\n")[1]
    return re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns a folder from which this process and its children can import the example."""
    (tmp_path / "guess.py").write_text(blocks()[0], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    paths = [str(tmp_path), str(PAGE.parents[1] / "envs"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return tmp_path


def play(client):
    """Plays task 7 by bisection of the hidden number.

    Returns the last observation and the number of guesses.
    """
    session = client.create()
    first = client.reset(session, 7)
    assert (first.text, first.done) == ("Guess a number from 0 to 99.", False)
    assert client.step(session, "a hundred").is_rejection
    low, high = 0, 99
    for turn in range(1, 9):
        number = (low + high) // 2
        action = client.parse(f"Thought: halve it.\nAction: {number}").action
        seen = client.step(session, action)
        assert not seen.is_rejection
        if seen.done:
            client.close(session)
            return seen, turn
        low, high = (number + 1, high) if seen.text == "Higher." else (low, number - 1)
    raise AssertionError(f"not found: {seen}")


def test_the_example_is_short_and_complete():
    assert len(blocks()[0].splitlines()) < 80


def test_the_example_passes_every_check(folder):
    check = ["-m", "agentgym_envs", "check", "guess", "--tasks", "3"]
    done = run_python(*check, timeout=120, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    # every line has an `ok`, and no line has a dash
    assert all(" ok " in f"{line} " for line in lines[:-1]), done.stdout
    assert lines[-1].startswith(f"guess: {len(lines) - 1} properties, ")


def test_the_example_is_playable_through_the_client(folder):
    assert "guess" not in ORIGINALS
    with EmbeddedServers(["guess"], modules={"guess": "guess"}) as servers:
        client = connect(servers.urls["guess"], "guess")
        seen, turns = play(client)
        assert (seen.text, seen.reward, seen.success) == ("Right.", 1.0, True) and turns <= 7
        assert client.spec().max_turns == 10 and len(client.tasks()) == 100
        client.disconnect()
    with in_process_servers(["guess"], {"guess": "guess"}) as here:
        client = connect("inprocess://guess", "guess", transport=here["guess"])
        assert play(client) == (seen, turns)


def test_a_name_that_differs_from_the_modules_spec_is_refused(folder):
    with EmbeddedServers(["riddle"], modules={"riddle": "guess"}) as servers:
        client = connect(servers.urls["riddle"], "riddle")
        with pytest.raises(Exception, match="serves 'guess', expected 'riddle'"):
            client.spec()
        client.disconnect()


@pytest.mark.parametrize("transport", ["http", "inprocess"])
def test_a_config_starts_the_example(folder, transport):
    config = common.base()
    exec(blocks()[1], {"c": config, "common": common})
    config.env_server.transport = transport
    with contextlib.ExitStack() as stack:
        opened = open_environments(
            stack,
            parse_agent(plain(config), RolloutSettings),
            RunFolder(folder / "run"),
        )
        assert (len(opened.train_tasks), len(opened.eval_tasks)) == (80, 20)
        assert play(opened.clients["guess"])[0].success


def test_a_module_and_a_server_address_together_are_refused():
    entry = common.environment(url="http://127.0.0.1:1", module="guess", eval={"kind": "split"})
    with pytest.raises(ValueError, match="give only one of them"):
        EnvironmentSettings(**entry)
