"""Keeps secrets out of all files of a run: config.json, provenance, logs.

A secret is a value under a name that ends in a word such as `token` or `key`, a `user:password@` in
an address, or the word after `Bearer`.
"""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "<hidden>"

# Keys of a config whose values are prompts. Episodes show them too, and evaluations read them again.
_PROMPTS = ("instructions", "rubric")
_SECRET_WORDS = "token|secret|password|passwd|pwd|passphrase|apikey|key|credential|credentials|auth|authorization"
_SECRET_NAME = re.compile(rf"(?:^|.*[_.\-])(?:{_SECRET_WORDS})$", re.IGNORECASE)
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.\-]*://)[^/\s@?#]+@", re.IGNORECASE)
_BEARER = re.compile(r"(\bBearer\s+)[^\s,;'\"]+", re.IGNORECASE)
# matches `api_key=abc` in an address or on a command line, and `"token": "abc"` in JSON
_PAIR = re.compile(
    rf"(\b(?:[\w.\-]*[_.\-])?(?:{_SECRET_WORDS})\b['\"]?\s*[=:]\s*)"
    r"(?!\s*(?:bearer\b|none\b|null\b))('[^']*'|\"[^\"]*\"|[^\s&,;'\"})\]]+)",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Returns True if values under this name are secrets."""
    return _SECRET_NAME.match(name) is not None


def text(value: str) -> str:
    """Replaces the secrets in a line of a log, an error or an address."""
    value = _USERINFO.sub(rf"\1{HIDDEN}@", value)
    value = _BEARER.sub(rf"\1{HIDDEN}", value)
    return _PAIR.sub(rf"\1{HIDDEN}", value)


def config(value: Any) -> Any:
    """Replaces the secrets in a config or a part of it, except empty values; keeps prompts."""
    if isinstance(value, Mapping):
        return {k: v if k in _PROMPTS else _named(str(k), v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [config(v) for v in value]
    return text(value) if isinstance(value, str) else value


def _named(name: str, value: Any) -> Any:
    is_hidden = is_secret(name) and isinstance(value, str) and value
    return HIDDEN if is_hidden else config(value)


def command(arguments: Sequence[str]) -> list[str]:
    """Replaces the secrets in a command line: `--config.client.token=abc` and `--token abc`."""
    hidden: list[str] = []
    is_value = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        is_flag = argument.startswith("-") and is_secret(name.lstrip("-"))
        if is_value and not argument.startswith("-"):
            hidden.append(HIDDEN)
        elif is_flag and equals:
            hidden.append(f"{name}={HIDDEN if value else ''}")
        else:
            hidden.append(text(argument))
        is_value = is_flag and not equals
    return hidden


_ORBAX = f"{os.sep}orbax{os.sep}"


class LogFilter(logging.Filter):
    """Log filter that replaces the secrets in the messages of a handler.

    It also omits the errors of Orbax. Its threads log a traceback at every level through which an
    error passes, and the same error reaches the caller, who reports it in one line.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Replaces the secrets in a log message; returns False for a message to omit."""
        if _ORBAX in record.pathname and record.levelno >= logging.ERROR:
            return False
        message = record.getMessage()
        shown = text(message)
        if shown != message:
            record.msg, record.args = shown, ()
        return True
