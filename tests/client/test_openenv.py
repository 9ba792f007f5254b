"""Client of OpenEnv's protocol: our server as a foreign one, and small servers that misbehave."""

import contextlib
import http
import json
import threading
import time

import pytest
from websockets.sync.server import serve

from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.served import load_environment
from agentgym_envs.registry import ENVIRONMENTS
from agentgym_jax.client.embedded import EmbeddedServers
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.openenv import OpenEnvClient
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.config.environment_sections import EnvironmentSettings
from configs import common
from tests.env_clients import LIMITS, connect, failure
from tests.waiting import PATIENCE_S

NAMES = ["textcraft", "babyai"]


class ForeignClient(OpenEnvClient):
    """Client that sees no `/spec`, as if our server were another project's."""

    def _optional(self, route):
        return None if route == "/spec" else super()._optional(route)


@pytest.fixture(scope="module")
def servers():
    """Yields (servers in AgentGym's protocol, servers in OpenEnv's)."""
    with (
        EmbeddedServers(NAMES) as agentgym,
        EmbeddedServers(NAMES, arguments=["--protocol=openenv"]) as openenv,
    ):
        yield agentgym, openenv


def expert_actions(name, data_idx):
    environment = load_environment(ENVIRONMENTS[name].module).factory()
    result, actions = environment.reset(data_idx), []
    while not result.done:
        actions.append(environment.expert_action())
        result = environment.step(actions[-1])
    return ["nonsense", *actions] if name == "textcraft" else actions


def play(client, name, tasks):
    """Returns the observations of expert episodes, played at the same time through a pool."""
    actions = {data_idx: expert_actions(name, data_idx) for data_idx in tasks.values()}
    seen = {ticket: [] for ticket in tasks}
    with EnvPool({name: client}, workers=4) as pool:
        for ticket in tasks:
            pool.start(ticket, name, ticket)
        while pool.is_waiting():
            for reply in pool.poll(60.0):
                assert reply.error is None, reply.error
                seen[reply.ticket].append(reply.observation)
                if not reply.observation.done:
                    turn = len(seen[reply.ticket]) - 1
                    pool.step(reply.ticket, actions[tasks[reply.ticket]][turn])
    return list(seen.values())


@pytest.mark.parametrize("name", NAMES)
def test_episodes_equal_those_in_agentgyms_protocol(servers, name):
    agentgym, openenv = servers
    ours = connect(agentgym.urls[name], name)
    client = OpenEnvClient(openenv.urls[name], name, **LIMITS)
    assert client.spec() == ours.spec()
    assert client.tasks() == ours.tasks()
    assert client.facts == ours.facts
    tasks = {data_idx: data_idx for data_idx in (0, 3, 41, 17)}
    expected = play(ours, name, tasks)
    assert play(client, name, tasks) == expected
    assert all(episode[-1].success and episode[-1].reward > 0 for episode in expected)
    assert expected[0][1].is_rejection or name == "babyai"


def test_tasks_of_another_server_are_numbered_over_its_splits(servers):
    agentgym, openenv = servers
    client = ForeignClient(openenv.urls["textcraft"], "textcraft", **LIMITS)
    spec = client.spec()
    assert (spec.name, spec.action_format, spec.num_tasks) == ("textcraft", "raw", 544)
    tasks = client.tasks()
    assert [task["data_idx"] for task in tasks] == list(range(544))
    manifest = connect(agentgym.urls["textcraft"], "textcraft").tasks()
    numbers = {}
    for task in (tasks[0], tasks[-1]):
        rows = [row["data_idx"] for row in manifest if row["split"] == task["split"]]
        numbers[task["data_idx"]] = rows[task["index"]]
    assert tasks[0]["split"] != tasks[-1]["split"]
    ours = connect(agentgym.urls["textcraft"], "textcraft")
    expected = play(ours, "textcraft", {number: number for number in numbers.values()})
    for found, wanted in zip(play(client, "textcraft", numbers), expected, strict=True):
        assert [(o.text, o.reward, o.score, o.done, o.success) for o in found] == [
            (o.text, o.reward, o.score, o.done, o.success) for o in wanted
        ]
    session = client.create()
    with pytest.raises(EnvError, match="has no task 544"):
        client.reset(session, 544)
    client.disconnect()


def test_the_clients_of_a_wrong_server_or_environment_are_refused(servers):
    agentgym, openenv = servers
    with pytest.raises(EnvError, match="no OpenEnv server"):
        OpenEnvClient(agentgym.urls["textcraft"], "textcraft", **LIMITS).spec()
    with pytest.raises(EnvError, match="serves 'textcraft', expected 'babyai'"):
        OpenEnvClient(openenv.urls["textcraft"], "babyai", **LIMITS).spec()


def test_errors_of_our_server_keep_their_kind(servers):
    client = OpenEnvClient(servers[1].urls["textcraft"], "textcraft", **LIMITS)
    session = client.create()
    for kind, request in (
        (ErrorKind.NOT_RESET, lambda: client.step(session, "inventory")),
        (ErrorKind.UNKNOWN_TASK, lambda: client.reset(session, 10**6)),
    ):
        error = failure(request)
        assert error.kind is kind
    assert client.reset(session, 0).text  # the errors did not end the session
    client.close(session)
    client.close(session)
    error = failure(client.step, session, "inventory")
    assert error.cause is EnvCause.SESSION_LOST


def test_a_full_server_is_retried_until_a_session_ends():
    with EmbeddedServers(["textcraft"], arguments=["--protocol=openenv", "--capacity=2"]) as full:
        client = OpenEnvClient(full.urls["textcraft"], "textcraft", **LIMITS)
        held = [client.create() for _ in range(2)]
        for session in held:
            client.reset(session, 0)
        third = client.create()
        error = failure(client.reset, third, 0)
        assert (error.cause, error.kind) == (EnvCause.CAPACITY, ErrorKind.CAPACITY)
        with EnvPool({"textcraft": client}, workers=2, backoff_s=0.01) as pool:
            pool.start("a", "textcraft", 5)
            assert not pool.poll(0.5)  # reached
            client.close(held[0])
            (reply,) = pool.poll(60.0)
            assert reply.observation is not None


def test_a_killed_server_is_an_error_and_its_restart_serves_new_episodes():
    with EmbeddedServers(["textcraft"], arguments=["--protocol=openenv"]) as servers:
        client = OpenEnvClient(servers.urls["textcraft"], "textcraft", **LIMITS)
        pool = EnvPool({"textcraft": client}, workers=2, retry_patience_s=0.0, backoff_s=0.01)
        with pool:
            for ticket in "abc":
                pool.start(ticket, "textcraft", 0)
                pool.poll(60.0)
            pool.finish("c")  # an idle session
            servers._servers["textcraft"].process.kill()
            servers._servers["textcraft"].process.wait()
            for ticket in "ab":
                pool.step(ticket, "inventory")
                (reply,) = pool.poll(60.0)
                assert reply.observation is None
                assert reply.error.cause is EnvCause.CONNECTION
            pool.start("a", "textcraft", 0)
            (reply,) = pool.poll(60.0)
            assert reply.error.cause is EnvCause.SERVER_GONE
            assert not client._sessions
            for name in servers.ensure_alive():
                pool.invalidate(name)
            pool.start("b", "textcraft", 0)
            (reply,) = pool.poll(60.0)
            assert reply.observation is not None


TEXT = {"type": "string"}
SCHEMA = {
    "action": {"properties": {"metadata": {}, "say": TEXT}},
    "observation": {"properties": {"echo": TEXT, "length": {"type": "integer"}, "done": {}}},
}


def result(reward=0.0, done=False, **more):
    data = {"observation": {"echo": "hi", "length": 2}, "reward": reward, "done": done, **more}
    return json.dumps({"type": "observation", "data": data})


def error(code, message="no", **more):
    return json.dumps({"type": "error", "data": {"code": code, "message": message, **more}})


@contextlib.contextmanager
def fake(*answers, schema=SCHEMA, greeting=None, **options):
    """Yields (client, requests) of a server that answers with the given messages, one by one.

    The answers are shared by all connections. None closes the connection, and a number is a pause in
    seconds before the next answer.
    """
    requests, answers = [], list(answers)
    routes = {"/schema": schema, "/metadata": {"name": "Echo", "description": "Say something."}}

    ended = threading.Event()

    def process(connection, request):
        if request.path == "/ws":
            return None
        if request.path not in routes:
            return connection.respond(http.HTTPStatus.NOT_FOUND, "{}")
        response = connection.respond(http.HTTPStatus.OK, json.dumps(routes[request.path]))
        return response

    def handle(connection):
        if greeting is not None:
            connection.send(greeting)
            return
        for request in connection:
            requests.append(json.loads(request))
            answer = answers.pop(0)
            while isinstance(answer, (int, float)):
                ended.wait(answer)
                answer = answers.pop(0)
            if answer is None:
                connection.socket.shutdown(2)
                return
            for part in answer if isinstance(answer, list) else [answer]:
                connection.send(part)

    with serve(handle, "127.0.0.1", 0, process_request=process, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        client = OpenEnvClient(url, "echo", **{**LIMITS, **options})
        try:
            yield client, requests
        finally:
            ended.set()
            client.disconnect()
            server.shutdown()
            thread.join(PATIENCE_S)


def test_a_server_without_tasks_gets_the_task_as_seed():
    with fake(result(None), result(0.5), result(-0.2), result(True, True)) as (client, requests):
        spec = client.spec()
        assert (spec.name, spec.num_tasks, client.tasks()) == ("echo", 0, [])
        assert spec.instructions.startswith("Say something.")
        session = client.create()
        assert client.reset(session, 7).text == "hi"
        first = client.step(session, "a")
        assert (first.reward, first.score, first.done, first.success) == (0.5, 0.5, False, False)
        client.step(session, "b")
        last = client.step(session, "c")
        assert (last.reward, last.score, last.done, last.success) == (1.0, 1.3, True, True)
        assert requests[:2] == [
            {"type": "reset", "data": {"seed": 7}},
            {"type": "step", "data": {"say": "a"}},
        ]


@pytest.mark.parametrize(
    ("answer", "success"),
    [
        (result(1.0, True, metadata={"success": False}), False),
        (result(0.0, True, metadata={"success": True}), True),
        (result(0.0, True, metadata={"other": 1}), False),
        (result(0.0, True, metadata=None), False),
        (result(-1.0, True), False),
        (result(2, True), True),
        (result(2, False), False),
    ],
)
def test_success_is_that_of_the_metadata_or_a_positive_total(answer, success):
    with fake(result(), answer) as (client, _):
        session = client.create()
        client.reset(session, 0)
        assert client.step(session, "a").success is success


GARBAGE = {
    "no JSON": "{",
    "binary": b"\xff\x00",
    "a list": "[]",
    "no type": "{}",
    "no data": '{"type": "observation"}',
    "another type": '{"type": "state", "data": {}}',
    "NaN": result(float("nan")),
    "infinity": result(float("inf")),
    "a text as reward": result("1"),
    "no reward": '{"type": "observation", "data": {"observation": {"echo": "a"}, "done": true}}',
    "done is no boolean": result(1.0, 1),
    "no text": '{"type": "observation", "data": {"observation": {}, "reward": 1, "done": true}}',
    "success is no boolean": result(1.0, True, metadata={"success": 1}),
    "an error without code": '{"type": "error", "data": {"message": "x"}}',
    "deep": "[" * 100_000,
}


def failure_of_a_step(answer):
    """Returns the error of a step that gets this answer."""
    with fake(result(), answer) as (client, _):
        session = client.create()
        client.reset(session, 0)
        error = failure(client.step, session, "a")
    return error


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_an_error_and_no_reward(answer):
    assert failure_of_a_step(answer).cause is EnvCause.BAD_BODY


def test_a_message_above_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr("agentgym_jax.client.openenv_connection.MAX_BODY_BYTES", 1000)
    assert failure_of_a_step("x" * 2000).cause is EnvCause.BAD_BODY


@pytest.mark.parametrize(
    ("answer", "cause", "is_retryable"),
    [
        (error("EXECUTION_ERROR"), EnvCause.ERROR_BODY, True),
        (error("FACTORY_ERROR"), EnvCause.ERROR_BODY, True),
        (error("SESSION_ERROR"), EnvCause.SESSION_LOST, True),
        (error("VALIDATION_ERROR"), EnvCause.ERROR_BODY, False),
        (error("CAPACITY_REACHED"), EnvCause.CAPACITY, True),
        (error("EXECUTION_ERROR", kind="busy"), EnvCause.CAPACITY, True),
        (error("EXECUTION_ERROR", kind="unheard"), EnvCause.ERROR_BODY, True),
        (None, EnvCause.CONNECTION, True),
    ],
)
def test_an_error_message_is_a_typed_error(answer, cause, is_retryable):
    error = failure_of_a_step(answer)
    assert (error.cause, error.retryable_from_reset) == (cause, is_retryable)


def test_a_greeting_with_an_error_is_read_before_the_connection_closes():
    with fake(greeting=error("CAPACITY_REACHED")) as (client, _):
        client.spec()
        session = client.create()
        time.sleep(0.2)  # the server has closed the connection
        caught = failure(client.reset, session, 0)
        assert caught.cause is EnvCause.CAPACITY


def test_an_answer_too_many_is_not_taken_for_the_next_one():
    with fake(result(), [result(), result(1.0, True)], result()) as (client, _):
        session = client.create()
        client.reset(session, 0)
        assert client.step(session, "a").reward == 0
        time.sleep(0.2)
        caught = failure(client.step, session, "b")
        assert caught.cause is EnvCause.BAD_BODY


def test_a_late_answer_ends_the_session():
    with fake(result(), 2 * PATIENCE_S, result(1.0, True)) as (client, _):
        session = client.create()
        client.reset(session, 0)
        client._step_timeout_s = 0.2  # reached
        for cause in (EnvCause.TIMEOUT, EnvCause.SESSION_LOST):
            caught = failure(client.step, session, "a")
            assert caught.cause is cause


def test_a_kept_session_that_the_server_closed_is_replaced():
    with fake(result(), None, result()) as (client, requests):
        with EnvPool({"echo": client}, workers=1) as pool:
            for _ in range(2):
                pool.start("a", "echo", 4)
                (reply,) = pool.poll(60.0)
                assert reply.error is None
        assert [request["type"] for request in requests] == ["reset"] * 3


def test_an_open_episode_is_expected_after_a_reset():
    with fake(result(1.0, True)) as (client, _):
        with pytest.raises(EnvError, match="a reset with done"):
            client.reset(client.create(), 0)


OBJECT = {"properties": {"x": {"type": "integer"}, "kind": {"const": "move"}, "y": TEXT}}


def test_an_action_with_several_fields_is_a_json_object():
    refusal = error("VALIDATION_ERROR", errors=[{"loc": ["x"], "msg": "no number"}])
    schema = SCHEMA | {"action": OBJECT, "observation": {"properties": {"a": TEXT, "b": TEXT}}}
    with fake(result(), refusal, result(1.0, True), schema=schema) as (client, requests):
        assert "- x (integer)\n- y (string)" in client.spec().instructions
        for text in ("go", "[1]", '{"x": NaN}', "[" * 10_000):
            assert client.parse(text).action is None
            assert client.parse(text).problem
        session = client.create()
        assert client.reset(session, 0).text == '{"echo": "hi", "length": 2}'
        action = client.parse('{"x": "left"}').action
        seen = client.step(session, action)
        assert seen.is_rejection and not seen.done and "x: no number" in seen.text
        assert client.step(session, '{"x": 1}').success
        assert requests[-1]["data"] == {"kind": "move", "x": 1}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"text": TEXT, "name": TEXT}, "text"),
        ({"echoed_message": TEXT, "n": {"type": "integer"}}, "echoed_message"),
        ({"a": TEXT, "b": TEXT}, ""),
        ({"board": {"type": "array"}}, ""),
    ],
)
def test_the_text_of_an_observation_is_found_by_its_schema(fields, field):
    schema = SCHEMA | {"observation": {"properties": fields}}
    with fake(schema=schema) as (client, _):
        client.spec()
        assert client._known.later.field == field


def test_a_text_must_be_one_of_the_choices_and_short():
    say = {"type": "string", "enum": ["left", "right"], "maxLength": 5}
    schema = SCHEMA | {"action": {"properties": {"say": say}}}
    with fake(schema=schema, action_format="react_or_bare") as (client, _):
        assert client.spec().action_format == "react_or_bare"
        assert client.parse("Thought: x\nAction: left").action == "left"
        assert client.parse("right").action == "right"
        assert "left, right" in client.parse("up").problem
        assert client.parse("Action: upwards").action is None
    with fake(action_format="function_calling") as (client, _):
        with pytest.raises(EnvError, match="no action format"):
            client.spec()


def test_the_choices_of_an_enum_are_found_by_its_reference():
    """Pydantic moves the values of an enum to `$defs`."""
    colours = {"Colour": {"enum": ["red", "blue"], "type": "string", "title": "Colour"}}
    field = {"$ref": "#/$defs/Colour", "default": "red"}
    other = {"$ref": "#/$defs/Missing"}
    schema = SCHEMA | {"action": {"properties": {"colour": field}, "$defs": colours}}
    with fake(schema=schema) as (client, _):
        assert "Possible actions: red, blue" in client.spec().instructions
        assert client.parse("red").action == "red" and client.parse("green").action is None
    properties = {"colour": field, "mode": {"enum": ["a", 1]}, "other": other}
    schema = SCHEMA | {"action": {"properties": properties, "$defs": colours}}
    with fake(schema=schema) as (client, _):
        lines = client.spec().instructions.splitlines()
        expected = ['- colour (string, one of "red", "blue")', '- mode (one of "a", 1)', "- other"]
        assert [line for line in lines if line.startswith("- ")] == expected


def test_the_protocol_needs_a_url():
    entry = common.environment(eval={"kind": "residues"}, protocol="openenv")
    with pytest.raises(ValueError, match="protocol='openenv' without url"):
        EnvironmentSettings(**entry)
    EnvironmentSettings(**entry | {"url": "http://127.0.0.1:8000"})
