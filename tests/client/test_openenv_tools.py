"""Client of OpenEnv servers of the MCP kind, whose actions call tools."""

import pytest

from agentgym_jax.client.answers import Answer
from agentgym_jax.client.errors import EnvError
from agentgym_jax.client.openenv import OpenEnvClient
from tests.env_clients import LIMITS
from tests.fake_server import serving

TEXT = {"type": "string"}
CALL_SCHEMA = {
    "action": {
        "properties": {
            "metadata": {"properties": {"x": {"type": "integer"}, "y": TEXT}},
            "type": {"const": "call_tool"},
            "tool_name": TEXT,
            "arguments": {"type": "object"},
        }
    },
    "observation": {"properties": {"tool_name": TEXT, "result": {}, "error": {}}},
}
LOOK = {"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}


def listed_at_mcp(reply, status=200):
    """Returns a server of the MCP kind that answers a list of tools so; it serves no episodes."""
    answers = {"/schema": CALL_SCHEMA, "/metadata": {"description": "A hall.", "version": "2"}}

    def answer(request):
        if request.path == "/mcp":
            return status, reply
        return (200, answers[request.path]) if request.path in answers else (404, {})

    return serving(answer)


def test_a_server_of_the_mcp_kind_lists_its_tools():
    with listed_at_mcp({"jsonrpc": "2.0", "id": 1, "result": {"tools": [LOOK]}}) as server:
        client = OpenEnvClient(server.url, "hall", **LIMITS)
        spec = client.spec()
        assert (spec.action_format, spec.instructions) == ("tools", "A hall.")
        assert spec.tools == [
            {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
        ]
        answer = 'So:\n<tool_call>\n{"name": "look", "arguments": {"at": "a key"}}\n</tool_call>'
        action = client.parse(answer).action
        assert client._server.actions.action(action) == {
            "type": "call_tool",
            "tool_name": "look",
            "arguments": {"at": "a key"},
        }
        client.read_tools_as_text()
        assert client.parse('{"name": "look"}').action == '{"name": "look"}'
        assert "no call of a tool" in client.parse("look").problem


@pytest.mark.parametrize(
    ("reply", "status", "problem"),
    [
        ({}, 404, "no route /mcp"),
        ({"error": {"code": 1, "message": "no tools"}}, 200, "no tools"),
        ({"result": {"tools": []}}, 200, "lists no tools"),
        ({"result": {"tools": [{"name": "look"}]}}, 200, "inputSchema"),
        ({"result": {"tools": [LOOK, LOOK]}}, 200, "tool 1 has the name 'look'"),
    ],
)
def test_a_server_whose_tools_cannot_be_used_is_refused_at_its_spec(reply, status, problem):
    with listed_at_mcp(reply, status) as server:
        with pytest.raises(EnvError, match=problem):
            OpenEnvClient(server.url, "hall", **LIMITS).spec()


class ToolClient(OpenEnvClient):
    """Client of a server of the MCP kind, whose tools are known."""

    def _list_tools(self):
        return [{"name": "look", "description": "", "parameters": {}}]


@pytest.mark.parametrize(
    ("observation", "text", "is_rejection"),
    [
        ({"result": "a key"}, "a key", False),
        ({"result": {"content": [{"type": "text", "text": "a key"}]}}, "a key", False),
        ({"result": {"content": [{"text": "no key"}], "is_error": True}}, "Error: no key", True),
        ({"result": [1, 2]}, "[1, 2]", False),
        ({"error": {"error_type": "timeout", "message": "slow"}}, "Error: slow", True),
        ({"metadata": {"message": "hello"}}, "hello", False),
        ({"result": None}, "[no output]", False),
        ({}, "The task has begun.", False),
    ],
)
def test_the_results_of_calls_are_texts(observation, text, is_rejection):
    with listed_at_mcp({}) as server:
        client = ToolClient(server.url, "hall", **LIMITS)
        shown = client._server.later.text(Answer("", observation))
        assert shown == text
        assert client.facts.is_rejection(shown) is is_rejection
