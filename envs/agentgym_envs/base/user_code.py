"""Calls of an environment's own code: checks of its results, and the place of its errors.

An error of an environment is reported in one line, such as `guess.py:30 in step: KeyError: 'low'`.
"""

import contextlib
import dataclasses
import pathlib
import signal
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from agentgym_envs.base.environment import EnvironmentFault, SetupError, SimulatorLost, StepResult
from agentgym_envs.base.protocol import LARGEST_NUMBER, clean_text, plain_number

_Argument = TypeVar("_Argument")

HANG_SECONDS = 300.0  # time after which a call outside a server counts as hanging
_SHOWN = 300  # maximum characters of an error's own text
_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_FRAMEWORK = (_PACKAGE / "base", _PACKAGE / "conformance")
_LIBRARIES = tuple(pathlib.Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_PACKAGE_FOLDERS = {"site-packages", "dist-packages"}


class BadResult(Exception):
    """A method of an environment returned a value that is no answer.

    Attributes:
      origin: File, method and field.
    """

    def __init__(self, method: Callable[..., Any], field: str, problem: str):
        self.origin = f"{_definition(method)}: {field}"
        super().__init__(f"{_definition(method)}: {field} {problem}")


class Hanging(SetupError):
    """A call of an environment did not end."""


def parts_of(
    method: Callable[..., Any], fields: tuple[str, ...], *arguments: Any, **options: Any
) -> tuple[Any, ...]:
    """Calls a method that returns a tuple with an observation, a text, first.

    Raises:
      BadResult: The result has not these fields.
    """
    result = method(*arguments, **options)
    if not isinstance(result, tuple | list) or len(result) != len(fields):
        expected = f"the tuple ({', '.join(fields)})"
        raise BadResult(method, "the result", f"is {_shown(result)}, expected {expected}")
    return (_text(method, fields[0], result[0]), *result[1:])


def truth_of(method: Callable[..., Any], field: str, value: Any) -> bool:
    """Returns a truth value, also of numpy; raises BadResult for another value of a field."""
    truth = plain_number(value)
    if not isinstance(truth, bool | int):
        raise BadResult(method, field, f"is {_shown(value)}, expected True or False")
    return bool(truth)


def play(method: Callable[[_Argument], StepResult], argument: _Argument) -> StepResult:
    """Calls `reset` or `step` and returns a result with plain numbers and a clean text.

    Numbers of numpy and other array libraries become numbers of Python. Lone surrogates become
    U+FFFD.

    Raises:
      BadResult: The result is none.
    """
    result = _call(method, argument)
    if not isinstance(result, StepResult):
        raise BadResult(method, "the result", f"is {_shown(result)}, expected a StepResult")
    if not isinstance(result.observation, str):
        raise BadResult(method, "observation", f"is {_shown(result.observation)}, expected a text")
    done = plain_number(result.done)
    if type(done) is not bool:
        problem = f"is {_shown(result.done)}, expected True or False; write bool(...)"
        raise BadResult(method, "done", problem)
    return dataclasses.replace(
        result,
        observation=clean_text(str(result.observation)),
        reward=number_of(method, "reward", result.reward),
        score=number_of(method, "score", result.score),
        done=done,
    )


def text_of(method: Callable[[], Any]) -> str:
    """Calls a method such as `expert_action` that returns a text."""
    return _text(method, "the result", _call(method))


def texts_of(method: Callable[[], Any]) -> list[str]:
    """Calls a method such as `valid_actions` that returns a list of texts."""
    found = _call(method)
    if not isinstance(found, list | tuple):
        raise BadResult(method, "the result", f"is {_shown(found)}, expected a list of texts")
    return [_text(method, f"entry {i} of the result", entry) for i, entry in enumerate(found)]


def place(error: BaseException) -> str:
    """Returns file, line and function in which the environment's code failed; empty without one.

    This is the last frame outside the server and the libraries: an error inside numpy is reported
    at the line of the environment that called numpy.
    """
    frames = [
        (pathlib.Path(frame.f_code.co_filename), line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    outside = [found for found in frames if not _is_framework(found[0])]
    if not outside:
        return ""
    own = [found for found in outside if not _PACKAGE_FOLDERS.intersection(found[0].parts)]
    # If the environment is itself an installed package, its code is the first outside the server.
    path, line, function = own[-1] if own else outside[0]
    return f"{path.name}:{line} in {function}"


def origin(error: BaseException) -> str:
    """Returns place and type of an error, which are equal if the same line fails again.

    Empty for an error of the network or the memory, which may be gone at the next try.
    """
    return "" if _is_passing(error) else place_and_type(error)


def place_and_type(error: BaseException) -> str:
    """Returns place and type of an error; empty for one outside the environment's code."""
    if isinstance(error, BadResult):
        return error.origin
    found = place(error)
    return f"{found}: {type(error).__name__}" if found else ""


def describe(error: BaseException) -> str:
    """Returns one line with the place, the type and the text of an error."""
    if isinstance(error, BadResult):
        return str(error)
    found, kind = place(error), type(error).__name__
    try:
        text = _one_line(str(error))
    except Exception:  # noqa: BLE001 - the class of the user may fail in any way
        text = ""
    return ": ".join(part for part in (found, kind, text) if part)


@contextlib.contextmanager
def loading(what: str, besides: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Converts errors of the code that makes an environment to SetupError.

    `what` is the beginning of the message, such as `guess cannot be prepared`. Errors of the types
    `besides` are not converted.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # code of a user can raise any error
        if isinstance(error, (SetupError, SimulatorLost, EnvironmentFault, *besides)):
            raise
        raise SetupError(f"{what}: {describe(error)}") from error


def _call(method: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a method of a user; `sys.exit` in it is an error and does not end this process."""
    try:
        return method(*arguments)
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}").with_traceback(error.__traceback__) from error


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Raises Hanging in a call of the environment that takes longer than HANG_SECONDS.

    Servers need no such limit, because they kill their workers. Other threads than the main one and
    native code cannot be interrupted.
    """

    def stop(number: int, frame: object) -> None:
        raise Hanging(f"no answer within {HANG_SECONDS:g} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _definition(method: Callable[..., Any]) -> str:
    """Returns file, line and name of a method."""
    code = getattr(method, "__code__", None)
    name = getattr(method, "__name__", repr(method))
    if code is None:
        return name
    return f"{pathlib.Path(code.co_filename).name}:{code.co_firstlineno} in {name}"


def number_of(method: Callable[..., Any], field: str, value: Any) -> float:
    """Returns a finite number of Python; raises BadResult for another value of a method's field."""
    number = plain_number(value)
    if isinstance(number, int):
        number = int(number)
    elif isinstance(number, float):
        number = float(number)
    else:
        raise BadResult(method, field, f"is {_shown(value)}, expected a number")
    if not abs(number) <= LARGEST_NUMBER:  # excludes NaN
        problem = f"is {_shown(value)}, expected a number of at most {LARGEST_NUMBER:g} in size"
        raise BadResult(method, field, problem)
    return number


def _text(method: Callable[..., Any], field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadResult(method, field, f"is {_shown(value)}, expected a text")
    return clean_text(str(value))


def _shown(value: Any) -> str:
    kind = type(value).__name__
    if value is None:
        return kind
    try:
        return f"{_one_line(repr(value))} ({kind})"
    except Exception:  # noqa: BLE001 - the class of the user may fail in any way
        return f"an object of {kind}"


def _one_line(text: str) -> str:
    text = " ".join(clean_text(text).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_passing(error: BaseException) -> bool:
    """Returns True for errors such as a broken connection; a missing file stays missing."""
    return isinstance(error, OSError | MemoryError) and not isinstance(error, _LASTING)


def _is_framework(path: pathlib.Path) -> bool:
    """Returns True for the server's files, Python's own library and `<frozen importlib>`."""
    if not path.is_absolute() or path.parent == _PACKAGE:
        return True
    if any(folder in path.parents for folder in _FRAMEWORK):
        return True
    is_standard = any(folder in path.parents for folder in _LIBRARIES)
    return is_standard and not _PACKAGE_FOLDERS.intersection(path.parts)
