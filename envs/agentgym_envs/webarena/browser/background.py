"""Event loop in a separate thread, for callers that are not asynchronous."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Background:
    """Event loop in a daemon thread; any other thread can run coroutines in it."""

    def __init__(self, name: str):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Result], seconds: float) -> _Result:
        """Returns the result of a coroutine, which is cancelled after `seconds`.

        Raises:
          TimeoutError: The coroutine took longer.
        """
        future = asyncio.run_coroutine_threadsafe(_limited(work, seconds), self._loop)
        try:
            # Even a coroutine that ignores its cancellation must not block the caller.
            return future.result(seconds + 2.0)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError(f"no answer within {seconds:g} s") from None

    def stop(self) -> None:
        """Ends the thread and drops unfinished coroutines."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)


async def _limited(work: Coroutine[Any, Any, _Result], seconds: float) -> _Result:
    async with asyncio.timeout(seconds):
        return await work
