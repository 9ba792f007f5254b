"""The environment of MCP servers: its tasks, answers and checkers, and servers that misbehave."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import textwrap

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.protocol import write_call
from agentgym_envs.base.served import load_environment
from agentgym_envs.base.user_code import BadResult
from agentgym_envs.mcp.connection import ServerLost
from agentgym_envs.mcp.environment import ERROR, REFUSAL
from agentgym_envs.processes import exists
from agentgym_envs.registry import ENVIRONMENTS
from tests.waiting import PATIENCE_S, until

MODULE = ENVIRONMENTS["mcp"].module
ODD = shlex.join([sys.executable, str(pathlib.Path(__file__).parent / "odd_server.py")])
ROW = {"instruction": "Do it.", "answer": "done"}


@pytest.fixture
def serve(tmp_path):
    """Returns a function that loads the environment of rows or lines, and of the odd server."""
    path = tmp_path / "tasks.jsonl"

    def load(*rows, command=ODD, **options):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows or (ROW,)]
        path.write_text("\n".join(lines))
        options = {"call_seconds": PATIENCE_S, **options}
        return load_environment(MODULE, {"command": command, "tasks": str(path), **options})

    return load


@pytest.fixture
def start(serve):
    """Returns a function that starts task 0 of rows; all servers are ended after the test."""
    made = []

    def begin(*rows, **options):
        environment = serve(*rows, **options).factory()
        made.append(environment)
        environment.reset(0)
        return environment

    yield begin
    for environment in made:
        environment.close()


def do(environment, thing):
    return environment.step(write_call("do", {"thing": thing}))


def has_ended(pid):
    """Returns True if there is no such process, or it waits for its parent to notice its end."""
    try:
        return "Z" in pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2]
    except OSError:
        return True


def finish(environment, answer):
    return environment.step(write_call("finish", {"answer": answer}))


def test_the_expert_solves_every_task_of_the_shop():
    served = load_environment(MODULE, {"restart": False})
    environment = served.factory()
    for task in served.tasks():
        assert environment.reset(task["data_idx"]).observation == task["instruction"]
        result = environment.step(environment.expert_action())
        while not result.done:
            result = environment.step(environment.expert_action())
        assert (result.reward, result.score) == (1.0, 1.0)
    environment.close()


def test_results_are_shown_and_bounded(start):
    environment = start(max_characters=100)
    shown = {thing: do(environment, thing).observation for thing in ("jump", "error", "refuse", "")}
    assert shown == {
        "jump": "did jump",
        "error": f"{ERROR}did error",
        "refuse": f"{ERROR}no such thing",
        "": "[no output]",
    }
    assert do(environment, "image").observation == "did image\n[image]"
    assert do(environment, "long").observation == 100 * "y" + "\n[900 more characters]"
    assert do(environment, "chat").observation == "did chat"


@pytest.mark.parametrize(
    "action",
    [
        "jump",
        "{",
        '{"name": "fly"}',
        '{"name": "do", "arguments": 1}',
        '{"name": "do", "arguments": {"thing": NaN}}',
        '{"name": "do", "arguments": {"thing": 1e999}}',
    ],
)
def test_other_texts_than_calls_are_rejected(start, action):
    result = start().step(action)
    assert result.observation.startswith(REFUSAL) and not result.done


@pytest.mark.parametrize("restart", [True, False])
def test_each_episode_has_a_new_server_unless_they_are_kept(start, restart):
    environment = start(restart=restart)
    assert [do(environment, "count").observation for _ in range(2)] == ["1", "2"]
    environment.reset(0)
    assert do(environment, "count").observation == ("1" if restart else "3")


def test_a_closed_session_leaves_no_process(start):
    environment = start()
    pid = int(do(environment, "pid").observation)
    assert exists(pid)
    environment.close()
    assert not exists(pid)


@pytest.mark.parametrize("end", ["close", "reset", "die", "hang"])
def test_a_process_that_a_server_has_started_ends_with_it(start, end):
    environment = start()
    pid = int(do(environment, "orphan").observation)
    assert not has_ended(pid)
    if end in ("close", "reset"):
        environment.close() if end == "close" else environment.reset(0)
    else:
        environment._server._seconds = 2.0 if end == "hang" else PATIENCE_S  # reached by a hang
        with pytest.raises(ServerLost):
            do(environment, end)
    until(lambda: has_ended(pid))


@pytest.mark.parametrize(
    ("thing", "seconds", "message"),
    [
        ("die", PATIENCE_S, "ended; it wrote: out of luck"),
        ("hang", 2.0, r"did not answer tools/call in 2 s \(the option call_seconds\)$"),  # reached
        ("unended", 2.0, "did not answer .*; it wrote: no line end{"),  # reached
        ("chatter", 2.0, "did not answer tools/call in 2 s"),  # reached
        ("flood", PATIENCE_S, "more than 4194304 bytes"),
        ("garbage", PATIENCE_S, "answered tools/call"),
    ],
)
def test_a_lost_server_is_an_error_after_which_the_task_can_start_again(
    start, thing, seconds, message
):
    environment = start()
    pid = int(do(environment, "pid").observation)
    environment._server._seconds = seconds
    with pytest.raises(ServerLost, match=message):
        do(environment, thing)
    assert not exists(pid)
    environment.reset(0)
    assert do(environment, "jump").observation == "did jump"


def test_a_server_that_stops_reading_is_lost_at_the_limit_of_the_call(start):
    environment = start()
    pid = int(do(environment, "pid").observation)
    environment._server._seconds = 2.0  # reached
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(ServerLost, match="did not read a message in 2 s"):
        do(environment, "x" * (1 << 20))
    assert not exists(pid)


def test_a_server_behind_a_shell_leaves_no_process_when_it_hangs(start):
    environment = start(command=shlex.join(["sh", "-c", f"{ODD}; true"]))
    pid = int(do(environment, "pid").observation)
    environment._server._seconds = 2.0  # reached
    with pytest.raises(ServerLost, match="did not answer"):
        do(environment, "hang")
    until(lambda: has_ended(pid))


@pytest.mark.parametrize(
    ("right", "given", "score"),
    [
        ("The Answer", "answer", 1.0),
        (12.5, "12.50", 1.0),
        (1200, "1,200", 1.0),
        (-5, "5", 0.0),
        ("-5", "5", 0.0),
        (["no", "never"], "Never.", 1.0),
        (True, "true", 1.0),
        ("NaN", "nan", 1.0),
        ("yes", "yes and no", 0.0),
        ("yes", "", 0.0),
        ("A", "(a)", 1.0),
        ("A", "", 0.0),
        ("A", "the", 0.0),
        ("+", "-", 0.0),
        ("1,2", "1, 2", 1.0),
        ("1,2", "12", 0.0),
        ("Paris,Rome", "Paris, Rome", 1.0),
        ("1,200 figs", "1200 figs", 1.0),
        (9007199254740993, "9007199254740992", 0.0),
        ("9007199254740993", "9,007,199,254,740,993", 1.0),
    ],
)
def test_an_answer_is_compared_as_a_number_or_as_words(start, right, given, score):
    result = finish(start({"instruction": "?", "answer": right}), given)
    assert (result.score, result.reward, result.done) == (score, score, True)


def test_a_checker_decides_by_the_state_of_the_server(start, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "checks_of_a_test.py").write_text(
        textwrap.dedent("""
            def half(row, answer, call):
                return 0.5 * (answer == row["instruction"]) * (call("do", {"thing": "count"}) == "2")
        """)
    )
    by_call = {"tool": "do", "arguments": {"thing": "count"}, "expected": 2}
    for checker, answer, best in ((by_call, "", 1.0), ("checks_of_a_test:half", "x", 0.5)):
        for calls, score in ((0, 0.0), (1, best)):
            environment = start({"instruction": "x", "checker": checker})
            for _ in range(calls):
                do(environment, "jump")
            assert finish(environment, answer).score == score
            environment.close()


@pytest.mark.parametrize("value", ["float('nan')", "None", "'0.5'", "70", "-1", "[1]"])
def test_a_checker_that_gives_no_score_fails_and_is_named(start, tmp_path, monkeypatch, value):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"checks_{abs(hash(value))}"
    (tmp_path / f"{name}.py").write_text(f"def score(row, answer, call):\n    return {value}\n")
    environment = start({"instruction": "x", "checker": f"{name}:score"})
    with pytest.raises(BadResult, match=rf"{name}.py:1 in score: the score is .*from 0 to 1"):
        finish(environment, "x")


@pytest.mark.parametrize(
    ("value", "score"), [("True", 1), ("1 + 1e-9", 1), ("numpy.float32(0.5)", 0.5)]
)
def test_a_score_of_a_checker_can_be_any_number_from_0_to_1(
    start, tmp_path, monkeypatch, value, score
):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"checks_{abs(hash(value))}"
    code = f"import numpy\n\n\ndef score(row, answer, call):\n    return {value}\n"
    (tmp_path / f"{name}.py").write_text(code)
    result = finish(start({"instruction": "x", "checker": f"{name}:score"}), "x")
    assert (result.score, type(result.score), result.done) == (score, float, True)


BAD_LINES = [
    ("{", r"tasks.jsonl:2: no JSON"),
    ("[]", r"tasks.jsonl:2: \[\], expected an object"),
    ({"instruction": "x", "answr": 1}, r"tasks.jsonl:2: the fields \['answr'\]"),
    ({"answer": 1}, "tasks.jsonl:2: instruction=None"),
    ({"instruction": "x"}, "tasks.jsonl:2: expected either an answer or a checker"),
    ({"instruction": "x", "answer": {}}, "tasks.jsonl:2: answer="),
    ({"instruction": "x", "answer": []}, "tasks.jsonl:2: answer="),
    ({"instruction": "x", "answer": 1, "split": "all"}, "tasks.jsonl:2: split='all'"),
    ({"instruction": "x", "answer": 1, "solution": [1]}, "tasks.jsonl:2: solution="),
    ({"instruction": "x", "checker": 1}, "tasks.jsonl:2: checker=1"),
    ({"instruction": "x", "checker": "json"}, "tasks.jsonl:2: checker='json'"),
    ({"instruction": "x", "checker": "json:__name__"}, "is 'json', expected a function"),
    ({"instruction": "x", "checker": {"tool": "do", "expected": [8]}}, "tasks.jsonl:2: checker="),
    ({"instruction": "x", "checker": "no_such:f"}, "tasks.jsonl:2: checker='no_such:f' cannot"),
    ({"instruction": "x", "checker": "json:no"}, "tasks.jsonl:2: checker='json:no' cannot"),
    (
        {"instruction": "x", "checker": {"tool": "fly"}},
        "tasks.jsonl:2: the server has no tool 'fly'",
    ),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_a_wrong_line_of_the_tasks_is_named(serve, line, message):
    with pytest.raises(SetupError, match=message) as error:
        serve(ROW, line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": ""}, "give both"),
        ({"command": "no_such_program_here"}, "No such file"),
        ({"command": "'"}, "No closing quotation"),
        ({"command": f"{sys.executable} -c 1"}, "the MCP server (ended|reads nothing more)"),
        ({"command": f"{ODD} do,do"}, "tool 1 has the name 'do'"),
        ({"command": f"{ODD} a_b,c%d"}, "tool 1 has the name 'c%d'"),
        ({"command": f"{ODD} finish"}, "answer_tool='finish' is also a tool"),
        ({"hidden": "fly"}, "hidden='fly': the server has no 'fly'"),
        ({"max_turns": 0}, "max_turns=0"),
        ({"call_seconds": 0.0}, "call_seconds=0"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(serve, options, message):
    with pytest.raises(SetupError, match=message) as error:
        serve(**options)
    assert "\n" not in str(error.value)


def test_hidden_tools_and_pages_of_tools(serve):
    served = serve(command=f"{ODD} do,undo,redo", hidden="undo")
    assert [tool["name"] for tool in served.spec.tools] == ["do", "redo", "finish"]


def test_splits_are_those_of_the_file_or_every_fifth_task(serve):
    found = [task["split"] for task in serve(*(ROW for _ in range(10))).tasks()]
    assert found == 2 * [*4 * ["train"], "test"]
    found = serve(ROW, {**ROW, "split": "test"}).tasks()
    assert [task["split"] for task in found] == ["train", "test"]


@pytest.mark.slow
def test_a_server_of_the_package_mcp(serve, tmp_path):
    pytest.importorskip("mcp.server.mcpserver")
    script = tmp_path / "adder.py"
    script.write_text(
        textwrap.dedent('''
            from mcp.server.mcpserver import MCPServer
            app = MCPServer("adder")
            @app.tool()
            def add(a: int, b: int) -> int:
                """Adds two numbers."""
                return a + b
            app.run()
        ''')
    )
    row = {"instruction": "2 + 3?", "answer": 5}
    served = serve(row, command=f"{sys.executable} {script}")
    assert [tool["name"] for tool in served.spec.tools] == ["add", "finish"]
    environment = served.factory()
    environment.reset(0)
    assert environment.step(write_call("add", {"a": 2, "b": 3})).observation == "5"
    assert environment.step(write_call("add", {"a": "x"})).observation.startswith(ERROR)
    assert finish(environment, "5").score == 1.0
    environment.close()


@pytest.mark.slow
def test_a_killed_worker_takes_its_server_with_it():
    """The server of a killed process group ends, even while it hangs."""
    code = f"""
import sys
from agentgym_envs.mcp.connection import McpServer
server = McpServer({shlex.split(ODD)!r}, {PATIENCE_S})
print(server.call("do", {{"thing": "pid"}})[0], flush=True)
server.call("do", {{"thing": "hang"}})
"""
    worker = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    pid = int(worker.stdout.readline())
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    until(lambda: has_ended(pid))
