"""Scores of webarena-verified, computed by that package itself.

The package pins its dependencies, so it is not installed with the project. Tests that need the
package use the interpreter named by WEBARENA_VERIFIED_PYTHON.
"""

import importlib.util
import json
import os
import pathlib
import sys
from typing import Any

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena import verified
from agentgym_envs.webarena.urls import SiteUrls
from agentgym_envs.webarena.verified import Case, Score, read_verified_tasks, score

PYTHON = os.environ.get("WEBARENA_VERIFIED_PYTHON", "")
needs_library = pytest.mark.skipif(
    not PYTHON, reason="WEBARENA_VERIFIED_PYTHON names no interpreter with webarena-verified"
)
URLS = SiteUrls({"shopping_admin": "http://127.0.0.1:7780/admin"})
# task ids in the task file; the second task requires a submitted form
BY_ANSWER, BY_REQUESTS = 0, 500


def write_tasks(folder: pathlib.Path) -> pathlib.Path:
    def row(task_id: int, *evaluators: str) -> dict[str, Any]:
        return {
            "task_id": task_id,
            "sites": ["shopping_admin"],
            "start_urls": ["__SHOPPING_ADMIN__"],
            "intent": "Count the teas",
            "eval": [{"evaluator": evaluator} for evaluator in evaluators],
        }

    rows = [
        row(BY_ANSWER, "AgentResponseEvaluator"),
        row(BY_REQUESTS, "AgentResponseEvaluator", "NetworkEventEvaluator"),
    ]
    path = folder / "tasks.json"
    path.write_text(json.dumps(rows))
    return path


def test_tasks_declare_if_they_need_recorded_requests(tmp_path: pathlib.Path):
    tasks = read_verified_tasks(write_tasks(tmp_path))
    assert {number: task.needs_trace for number, task in tasks.items()} == {0: False, 500: True}


@pytest.mark.parametrize("content", ["{", "[1]", '[{"task_id": 1}]'])
def test_a_file_in_another_format_is_refused(tmp_path: pathlib.Path, content: str):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(SetupError, match="x.json is not webarena-verified's file"):
        read_verified_tasks(tmp_path / "x.json")


def test_a_task_that_needs_recorded_requests_is_not_scored_without_them(tmp_path: pathlib.Path):
    tasks = read_verified_tasks(write_tasks(tmp_path))
    found = score([Case(BY_REQUESTS, "{}"), Case(9, "{}")], tasks, URLS, python="/nowhere/python")
    assert [(each.score, each.status) for each in found] == [(None, "no_trace"), (None, "error")]


def test_the_error_for_a_missing_interpreter_names_it(tmp_path: pathlib.Path):
    tasks = read_verified_tasks(write_tasks(tmp_path))
    with pytest.raises(SetupError, match="no interpreter /nowhere/python. Install"):
        score([Case(BY_ANSWER, "{}")], tasks, URLS, python="/nowhere/python")
    if importlib.util.find_spec(verified.PACKAGE) is None:
        with pytest.raises(SetupError, match="No module named 'webarena_verified'. Install"):
            score([Case(BY_ANSWER, "{}")], tasks, URLS, python=sys.executable)


def test_scores_are_in_the_order_of_the_episodes(tmp_path: pathlib.Path):
    """Replaces the package's interpreter by a script that scores 1 for the answer "right"."""
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport json, sys\nwork = json.load(sys.stdin)\n"
        "assert work['urls'] == {'__SHOPPING_ADMIN__': 'http://127.0.0.1:7780/admin'}\n"
        "json.dump([{'score': float(c['answer'] == 'right'), 'status': c['trace'] or '-',"
        " 'message': ''} for c in work['cases']], sys.stdout)\n"
    )
    python.chmod(0o755)
    tasks = read_verified_tasks(write_tasks(tmp_path))
    trace = tmp_path / "500.har"
    cases = [
        Case(BY_ANSWER, "wrong"),
        Case(BY_REQUESTS, "right"),
        Case(BY_REQUESTS, "right", trace),
        Case(BY_ANSWER, "right"),
    ]
    found = score(cases, tasks, URLS, python=str(python))
    assert [each.score for each in found] == [0.0, None, 1.0, 1.0]
    assert found[2] == Score(BY_REQUESTS, 1.0, str(trace))


def har(folder: pathlib.Path, name: str, *, extra: str) -> pathlib.Path:
    """Writes a HAR file with the request that a task expects.

    `extra` is appended to the value of every form field; with a non-empty `extra` the request is
    wrong.
    """
    tasks = json.loads(verified._tasks_of(PYTHON).read_text())  # type: ignore[union-attr]
    wanted = tasks[BY_REQUESTS]["eval"][1]["expected"]
    text = "&".join(f"{field}={value}{extra}" for field, value in wanted["post_data"].items())
    post = {"mimeType": "application/x-www-form-urlencoded", "text": text}
    address = URLS.fill(wanted["url"])
    request = {"url": address, "method": "POST", "headers": [], "postData": post}
    response = {"status": 302, "redirectURL": "http://127.0.0.1:7780/admin/", "headers": []}
    path = folder / name
    path.write_text(json.dumps({"log": {"entries": [{"request": request, "response": response}]}}))
    return path


@needs_library
def test_the_library_scores_answers_and_requests(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    done = json.dumps({"task_type": "mutate", "status": "SUCCESS", "retrieved_data": None})
    wrong = json.dumps({"task_type": "retrieve", "status": "SUCCESS", "retrieved_data": ["x"]})
    sent, other = har(tmp_path, "a.har", extra=""), har(tmp_path, "b.har", extra="7")
    episodes = [
        {"task_id": BY_REQUESTS, "answer": done, "trace": sent.name},
        {"task_id": BY_REQUESTS, "answer": done, "trace": other.name},
        {"task_id": BY_REQUESTS, "answer": wrong, "trace": sent.name},
        {"task_id": BY_REQUESTS, "answer": done, "trace": None},
        {"task_id": BY_ANSWER, "answer": wrong, "trace": None},
        {"task_id": BY_ANSWER, "answer": "not even JSON", "trace": None},
    ]
    (tmp_path / "episodes.jsonl").write_text("\n".join(map(json.dumps, episodes)))
    sites = {site: {"url": url} for site, url in URLS.bases.items()}
    (tmp_path / "deployment.json").write_text(json.dumps({"sites": sites}))
    verified.main(
        [
            str(tmp_path / "episodes.jsonl"),
            f"--deployment={tmp_path / 'deployment.json'}",
            f"--python={PYTHON}",
        ]
    )
    printed = capsys.readouterr()
    scores = [json.loads(line)["score"] for line in printed.out.splitlines()]
    assert scores == [1.0, 0.0, 0.0, None, 0.0, 0.0]
    assert "5 of 6 episodes scored, mean 0.200" in printed.err
