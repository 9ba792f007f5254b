"""A proxy between a trainer and an environment server; it injects and counts faults.

The proxy parses only the routes and lengths of requests. `injected` counts all faults; `delivered`
counts those that reached the client, by route and by the cause that the client must report.
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

STALL_S = 30.0  # seconds, more than the timeout of any client


class Fault(enum.StrEnum):
    """Fault that the proxy applies to one request."""

    DELAY = "delay"  # the request is forwarded a little later
    STALL = "stall"  # no answer until the client times out
    DROP = "drop"  # the connection is closed and the server never gets the request
    RESET = "reset"  # the same as DROP, but with a TCP reset
    LOSE = "lose"  # the server executes the request, but the answer is lost
    TRUNCATE = "truncate"  # half of the answer is sent, then the connection is closed
    DUPLICATE = "duplicate"  # the server gets the request twice; the client gets the second answer
    LATE = "late"  # the server gets the request again after the client has got its answer
    STATUS_500 = "status 500"  # an error page as uvicorn sends it
    # the answer `{"error": ..}` with status 200, as AgentGym's servers send it
    ERROR_200 = "error with 200"
    NO_JSON = "no JSON"


_ANSWERS = {
    Fault.STATUS_500: (500, "text/plain", b"Internal Server Error", "http_status"),
    Fault.ERROR_200: (200, "application/json", b'{"error": "injected"}', "error_body"),
    Fault.NO_JSON: (200, "text/html", b"<html>502 Bad Gateway</html>", "bad_body"),
}
_CAUSE_OF_STATUS = {404: "session_lost", 503: "capacity", 504: "timeout"}


class Schedule:
    """Assigns faults to the requests of each route from shuffled decks, with equal frequencies.

    Args:
      seed: Random seed of the shuffles.
      faults: Faults, each of which is in the deck once.
      calm: Number of requests per deck that are forwarded without a fault.
      routes: Routes with faults; requests on other routes are always forwarded.
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
    """A proxy that listens during a `with` block.

    Attributes:
      schedule: Function from a route to a Fault or None; may be replaced at any time.
      injected: Number of injected faults, by fault.
      delivered: Number of requests that the client sees fail, by (route, cause).
      requests: Number of received requests by route, with and without faults.
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
        """Answers one request; returns False if the connection must be closed."""
        route = request.split(b" ", 2)[1].partition(b"?")[0].decode()
        self.requests[route] += 1
        fault = self.schedule(route)
        if fault is not None:
            self.injected[fault] += 1
        answer, cause = await self._answer(fault, request)
        if fault is Fault.STALL:
            await _until_gone(reader)
        if reader.at_eof():  # the client no longer waits for an answer
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
        """Returns the bytes to send to the client, and the cause that the client will report.

        The cause is None if the client gets a valid answer.
        """
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
        """Forwards a request; returns the server's answer, or None if the server does not answer."""
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
    """Reads one complete request or answer; returns None at the end of the connection."""
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
    """Waits until the client has closed the connection."""
    async with asyncio.timeout(STALL_S):
        while not reader.at_eof():
            await asyncio.sleep(0.02)


def _cause(answer):
    """Returns the cause that the client reports for a server's answer, or None without an error."""
    status = int(answer.split(b" ", 2)[1])
    if status != 200:
        return _CAUSE_OF_STATUS[status] if status in _CAUSE_OF_STATUS else "http_status"
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    return "error_body" if isinstance(body, dict) and "error" in body else None
