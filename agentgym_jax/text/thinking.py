"""Thinking at the start of a model's answer, which is neither an action nor a tool call."""

_START, _END = "<think>", "</think>"


def split_thinking(text: str) -> tuple[str, str]:
    """Returns the thinking of an answer and the rest; together they are the text.

    Thinking goes up to the last `</think>`; the prompt may have opened it. If the rest begins with
    `<think>`, the thinking was not closed, and all of the text is thinking.
    """
    at = text.rfind(_END) + len(_END) if _END in text else 0
    if text[at:].lstrip().startswith(_START):
        at = len(text)
    return text[:at], text[at:]
