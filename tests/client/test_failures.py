"""Waiting for failing servers: the circuit breaker, and a server that is still starting."""

import contextlib
import threading
import time

import pytest

from agentgym_jax.client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.client.failures import Breaker, spec_when_ready
from agentgym_jax.config.agent import parse_agent
from agentgym_jax.config.sections import plain
from agentgym_jax.jobs.environments import open_environments
from agentgym_jax.runs.run_folder import RunFolder
from configs import common
from tests.env_clients import connect
from tests.waiting import PATIENCE_S


def test_the_breaker_opens_at_its_limit_and_names_causes_and_remedy():
    guard = Breaker(0.0, failures=3)
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    assert guard.error("the maze failed") is None
    guard.fail(EnvError(EnvCause.CONNECTION, "cut"))
    message = str(guard.error("the maze failed"))
    for part in ("the maze failed 0 s", "timeout 2", "connection 1", "cut", "resume"):
        assert part in message


def test_many_failures_at_the_same_time_do_not_open_the_breaker():
    now = [0.0]
    guard = Breaker(0.05, failures=2, clock=lambda: now[0])
    for _ in range(10):
        guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    assert guard.error("the maze failed") is None
    now[0] = 0.06
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    assert guard.error("the maze failed") is not None


def test_one_success_resets_the_failures():
    guard = Breaker(0.0, failures=2)
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    guard.succeed()
    guard.fail(EnvError(EnvCause.TIMEOUT, "slow"))
    assert guard.error("the maze failed") is None


def test_a_full_server_does_not_open_the_breaker():
    guard = Breaker(0.0, failures=1)
    guard.fail(EnvError(EnvCause.CAPACITY, "full"))
    assert guard.error("the maze failed") is None


@contextlib.contextmanager
def served_after(seconds, serve, world, port):
    """Serves a world on a port after a delay, for as long as the block runs."""
    done = threading.Event()

    def run():
        time.sleep(seconds)
        with serve(world, port):
            done.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        done.set()
        thread.join()


def test_the_wait_for_a_starting_server_logs_one_line(serve, world, free_port, caplog):
    with served_after(0.8, serve, world, free_port) as url:
        spec = spec_when_ready(connect(url), PATIENCE_S)
    assert spec.name == "textcraft"
    (line,) = caplog.records
    assert f"the textcraft server at {url} does not answer yet" in line.getMessage()
    assert f"{PATIENCE_S:g} s" in line.getMessage()


@pytest.mark.parametrize(
    "before",
    [
        [2 * PATIENCE_S],  # seconds before the answer
        [(503, {"error": "loading", "type": "busy"})] * 3,
        [(502, b"<html>Bad Gateway</html>"), (500, b"Internal Server Error")],
    ],
    ids=["late", "busy", "gateway"],
)
def test_a_server_whose_first_answers_are_errors_is_asked_again(server, world, before, caplog):
    world.faults["/spec"] = list(before)
    client = connect(server.url, step_timeout_s=1.0)  # reached
    assert spec_when_ready(client, PATIENCE_S).name == "textcraft"
    assert world.count("/spec") > len(before)
    assert len(caplog.records) == 1


def test_a_broken_connection_is_retried(server, world, drop):
    # the client itself sends each request twice, so two calls fail
    world.faults["/spec"] = [drop] * 4
    assert spec_when_ready(connect(server.url), PATIENCE_S).name == "textcraft"


def test_a_server_that_answers_at_once_logs_nothing(server, caplog):
    spec_when_ready(connect(server.url), PATIENCE_S)
    assert not caplog.records


def test_the_error_after_the_patience_names_server_last_error_and_remedy(free_port):
    started = time.monotonic()
    with pytest.raises(ServerUnavailable) as caught:
        spec_when_ready(connect(f"http://127.0.0.1:{free_port}"), 0.7)
    assert time.monotonic() - started > 0.3
    assert caught.value.cause is EnvCause.SERVER_GONE
    for words in (
        f"textcraft server at http://127.0.0.1:{free_port}",
        "nobody listens",
        "Start it",
    ):
        assert words in caught.value.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, {"name": "babyai"}), "babyai|keys"),
        ((200, b"<html>Welcome</html>"), "expected JSON"),
        ((401, {"error": "no token", "type": "unauthorized"}), "no token"),
    ],
)
def test_a_permanent_error_is_not_retried(server, world, answer, words):
    world.faults["/spec"] = [answer] * 2
    with pytest.raises(EnvError, match=words) as caught:
        spec_when_ready(connect(server.url), PATIENCE_S)
    assert not isinstance(caught.value, ServerUnavailable)
    assert world.count("/spec") == 1


@pytest.mark.parametrize("comes_after_s", [0.6, None])
def test_a_run_waits_for_its_servers_for_the_patience_of_its_pool(
    serve, world, free_port, tmp_path, comes_after_s
):
    tasks = dict(kind="split", split="test", group_by="group", where={}, limit=0)
    world.faults["/tasks"] = [(200, [{"data_idx": 0, "split": "test", "group": "all"}])]

    def open_them(stack, url):
        c = common.base()
        c.environments = dict(textcraft=common.environment(train={}, eval=tasks, url=url))
        c.client = dict(connect_timeout_s=PATIENCE_S, step_timeout_s=PATIENCE_S)
        c.pool = dict(
            workers=1,
            max_idle_sessions=1,
            breaker_patience_s=0.3 if comes_after_s is None else PATIENCE_S,
        )
        c.rollout = dict(max_parse_errors=1, show_turn_budget="none", system_prompt_mode="none")
        return open_environments(stack, parse_agent(plain(c)), RunFolder(tmp_path))

    with contextlib.ExitStack() as stack:
        if comes_after_s is None:
            with pytest.raises(ServerUnavailable, match="breaker_patience_s=0.3"):
                open_them(stack, f"http://127.0.0.1:{free_port}")
        else:
            url = stack.enter_context(served_after(comes_after_s, serve, world, free_port))
            assert [t.item_id for t in open_them(stack, url).eval_tasks] == ["textcraft_0"]
