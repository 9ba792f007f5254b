"""A proxy between a trainer and an environment server that misbehaves by a schedule, and counts how.

It knows one thing about the protocol: requests and answers have a length. `injected` is what it did,
`delivered` is what the client got to see of it: route and the cause that the client must report.
"""

import asyncio
import collections
import enum
import json
import random
import socket
import struct
import threading
import urllib.parse

STALL_S = 30.0  # longer than any client waits


class Fault(enum.StrEnum):
    """What happens to one request."""

    DELAY = "delay"  # forwarded a little later
    STALL = "stall"  # no answer as long as the client waits
    DROP = "drop"  # the connection is closed, the server never sees the request
    RESET = "reset"  # the same with a TCP reset
    LOSE = "lose"  # the server answers, the answer is lost
    TRUNCATE = "truncate"  # half of the answer, then the end
    DUPLICATE = "duplicate"  # the server gets the request twice; the client gets the second answer
    LATE = "late"  # the server gets the request again after the client has its answer
    STATUS_500 = "status 500"  # uvicorn's own words
    ERROR_200 = "error with 200"  # AgentGym's `{"error": ..}`
    NO_JSON = "no JSON"


_ANSWERS = {
    Fault.STATUS_500: (500, "text/plain", b"Internal Server Error", "http_status"),
    Fault.ERROR_200: (200, "application/json", b'{"error": "injected"}', "error_body"),
    Fault.NO_JSON: (200, "text/html", b"<html>502 Bad Gateway</html>", "bad_body"),
}
_CAUSE_OF_STATUS = {404: "session_lost", 503: "capacity", 504: "timeout"}


class Schedule:
    """Deals faults to the requests of each route as from a shuffled deck: all come equally often.

    Args:
      seed: of the shuffling.
      faults: once in every deck.
      calm: requests of every deck that are let through.
      routes: requests on others are always let through.
    """

    def __init__(self, seed, faults, calm, routes=("/create", "/reset", "/step", "/close")):
        self._random = {route: random.Random(f"{seed} {route}") for route in routes}
        self._decks = {route: [] for route in routes}
        self._cards = [*faults, *[None] * calm]

    def __call__(self, route):
        if route not in self._decks:
            return None
        deck = self._decks[route]
        if not deck:
            deck += self._random[route].sample(self._cards, len(self._cards))
        return deck.pop()


class FaultProxy:
    """Listens while the `with` block lasts.

    Attributes:
      schedule: route -> Fault or None; may be replaced at any time.
      injected: how often each fault happened.
      delivered: (route, cause) -> how often a client was left without an answer.
      requests: forwarded or not.
    """

    def __init__(self, target, schedule):
        parsed = urllib.parse.urlsplit(target)
        self._target = (parsed.hostname, parsed.port)
        self.schedule = schedule
        self.injected = collections.Counter()
        self.delivered = collections.Counter()
        self.requests = collections.Counter()
        self._loop = asyncio.new_event_loop()
        self._tasks = set()
        self._late = random.Random(0)

    def __enter__(self):
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self, started):
        async def main():
            self._stop = asyncio.Event()
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=256)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            started.set()
            await self._stop.wait()
            server.close()
            for task in [*self._tasks]:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._loop.run_until_complete(main())
        self._loop.close()

    async def _connected(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            while (request := await _message(reader)) is not None:
                if not await self._serve(request, reader, writer):
                    break
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, request, reader, writer):
        """Answers one request; False if the connection must end."""
        route = request.split(b" ", 2)[1].partition(b"?")[0].decode()
        self.requests[route] += 1
        fault = self.schedule(route)
        if fault is not None:
            self.injected[fault] += 1
        answer, cause = await self._answer(fault, request)
        if fault is Fault.STALL:
            await _until_gone(reader)
        if reader.at_eof():  # the client waits no more, whatever there was to say
            self.delivered[route, "timeout"] += 1
            return False
        if cause is not None:
            self.delivered[route, cause] += 1
        if fault is Fault.RESET:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return False
        writer.write(answer)
        await writer.drain()
        return cause != "connection" and fault is not Fault.STATUS_500

    async def _answer(self, fault, request):
        """Bytes for the client, and the cause that it will report; None if all is well."""
        if fault in _ANSWERS:
            status, kind, body, cause = _ANSWERS[fault]
            head = f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}"
            return head.encode() + b"\r\n\r\n" + body, cause
        if fault in (Fault.DROP, Fault.RESET, Fault.STALL):
            return b"", "connection"
        if fault is Fault.DELAY:
            await asyncio.sleep(self._late.uniform(0.01, 0.05))
        answer = await self._forward(request)
        if fault is Fault.DUPLICATE:
            answer = await self._forward(request)
        if fault is Fault.LATE:
            self._in_background(self._forward_later(request))
        if answer is None or fault is Fault.LOSE:
            return b"", "connection"
        if fault is Fault.TRUNCATE:
            head, _, body = answer.partition(b"\r\n\r\n")
            return head + b"\r\n\r\n" + body[: len(body) // 2], "connection"
        return answer, _cause(answer)

    async def _forward(self, request):
        """The server's answer; None if there is no server."""
        try:
            reader, writer = await asyncio.open_connection(*self._target)
        except OSError:
            return None
        try:
            writer.write(request)
            return await _message(reader)
        except OSError:
            return None
        finally:
            writer.close()

    async def _forward_later(self, request):
        await asyncio.sleep(self._late.uniform(0.0, 0.1))
        await self._forward(request)

    def _in_background(self, coroutine):
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _message(reader):
    """One request or answer, whole; None at the end of the stream."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return head + await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        return None


async def _until_gone(reader):
    """Returns when the client has given up."""
    async with asyncio.timeout(STALL_S):
        while not reader.at_eof():
            await asyncio.sleep(0.02)


def _cause(answer):
    """What a client makes of the server's own answer."""
    status = int(answer.split(b" ", 2)[1])
    if status != 200:
        return _CAUSE_OF_STATUS[status] if status in _CAUSE_OF_STATUS else "http_status"
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    return "error_body" if isinstance(body, dict) and "error" in body else None
