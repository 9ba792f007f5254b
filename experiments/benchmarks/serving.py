"""Throughput of `agentgym_jax.serve` with many clients, next to the sampler alone in the same process.

python experiments/benchmarks/serving.py --model=/path/of/qwen --clients=64 --rows=16 --tokens=48

Every client sends one chat request and gets exactly `tokens` tokens. The sampler alone gets the same
prompts without HTTP. Both are measured in turn, `rounds` times; the ratio is that of the medians.
The clients run in another process on the same machine.
"""

import json
import statistics
import subprocess
import sys
import time

from absl import app, flags

from agentgym_jax.jobs.serving import load_model, make_backend, make_sampler
from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.serving.app import make_app
from agentgym_jax.serving.http_server import HttpServer

MODEL = flags.DEFINE_string("model", None, "Model as of agentgym_jax.serve.", required=True)
CLIENTS = flags.DEFINE_integer("clients", 64, "Concurrent clients.")
ROWS = flags.DEFINE_integer("rows", 16, "Rows of the sampler.")
TOKENS = flags.DEFINE_integer("tokens", 48, "Tokens of each answer.")
ROUNDS = flags.DEFINE_integer("rounds", 3, "Rounds of both measurements.")

_CLIENT = """
import concurrent.futures, json, sys, time, urllib.request
url, clients, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def ask(number):
    body = {"messages": [{"role": "user", "content": f"Tell story number {number}."}]}
    body |= {"max_tokens": tokens, "seed": number}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["usage"]["completion_tokens"]
with concurrent.futures.ThreadPoolExecutor(clients) as threads:
    started = time.perf_counter()
    sampled = sum(threads.map(ask, range(clients)))
    print(json.dumps([sampled, time.perf_counter() - started]))
"""


def measure_sampler(sampler, model):
    """Returns sampled tokens per second of the sampler, whose rows are refilled at once."""
    options = SamplingOptions(
        temperature=1.0, max_turn_tokens=TOKENS.value, max_tokens=sampler.cache_length
    )
    waiting = [
        model.renderer.opening([{"role": "user", "content": f"Tell story number {i}."}])
        for i in range(CLIENTS.value)
    ]
    started, sampled = time.perf_counter(), 0
    while waiting or not sampler.is_idle:
        while waiting and sampler.free_rows:
            key = episode_key(0, 0, "benchmark", len(waiting))
            sampler.prefill(sampler.open(key, options), waiting.pop())
        for turn in sampler.step():
            sampled += len(turn.tokens)
            sampler.close(turn.row)
    return sampled / (time.perf_counter() - started)


def measure_server(url):
    """Returns sampled tokens per second of the server."""
    arguments = [f"{url}/v1/chat/completions", str(CLIENTS.value), str(TOKENS.value)]
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, *arguments], capture_output=True, text=True, check=True
    )
    sampled, seconds = json.loads(done.stdout)
    return sampled / seconds


def main(argv):
    """Prints one JSON line."""
    del argv
    model = load_model(MODEL.value)
    sampler = make_sampler(model, rows=ROWS.value, context=512)
    measure_sampler(sampler, model)  # compiles the programs
    backend = make_backend(model, sampler, "model", max_waiting=2 * CLIENTS.value)
    alone, served = [], []
    for _ in range(ROUNDS.value):
        alone.append(measure_sampler(sampler, model))
        with backend.engine.running(), HttpServer(make_app(backend)) as server:
            served.append(measure_server(server.url))
    ratio = statistics.median(served) / statistics.median(alone)
    line = {"sampler": alone, "server": served, "unit": "tokens/s", "ratio": round(ratio, 3)}
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    app.run(main)
