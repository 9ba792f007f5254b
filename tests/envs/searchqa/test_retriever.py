"""Server and client of Search-R1's retrieval protocol."""

import contextlib
import os
import re
import subprocess
import sys

import httpx
import pytest

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.data_folder import VARIABLE
from agentgym_envs.searchqa.remote import TOKEN_VARIABLE, RetrieverClient, token_of_environment
from agentgym_envs.searchqa.retriever import main
from tests.envs.searchqa import topics
from tests.fake_server import DROP
from tests.fake_server import serving as serving_fake
from tests.waiting import PATIENCE_S

for package in ("Stemmer", "tantivy"):
    pytest.importorskip(package, reason='engines need: pip install -e ".[search]"')

READY = re.compile(r"agentgym_envs retriever ready on (http://127\.0\.0\.1:\d+)\n")


@contextlib.contextmanager
def serving(folder, *options):
    """Yields the address of a retriever server in a separate process."""
    corpus = topics.write_rows(folder / "corpus.jsonl", topics.PASSAGES)
    command = [sys.executable, "-m", "agentgym_envs.searchqa.retriever", "--port=0"]
    command += [f"--corpus={corpus}", "--engine=tantivy", *options]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, VARIABLE: str(folder / "data")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield READY.fullmatch(process.stdout.readline())[1]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("retriever"), "--max-body-bytes=200000") as address:
        yield address


def ask(url, body):
    return httpx.post(f"{url}/retrieve", json=body, timeout=60)


def test_passages_are_returned_with_or_without_scores(url):
    queries = ["topic 3 region", "topic 5 region"]
    scored = ask(url, {"queries": queries, "topk": 2, "return_scores": True}).json()["result"]
    assert [len(hits) for hits in scored] == [2, 2]
    assert scored[0][0]["document"] == topics.PASSAGES[3]
    assert scored[1][0]["document"] == topics.PASSAGES[5]
    assert scored[0][0]["score"] > scored[0][1]["score"] > 0
    alone = ask(url, {"queries": queries, "topk": 2}).json()["result"]
    assert alone == [[hit["document"] for hit in hits] for hits in scored]


def test_three_passages_are_returned_by_default(url):
    assert len(ask(url, {"queries": ["topic"]}).json()["result"][0]) == 3
    assert ask(url, {"queries": ["xylophone"], "topk": 3}).json() == {"result": [[]]}
    assert ask(url, {"queries": []}).json() == {"result": []}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"queries": "topic"},
        {"queries": [1]},
        {"queries": ["a"], "topk": 0},
        {"queries": ["a"], "topk": 101},
        {"queries": ["a" * 10_001]},
        {"queries": ["a"] * 4097},
        [],
    ],
)
def test_invalid_bodies_are_refused(url, body):
    answer = ask(url, body)
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid_request")


def test_oversized_bodies_and_invalid_json_are_refused(url):
    assert ask(url, {"queries": ["a" * 9000] * 30}).status_code == 413
    broken = httpx.post(f"{url}/retrieve", content=b"{", timeout=60)
    assert (broken.status_code, broken.json()["type"]) == (422, "invalid_request")
    assert httpx.get(f"{url}/retrieve", timeout=60).status_code == 405
    assert httpx.get(f"{url}/health", timeout=60).json() == {
        "status": "ok",
        "corpus": "corpus.jsonl",
        "passages": 60,
    }


@pytest.mark.parametrize("suffix", ["", "/", "/retrieve"])
def test_the_client_works_with_the_server(url, suffix):
    client = RetrieverClient(url + suffix, timeout_s=60)
    for _ in range(2):  # the second search uses the same connection
        found = client.search("topic 3 region", 2)
        assert [passage.id for passage in found][0] == "3" and len(found) == 2
        assert found[0].contents == topics.PASSAGES[3]["contents"]


@pytest.fixture
def odd():
    """Yields a client and the list of the next answers of its server."""
    answers = []

    def answer(request):
        status, content = answers.pop(0)
        return status, content(request.json()) if callable(content) else content

    with serving_fake(answer) as server:
        yield RetrieverClient(server.url, timeout_s=PATIENCE_S), answers


SECRET = "s3cret-of-the-retriever"


def test_a_retriever_with_a_token_requires_it(tmp_path, monkeypatch):
    (tmp_path / "token").write_text(SECRET)
    with serving(tmp_path, f"--token-file={tmp_path / 'token'}") as address:
        monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
        with pytest.raises(EnvironmentFault, match="answers status 401"):
            RetrieverClient(address, 60, token_of_environment()).search("topic", 2)
        monkeypatch.setenv(TOKEN_VARIABLE, f"{SECRET}\n")
        assert len(RetrieverClient(address, 60, token_of_environment()).search("topic", 2)) == 2


def test_errors_do_not_contain_the_token(odd, monkeypatch):
    _, answers = odd
    client = RetrieverClient(odd[0]._url, 5, SECRET)
    answers += [(500, {"asked": f"Bearer {SECRET}"}), (200, {"asked": f"Bearer {SECRET}"})]
    for _ in range(2):
        with pytest.raises(EnvironmentFault, match="Bearer <hidden>") as caught:
            client.search("x", 2)
        assert SECRET not in str(caught.value)
    monkeypatch.setenv(TOKEN_VARIABLE, f"{SECRET}\r\nX-Other: 1")
    with pytest.raises(SetupError, match=TOKEN_VARIABLE) as refused:
        token_of_environment()
    assert SECRET not in str(refused.value)


def good(asked):
    """Returns results like Search-R1's BM25 server, whose documents lack ids and scores."""
    assert asked == {"queries": ["x"], "topk": 2, "return_scores": True}
    return {"result": [[{"title": "T", "contents": '"T"\ntext'}] * 3]}


def test_a_connection_closed_by_the_server_is_opened_again(odd):
    client, answers = odd
    answers += [(200, good), DROP, (200, good)]
    assert [p.contents for p in client.search("x", 2)] == ['"T"\ntext'] * 2
    assert len(client.search("x", 2)) == 2 and not answers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([(500, {"detail": "no GPU"})], "status 500.*no GPU"),
        ([DROP, DROP], "does not answer: RemoteDisconnected"),
        ([(200, {"result": []})], "something else"),
        ([(200, {"result": [[{"score": 1}]]})], "something else"),
        ([(200, [])], "something else"),
    ],
)
def test_a_failing_retriever_is_a_simulator_error(odd, answers, told):
    client, planned = odd
    planned += answers
    with pytest.raises(EnvironmentFault, match=told) as caught:
        client.search("x", 2)
    assert caught.value.kind is ErrorKind.SIMULATOR
    planned += [(200, good)]
    assert client.search("x", 2)  # the next search sends a new request


def test_serving_other_machines_requires_a_token(capsys):
    assert main(["--host", "0.0.0.0"]) == 1
    assert "--token-file" in capsys.readouterr().err
    assert main(["--topk", "0"]) == 1
    assert "--topk 0" in capsys.readouterr().err
