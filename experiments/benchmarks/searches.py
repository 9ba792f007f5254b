r"""Measures the searches per second of the deep search server, from many concurrent episodes, over
HTTP.

  python experiments/benchmarks/searches.py --episodes=64 --workers=2 --seconds=20

Starts a server of `searchqa` with the corpus of facts, which is built if it does not exist (or with
`--option=corpus=..` `--option=questions=..`). A client in one process runs `--episodes` concurrent
episodes, each over a separate connection. An episode resets to a question, searches `--searches`
times, answers, and continues with the next question. The queries are whole questions and halves of
questions. With `--group=8`, eight episodes ask the same question (an engine may cache queries).
With `--group=1`, no query occurs twice in one pass over the questions.

`searches_per_s` counts answered searches. Resets and final answers run at the same time and are not
counted. CPU is measured for the server's process tree and for the client, which shares the
machine's cores. `pss_mib` is memory; shared pages are divided among the processes that share them.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import statistics
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator

import psutil

from agentgym_jax.client.embedded import EmbeddedServers

START_S = 900.0  # the first start builds the corpus


@dataclasses.dataclass
class Count:
    """Counters that all episodes update."""

    searches: int = 0
    episodes: int = 0
    waits_s: list[float] = dataclasses.field(default_factory=list)


class Connection:
    """One persistent connection that sends JSON and reads JSON."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader = reader
        self._writer = writer

    async def post(self, path: str, body: object) -> object:
        """Returns the body of the answer; raises an error if the status is not 200."""
        data = json.dumps(body).encode()
        self._writer.write(
            b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (path.encode(), len(data), data)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer = await self._reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{path}: {head[:40]!r} {answer[:200]!r}")
        return json.loads(answer)


def queries_of(question: str) -> list[str]:
    """Returns the question and its halves, which are similar to an agent's queries."""
    words = question.rstrip("?").split()
    return [question, " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]


async def play(
    url: str, tasks: Iterator[int], searches: int, count: Count, stop: asyncio.Event
) -> None:
    """Runs one episode after another until it is stopped."""
    parts = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    connection = Connection(reader, writer)
    session = await connection.post("/create", {"id": 0})
    while not stop.is_set():
        first = await connection.post("/reset", {"env_idx": session, "id": next(tasks)})
        assert isinstance(first, str)
        queries = queries_of(first.removeprefix("Question: "))
        for number in range(searches):
            query = queries[number % len(queries)]
            began = time.monotonic()
            body = {"env_idx": session, "action": f"<search> {query} </search>"}
            answer = await connection.post("/step", body)
            assert isinstance(answer, dict) and "<information>" in answer["observation"]
            count.waits_s.append(time.monotonic() - began)
            count.searches += 1
            if stop.is_set():
                break
        body = {"env_idx": session, "action": "<answer> nobody knows </answer>"}
        await connection.post("/step", body)
        count.episodes += 1
    await connection.post("/close", {"env_idx": session})
    writer.close()


def task_numbers(total: int, group: int) -> Iterator[int]:
    """Yields all questions in a scattered order, each `group` times in a row, without end."""
    stride = 7919  # a prime number
    number = 0
    while True:
        for _ in range(group):
            yield number % total
        number += stride


def cpu_s(processes: list[psutil.Process]) -> float:
    """Returns the total CPU seconds of some processes."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


async def measure(url: str, total: int, args: argparse.Namespace, pid: int) -> dict[str, object]:
    """Measures one run, after a warm-up that lasts a tenth of the measured time."""
    server = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    client = [psutil.Process()]
    tasks = task_numbers(total, args.group)
    stop, count = asyncio.Event(), Count()
    agents = [
        asyncio.create_task(play(url, tasks, args.searches, count, stop))
        for _ in range(args.episodes)
    ]
    await asyncio.sleep(args.seconds / 10)
    count.searches = count.episodes = 0
    count.waits_s.clear()
    before = cpu_s(server), cpu_s(client), time.monotonic()
    await asyncio.sleep(args.seconds)
    after = cpu_s(server), cpu_s(client), time.monotonic()
    searches, episodes, waits = count.searches, count.episodes, sorted(count.waits_s)
    memory = sum(process.memory_full_info().pss for process in server) / 2**20
    stop.set()
    await asyncio.gather(*agents)
    seconds = after[2] - before[2]
    return {
        "searches_per_s": round(searches / seconds, 1),
        "episodes_per_s": round(episodes / seconds, 1),
        "wait_ms_median": round(1000 * statistics.median(waits), 2),
        "wait_ms_p99": round(1000 * waits[int(0.99 * len(waits))], 2),
        "server_cpu_ms_per_search": round(1000 * (after[0] - before[0]) / searches, 3),
        "client_cpu_ms_per_search": round(1000 * (after[1] - before[1]) / searches, 3),
        "server_pss_mib": round(memory),
    }


def main() -> int:
    """Starts a server, measures it and writes one JSON line."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--episodes", type=int, default=64, help="concurrent episodes")
    add("--searches", type=int, default=3, help="searches per episode")
    add("--group", type=int, default=1, help="episodes that have the same question")
    add("--workers", type=int, default=2, help="worker processes of the server")
    add("--seconds", type=float, default=20.0, help="duration of a run")
    add("--repeat", type=int, default=3, help="number of runs; the median is shown")
    add("--option", action="append", default=[], help="option NAME=VALUE of searchqa; repeatable")
    args = parser.parse_args()
    arguments = [f"--workers={args.workers}", *(f"--option={option}" for option in args.option)]
    with EmbeddedServers(["searchqa"], arguments=arguments, start_timeout_s=START_S) as servers:
        url = servers.urls["searchqa"]
        with urllib.request.urlopen(f"{url}/spec", timeout=60) as answer:
            spec = json.load(answer)
        runs = []
        for _ in range(args.repeat):
            load = os.getloadavg()[0]
            pid = servers.pids["searchqa"]
            run = asyncio.run(measure(url, spec["num_tasks"], args, pid))
            runs.append(run | {"load_before": round(load, 2)})
            sys.stderr.write(f"{json.dumps(runs[-1])}\n")
    runs.sort(key=lambda run: run["searches_per_s"])
    settings = vars(args) | {"version": spec["version"], "cores": os.cpu_count()}
    sys.stdout.write(json.dumps({"settings": settings, "median": runs[len(runs) // 2]}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
