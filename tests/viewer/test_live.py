import base64
import http.client
import json
import socket
import struct
import threading
import zlib

import pytest

from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.metrics_file import MetricWriter
from agentgym_jax.viewer import live
from agentgym_jax.viewer.live import LiveRun, LiveServer
from tests.waiting import PATIENCE_S


@pytest.fixture
def server(learning_run):
    with LiveServer(LiveRun(RunFolder(learning_run), {}), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server, path, host=None):
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=PATIENCE_S)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def document(server, path):
    status, body = get(server, path)
    assert status == 200, body
    return json.loads(zlib.decompress(body))


def test_the_page_can_only_send_requests_to_its_own_server(server):
    status, body = get(server, "/")
    assert status == 200 and b"connect-src &#x27;self&#x27;" in body and b'data-live="true"' in body


def test_a_new_step_is_served(server, learning_run, make_record):
    before = get(server, "/version")[1]
    assert get(server, "/version")[1] == before
    path = learning_run / "trajectories" / "step_000003.jsonl"
    path.write_text(json.dumps(make_record()) + "\n")
    assert get(server, "/version")[1] != before
    index = document(server, "/data/index")
    assert index["files"][-1]["name"] == "step_000003"
    assert index["version"].encode() == get(server, "/version")[1]
    with MetricWriter(learning_run / "metrics.jsonl") as writer:
        writer.write(3, {"rollout/success": 1.0})
    assert document(server, "/data/index")["metrics"]["rollout/success"]["steps"] == [1, 2, 3]


def test_episodes_have_the_text_of_their_tokens(server):
    found = document(server, "/data/step_000001")
    assert len(found["episodes"]) == 2 and found["pieces"][str(ord("A"))] == "A"


@pytest.mark.parametrize(
    "path",
    [
        "/data/step_000009",
        "/data/..%2f..%2fconfig.json",
        "/data/config",
        "/other",
        "/worlds/step_000001/9",
    ],
)
def test_files_outside_the_run_are_not_found(server, path):
    assert get(server, path)[0] == 404


def test_a_file_that_disappears_while_it_is_read_is_not_found(server, monkeypatch):
    def vanish(file, *args):
        raise FileNotFoundError(file.path)

    monkeypatch.setattr(live, "make_bundle", vanish)
    assert get(server, "/data/step_000001")[0] == 404


def test_a_browser_that_leaves_causes_no_output(server, monkeypatch, capsys):
    ended = threading.Event()

    def end(request):
        request.close()
        ended.set()

    monkeypatch.setattr(server, "shutdown_request", end)
    with socket.create_connection(server.server_address[:2]) as connection:
        # closing then resets the connection, which the server reads
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert ended.wait(PATIENCE_S)
    assert not capsys.readouterr().err


def test_a_world_that_cannot_be_replayed_is_null(server):
    assert document(server, "/worlds/step_000001/0") is None


def test_a_page_for_other_machines_needs_its_token(learning_run):
    run = LiveRun(RunFolder(learning_run), {})
    with LiveServer(run, "127.0.0.1", 0, "secret") as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        password = base64.b64encode(b"me:secret").decode()
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Basic bWU6d3Jvbmc="}, 401),
            ({"Authorization": f"Basic {password}"}, 200),
            ({"Authorization": f"Basic {password}", "Origin": "http://evil.example"}, 403),
        ):
            connection = http.client.HTTPConnection(*server.server_address[:2])
            connection.request("GET", "/version", headers=headers)
            assert connection.getresponse().status == status
            connection.close()
        server.shutdown()


def test_requests_with_another_host_name_are_refused(server):
    assert get(server, "/data/index", host="attacker.example")[0] == 403
    assert get(server, "/version", host="localhost:1")[0] == 200
