"""Tool calls in sampled text."""


def parse_tool_calls(text):
    return text, []
