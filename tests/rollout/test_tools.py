"""Episodes whose actions are calls of tools: their tokens, messages and actions."""

import json
import pathlib
import sys
import types

import numpy as np
import pytest

from agentgym_envs.base.protocol import write_call
from agentgym_jax.client.in_process import in_process_servers
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.config.sections import ConfigError
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome, TokenSource
from agentgym_jax.jobs.environments import check_no_tools
from agentgym_jax.jobs.sampled_agents import with_tool_renderer
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.episode import AgentTurn, EpisodeLimits, EpisodeRequest
from agentgym_jax.rollout.interface import EnvironmentText
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.template import CHATML, COMPACT
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.env_clients import connect

FOLDER = pathlib.Path(__file__).parents[1] / "text" / "templates"
ODD = FOLDER.parents[1] / "envs" / "mcp" / "odd_server.py"
QWEN = (FOLDER / "qwen25_tools_like.jinja").read_text().rstrip("\n")
# A template that refuses results without a call, and calls without an id of nine characters.
STRICT = (
    "{% if tools %}[TOOLS]{{ tools | tojson }}[/TOOLS]{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}"
    "{% if not m.tool_call_id or m.tool_call_id | length != 9 %}{{ raise_exception('no id') }}{% endif %}"
    "<|im_start|>user\n[{{ m.content }}]<|im_end|>"
    "{% elif m.tool_calls %}<|im_start|>assistant\n[TOOL_CALLS] [{"
    '"name": "{{ m.tool_calls[0].function.name }}", '
    '"arguments": {{ m.tool_calls[0].function.arguments | tojson }}}]<|im_end|>'
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = '\n<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
FORMS = {
    "qwen": (QWEN, CALL.removeprefix("\n")),
    "compact": (COMPACT, CALL.removeprefix("\n")),
    "strict": (STRICT, '[TOOL_CALLS] [{"name": "%s", "arguments": %s}]'),
}


class Reciter:
    """Rows of an agent that recites answers; their tokens are recorded like sampled ones."""

    free_rows, is_idle, num_sampled = 1, False, 0

    def __init__(self, renderer, answers):
        self.renderer = renderer
        self.answers = list(answers)
        self.is_idle = True

    def open(self, request):
        return 0

    def start_turn(self, row, append, moment):
        self.is_idle = False

    def take_turns(self, serve):
        text = self.answers.pop(0)
        tokens = np.asarray(self.renderer.action(text), np.int32)
        self.is_idle = True
        yield AgentTurn(0, text, True, tokens, np.zeros(len(tokens), np.float32))

    def close(self, row):
        self.is_idle = True

    stop = close


def client_of(transports):
    return connect("inprocess://mcp", "mcp", transport=transports["mcp"])


@pytest.fixture(scope="module")
def client():
    with in_process_servers(["mcp"]) as transports:
        yield client_of(transports)


def texts(client, template):
    """Returns the texts of the environment, as a job makes them, and the model's renderer."""
    tokenizer = byte_tokenizer(template)
    model = types.SimpleNamespace(tokenizer=tokenizer, renderer=ChatRenderer(tokenizer))
    spec = client.spec()
    preamble = ({"role": "system", "content": spec.instructions},)
    text = EnvironmentText(preamble, client.parse, client.facts.shown_tools)
    return with_tool_renderer("mcp", text, model), model.renderer


def play(client, template, answers, max_attempts=1):
    """Returns the episode of task 0, in which an agent gives these answers."""
    text, plain = texts(client, template)
    limits = EpisodeLimits(max_turns=8, max_tokens=8000, max_parse_errors=3)
    sampling = SamplingOptions(1.0, 400, 8000)
    request = EpisodeRequest(Task("mcp", 0, "mcp"), 0, 0, 0, limits, sampling)
    with EnvPool({"mcp": client}, workers=1) as pool:
        collector = Collector(
            rows=Reciter(plain, answers),
            pool=pool,
            environments={"mcp": text},
            prefetch=0,
            max_attempts=max_attempts,
            max_replacements=0,
            show_turn_budget="none",
            restart_dead_servers=lambda: None,
        )
        (episode,), _ = collector.collect(
            [request],
            replacement_stride=1,
            on_progress=lambda *counts: None,
            should_stop=lambda: False,
        )
    return episode


@pytest.mark.parametrize("name", FORMS)
def test_the_tokens_of_an_episode_are_those_of_the_template(client, name):
    template, form = FORMS[name]
    calls = [("stock", {"item": "apple"}), ("stock", {"item": "pear"}), ("finish", {"answer": "3"})]
    said = [form % (tool, json.dumps(arguments)) for tool, arguments in calls]
    answers = [said[0], "I am thinking.", said[1], said[2]]
    episode, tokenizer = play(client, template, answers), byte_tokenizer(template)
    assert (episode.outcome, episode.reward) == (Outcome.SUCCESS, 1.0)
    assert [turn.action for turn in episode.turns] == [
        write_call(*calls[0]),
        None,
        write_call(*calls[1]),
        write_call(*calls[2]),
    ]
    roles = ["system", "user", *["assistant", "tool", "assistant", "user"], *["assistant", "tool"]]
    assert [message["role"] for message in episode.messages] == [*roles, "assistant"]
    assert [m["content"] for m in episode.messages if m["role"] == "tool"] == ["3", "0"]

    def as_call(tool, arguments):
        function = {"name": tool, "arguments": arguments}
        call = {"id": "123456789", "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    written = list(episode.messages)
    for i, call in zip((2, 6, 8), calls, strict=True):
        written[i] = as_call(*call)
    written = [m | {"tool_call_id": "123456789"} if m["role"] == "tool" else m for m in written]
    tools = [{"type": "function", "function": tool} for tool in client.spec().tools]
    whole = ChatRenderer(tokenizer).template.render(written, tools, asks=False)
    expected = tokenizer.encode_with_specials(whole)
    found = episode.tokens.tolist()
    assert found == expected[: len(found)]
    assert len(expected) - len(found) <= 1  # the line break after the last answer
    sampled = [tokenizer.decode(found[t.action_start : t.action_stop - 1]) for t in episode.turns]
    assert sampled == answers
    marks = episode.sources == TokenSource.ACTION
    assert marks.sum() == sum(t.action_stop - t.action_start for t in episode.turns)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("stock apple", "No tool call was found"),
        ('{"name": "stock"}', "between <tool_call> and </tool_call>"),
        ('<tool_call>{"name": "stock"</tool_call>', "No tool call was found"),
        ("<think>" + CALL % ("stock", "{}") + "</think>no", "No tool call was found"),
        (2 * (CALL % ("stock", "{}")), "2 tool calls"),
        (CALL % ("stock", '{"item": "' + 10_000 * "a" + '"}'), "characters"),
    ],
)
def test_an_answer_without_exactly_one_call_is_a_parse_error(client, answer, problem):
    parsed = client.parse(answer)
    assert parsed.action is None and problem in parsed.problem


REFUSED = {
    "no place for tools": CHATML,
    "no id": STRICT.replace("length != 9", "length != 8"),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_a_template_that_cannot_write_an_episode_is_refused(client, problem):
    message = rf"environments\.mcp has tools, .* {problem}.*action_format='raw'"
    with pytest.raises(ConfigError, match=message):
        texts(client, REFUSED[problem])


def test_jobs_that_learn_from_conversations_refuse_tools(client):
    text, _ = texts(client, COMPACT)
    with pytest.raises(ConfigError, match=r"environments\.mcp has tools"):
        check_no_tools(types.SimpleNamespace(texts={"mcp": text}))


def test_a_server_that_dies_in_an_episode_is_a_failed_attempt(tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"instruction": "?", "answer": 3}')
    command = f"{sys.executable} {ODD}"
    options = {"command": command, "tasks": str(tmp_path / "tasks.jsonl")}
    with in_process_servers(["mcp"], options={"mcp": options}) as transports:
        client = client_of(transports)
        answers = [CALL % ("do", '{"thing": "die"}'), CALL % ("finish", '{"answer": "3"}')]
        episode = play(client, COMPACT, answers, max_attempts=2)
    assert (episode.outcome, episode.attempts) == (Outcome.SUCCESS, 2)
    assert len(episode.turns) == 1
