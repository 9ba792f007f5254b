"""Thinking at the start of a model's answer, which is neither an action nor a tool call."""

THINKING_START, THINKING_END = "<think>", "</think>"


def split_thinking(text: str) -> tuple[str, str]:
    """Returns the thinking of an answer and the rest; together they are the text.

    Thinking goes up to the last `</think>`; the prompt may have opened it. If the rest begins with
    `<think>`, the thinking was not closed, and all of the text is thinking.
    """
    at = text.rfind(THINKING_END) + len(THINKING_END) if THINKING_END in text else 0
    if text[at:].lstrip().startswith(THINKING_START):
        at = len(text)
    return text[:at], text[at:]


def separate_thinking(text: str, *, is_open: bool) -> tuple[str, str, bool]:
    """Returns the thinking of an answer without its tags, the rest, and whether it is unfinished.

    Thinking ends at the first `</think>`, so that more tokens never change where it ends.
    With `is_open` the prompt has opened the thinking; else it begins with `<think>`.
    """
    start = text.lstrip()
    if start.startswith(THINKING_START):
        begin = len(text) - len(start) + len(THINKING_START)
    elif is_open:
        begin = 0
    else:
        return "", text, False
    thinking, closed, rest = text[begin:].partition(THINKING_END)
    return thinking, rest, not closed


def join_thinking(thinking: str, text: str) -> str:
    """Returns an answer with its thinking between tags."""
    return f"{THINKING_START}{thinking}{THINKING_END}{text}"
