"""Connection to an MCP server over stdio: a process to which JSON-RPC messages are written.

The client of the package `mcp` starts each server in a new process session, so the server could
outlive a killed worker, and it reads lines of any length. This client supports tools only.
"""

import collections
import contextlib
import json
import os
import selectors
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_envs.base.protocol import read_json
from agentgym_envs.processes import kill_family, kill_marked

PROTOCOL = "2025-06-18"
MAX_MESSAGE_BYTES = 4 << 20
_CLOSE_S = 2.0  # in which a server must end after the end of its input
_PAGES = 100  # of a list of tools
_ERROR_BYTES = 2000  # kept of what a server writes besides messages
_NO_METHOD = -32601
_MARK = "AGENTGYM_MCP_SERVER"  # variable by which the processes that a server started are found


class ServerLost(ConnectionError):
    """The server ended, was too slow, or broke the protocol; it was killed."""


class CallError(Exception):
    """The server refused a request; the message is its own."""


class McpServer:
    """A running MCP server, used by one thread. It belongs to the process group of its client.

    Args:
      command: Program and arguments.
      seconds: Limit for the start and for each request.

    Raises:
      OSError: The program cannot be started.
      ServerLost: It did not start as an MCP server.
    """

    def __init__(self, command: Sequence[str], seconds: float):
        self._seconds = seconds
        self._mark = uuid.uuid4().hex
        self._process = subprocess.Popen(
            command,
            env={**os.environ, _MARK: self._mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        os.set_blocking(self._pipe("stdin").fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pipe("stdout"), selectors.EVENT_READ)
        self._selector.register(self._pipe("stderr"), selectors.EVENT_READ)
        self._partial = b""
        self._lines: collections.deque[bytes] = collections.deque()
        self._errors = b""
        self._number = 0
        client = {"name": "agentgym_envs", "version": "1"}
        try:
            self._ask("initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo=client)
        except CallError as error:
            raise self._lost(f"refused to start: {error}") from error
        self._send({"method": "notifications/initialized"}, time.monotonic() + seconds)

    def tools(self) -> list[dict[str, Any]]:
        """Returns the server's tools with `name`, `description` and `parameters`."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, Any] = {}
        for _ in range(_PAGES):
            page = self._ask("tools/list", **cursor)
            entries = page.get("tools")
            if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
                raise self._lost(f"listed tools as {entries!r:.200}")
            found += [
                {
                    "name": entry.get("name"),
                    "description": entry.get("description") or "",
                    "parameters": entry.get("inputSchema", {}),
                }
                for entry in entries
            ]
            if not page.get("nextCursor"):
                return found
            cursor = {"cursor": page["nextCursor"]}
        raise self._lost(f"lists tools on more than {_PAGES} pages")

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Calls a tool; returns the text of its result, and True if the tool reports an error.

        Raises:
          CallError: The server refuses the call.
          ServerLost: There is no usable answer.
        """
        result = self._ask("tools/call", name=name, arguments=dict(arguments))
        blocks = result.get("content")
        blocks = blocks if isinstance(blocks, list) else []
        texts = [_text(block) for block in blocks if isinstance(block, dict)]
        return "\n".join(texts), result.get("isError") is True

    def close(self) -> None:
        """Ends the server; kills it if the end of its input does not end it, and its children."""
        with contextlib.suppress(OSError):
            self._pipe("stdin").close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_S)
        self._kill()
        self._selector.close()
        for name in ("stdout", "stderr"):
            self._pipe(name).close()

    def _pipe(self, name: str) -> Any:
        return getattr(self._process, name)

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Returns the result of a request."""
        self._number += 1
        deadline = time.monotonic() + self._seconds
        self._send({"id": self._number, "method": method, "params": params}, deadline)
        while True:
            answer = self._read(method, deadline)
            if "method" in answer:
                self._refuse(answer, deadline)
            elif answer.get("id") == self._number:
                break
        error, result = answer.get("error"), answer.get("result")
        if isinstance(error, dict):
            raise CallError(str(error.get("message", error)))
        if not isinstance(result, dict):
            raise self._lost(f"answered {method} with {answer!r:.200}")
        return result

    def _refuse(self, request: Mapping[str, Any], deadline: float) -> None:
        """Answers a request of the server; all but `ping` are unknown. Notifications are ignored."""
        if "id" not in request:
            return
        known = request["method"] == "ping"
        body = {"result": {}} if known else {"error": {"code": _NO_METHOD, "message": "unknown"}}
        self._send({"id": request["id"], **body}, deadline)

    def _send(self, message: Mapping[str, Any], deadline: float) -> None:
        """Writes a message; meanwhile it takes the server's output, which could block the server."""
        stdin = self._pipe("stdin")
        left = memoryview((json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode())
        while left:
            try:
                left = left[os.write(stdin.fileno(), left) :]
            except BlockingIOError:
                self._selector.register(stdin, selectors.EVENT_WRITE)
                self._wait(f"did not read a message in {self._seconds:g} s", deadline)
                self._selector.unregister(stdin)
            except OSError as error:
                raise self._lost(f"reads nothing more ({error})") from error

    def _read(self, method: str, deadline: float) -> dict[str, Any]:
        """Returns the next message; other lines, such as a greeting, are skipped."""
        while True:
            while self._lines:
                line = self._lines.popleft()
                try:
                    message = read_json(line)
                except ValueError:
                    self._note(line + b"\n")
                    continue
                if isinstance(message, dict):
                    return message
            late = f"did not answer {method} in {self._seconds:g} s (the option call_seconds)"
            self._wait(late, deadline)

    def _wait(self, failure: str, deadline: float) -> None:
        """Waits until a pipe is ready and takes what the server has written."""
        left = deadline - time.monotonic()
        # A server that writes without end is always ready.
        ready = self._selector.select(left) if left > 0 else []
        if not ready:
            raise self._lost(failure)
        for key, _ in ready:
            if key.fileobj is self._process.stdin:
                continue
            data = os.read(key.fd, 1 << 16)
            if key.fileobj is self._process.stderr:
                self._note(data)
                if not data:
                    self._selector.unregister(key.fileobj)
            elif not data:
                raise self._lost("ended")
            else:
                self._take(data)

    def _note(self, data: bytes) -> None:
        """Keeps the end of what the server writes besides messages, for errors."""
        self._errors = (self._errors + data)[-_ERROR_BYTES:]

    def _take(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._lines.extend(lines)
        if max(map(len, (self._partial, *lines))) > MAX_MESSAGE_BYTES:
            raise self._lost(f"sent a message of more than {MAX_MESSAGE_BYTES} bytes")

    def _kill(self) -> None:
        """Kills the server, also behind a program such as `npx`, and all that it has started."""
        if self._process.returncode is None:  # its number is not that of another process
            kill_family(self._process.pid)
        self._process.wait()
        kill_marked(_MARK, self._mark)  # for example a browser, which can outlive its server

    def _lost(self, what: str) -> ServerLost:
        """Kills the server and returns the error, with the last line that is no message."""
        self._kill()
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(self._pipe("stderr").fileno(), False)
            self._errors += os.read(self._pipe("stderr").fileno(), _ERROR_BYTES)
        last = self._errors.decode(errors="replace").strip().rpartition("\n")[2]
        self.close()
        return ServerLost(f"the MCP server {what}" + (f"; it wrote: {last[:300]}" if last else ""))


def _text(block: Mapping[str, Any]) -> str:
    """Returns the text of a part of a result; other parts are named."""
    if isinstance(block.get("text"), str):
        return block["text"]
    resource = block.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return resource["text"]
    return f"[{block.get('type')}]"
