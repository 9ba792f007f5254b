"""Agent frameworks as clients: every prompt begins with the sampled tokens of its conversation.

The frameworks run as programs in a separate environment, as an agent program may. Their tasks
are in `frameworks/`.
"""

import dataclasses
import itertools
import json
import os
import pathlib
import re
import subprocess

import pytest

from agentgym_jax.text.train_tokenizer import train_tokenizer
from tests.other_environment import install
from tests.serving.parts import MODEL, serving_script
from tests.waiting import PATIENCE_S

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = pathlib.Path(__file__).parent / "frameworks"
PACKAGES = [
    "langgraph==1.2.24",
    "langchain-openai==1.7.4",
    "pydantic-ai-slim[anthropic,openai]==2.68.0",
    "openai-agents==0.24.0",
    "smolagents[openai]==1.26.0",
    "mini-swe-agent==2.4.6",
]
LIMIT = 65_536  # tokens of a conversation


def call(name, **arguments):
    """Returns the text of a tool call."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def code(text):
    """Returns an answer with a code block, without the end that is a stop string."""
    return f"I compute.\n<code>\n{text}\n"


def shell(command):
    """Returns an answer with a command in the form of mini-swe-agent's text model."""
    return f"THOUGHT: I look.\n\n```mswea_bash_command\n{command}\n```"


ADD, FINAL = call("add", a=17, b=25), call("final_answer", answer="42")
DONE, AGAIN, JSON = "It is 42.", "Then it is 84.", '{"total": 42}'
TALK = [f"I add.\n\n{ADD}", DONE]
PARALLEL = [f"I add.\n{ADD}\n{call('add', b=2, a=1)}", DONE]
CODE = [code("print(add(17, 25))") + "</code>", code("final_answer(42)") + "</code>"]
STEPS = [
    json.dumps({"thought": "I compute.", "code": text})
    for text in ("print(add(17, 25))", "final_answer(42)")
]
LIST, SUBMIT = "ls", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo none"
BASH = [call("bash", command=command) for command in (LIST, SUBMIT)]
THINKING = [f"<think>\nhm\n</think>\n\n{text}" for text in (ADD, BASH[0])]
TEXT_CALL = "message 2 .assistant. has .*Calling tools:"


@dataclasses.dataclass(frozen=True)
class Case:
    """Task of a framework.

    Attributes:
      program, task: File in `frameworks/`, and the argument of its command.
      answers: Texts of the scripted answers.
      result: Output of the program.
      branches: Number of sequences.
      fork: Pattern of the description of the only fork; empty for none.
      reasoning: Value of `reasoning_parser`.
    """

    program: str
    task: str
    answers: list
    result: object = DONE
    branches: int = 1
    fork: str = ""
    reasoning: str = "none"

    def __str__(self):
        thinks = "-thinking" * self.answers[0].startswith("<think>")
        return f"{self.program}-{self.task}{thinks}"


def openai_agents(api):
    """Returns the cases of the OpenAI Agents SDK with one API."""
    handoff = [call("transfer_to_other"), *TALK]
    return [
        Case("openai_agents", f"{api}/tools", PARALLEL),
        Case("openai_agents", f"{api}/stream", TALK, f"I add.{DONE}"),
        Case("openai_agents", f"{api}/output_type", [ADD, JSON], 42),
        Case("openai_agents", f"{api}/required", [ADD, DONE]),
        Case("openai_agents", f"{api}/handoff", handoff, branches=2, fork="tools differ"),
    ]


CASES = [
    Case("langgraph", "tools", PARALLEL),
    Case("langgraph", "stream", TALK, f"I add.{DONE}"),
    Case("langgraph", "responses", PARALLEL),
    Case("langgraph", "structured", [JSON, call("Sum", total=42), JSON], [42] * 3, branches=3),
    Case("langgraph", "forced", [ADD, DONE]),
    Case("pydantic_ai", "tools", PARALLEL),
    Case("pydantic_ai", "stream", [ADD, DONE]),
    Case("pydantic_ai", "responses", PARALLEL),
    Case("pydantic_ai", "messages", PARALLEL),
    Case("pydantic_ai", "tool_output", [ADD, call("final_result", total=42)], 42),
    Case("pydantic_ai", "native_output", [ADD, JSON], 42),
    Case("pydantic_ai", "prompted_output", [ADD, JSON], 42),
    Case("pydantic_ai", "history", [*TALK, AGAIN], AGAIN),
    *openai_agents("chat_completions"),
    *openai_agents("responses"),
    Case("smolagents", "tools", [ADD, FINAL], "42", branches=2, fork=TEXT_CALL),
    Case("smolagents", "stream", [ADD, FINAL], "42", branches=2, fork=TEXT_CALL),
    Case("smolagents", "code", CODE, 42, branches=2, fork=TEXT_CALL),
    Case("smolagents", "exact_code", CODE, 42),
    Case("smolagents", "structured_code", STEPS, 42, branches=2, fork=TEXT_CALL),
    Case("mini_swe", "tools", BASH, "none\n"),
    Case("mini_swe", "responses", BASH, "none\n"),
    Case("mini_swe", "text", [shell(LIST), shell(SUBMIT)], "none\n"),
    # Thinking in a separate field that the framework sends back or loses.
    Case("langgraph", "responses", [THINKING[0], DONE], reasoning="think"),
    Case("pydantic_ai", "tools", [THINKING[0], DONE], reasoning="think"),
    Case("pydantic_ai", "messages", [THINKING[0], DONE], reasoning="think"),
    Case("openai_agents", "responses/tools", [THINKING[0], DONE], reasoning="think"),
    Case("mini_swe", "tools", [THINKING[1], BASH[1]], "none\n", reasoning="think"),
    Case("langgraph", "tools", [THINKING[0], DONE], branches=2, fork="hm", reasoning="think"),
    # Thinking in the text, with another white space.
    Case("pydantic_ai", "tools", [THINKING[0], DONE], branches=2, fork="nhm.*</think>"),
]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Interpreter of an environment with the frameworks."""
    return install(tmp_path_factory.mktemp("frameworks") / "venv", PACKAGES)


@pytest.fixture(scope="module")
def qwen_like(tmp_path_factory):
    """A tokenizer with tokens of several characters and a chat template like that of Qwen2.5."""
    template = ROOT / "tests/text/templates/qwen25_tools_like.jinja"
    return train_tokenizer(
        [*PARALLEL, *CODE, *STEPS, *BASH, JSON, template.read_text()] * 4,
        vocab_size=500,
        pretokenizer_pattern=r"\d|\s",
        out=tmp_path_factory.mktemp("tokenizer"),
        template=template.read_text(),
    )


def run(python, case, server, folder):
    """Returns the output of the program of a case."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "MODEL": MODEL,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "any",
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "any",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
        "MSWEA_SILENT_STARTUP": "1",
    }
    command = [python, PROGRAMS / f"{case.program}_agent.py", case.task]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_framework_continues_the_sampled_tokens(case, python, qwen_like, tmp_path):
    parser = case.reasoning
    with serving_script(qwen_like, limit=LIMIT, max_known=None, reasoning_parser=parser) as server:
        script, chat = server.engine, server.backend.chat(None)
        script.texts += case.answers
        assert run(python, case, server, tmp_path) == case.result
    assert not script.texts
    assert chat.num_forks == bool(case.fork), chat.first_fork
    assert re.search(case.fork or "^$", chat.first_fork), chat.first_fork
    assert len(chat.sequences) == case.branches
    continued = sum(
        later[: len(prompt) + len(ids)] == prompt + ids
        for (prompt, ids), (later, _) in itertools.pairwise(script.sampled)
    )
    assert continued == len(case.answers) - case.branches


def test_the_page_of_agents_names_the_tested_versions():
    page = (ROOT / "docs/agents.md").read_text().lower()
    for package in PACKAGES:
        name, version = re.split(r"(?:\[.*\])?==", package)
        assert f"{name} {version} " in page.replace(",", " "), package
