r"""Measures the time until a browser can use the episode list of a large run.

  python experiments/benchmarks/viewer.py --run=runs/quickstart --out=runs/large
  python -m agentgym_jax.view runs/large
  python experiments/benchmarks/viewer.py --measure=runs/large/report.html

The first command generates a run of 200 steps and 20,000 episodes from the episodes of a real run,
each with a different task number, sample and step. The last command needs `pip install playwright`
and the browser at --chromium.
"""

import itertools
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Iterator

from absl import app, flags

STEPS = flags.DEFINE_integer("steps", 200, "Steps of the generated run.")
EPISODES = flags.DEFINE_integer("episodes", 20_000, "Episodes of the generated run.")
RUN = flags.DEFINE_string("run", None, "Run folder whose episodes are used.")
OUT = flags.DEFINE_string("out", None, "Folder for the generated run.")
MEASURE = flags.DEFINE_string("measure", None, "Path of the page to measure.")
REPEATS = flags.DEFINE_integer("repeats", 5, "Number of repetitions.")
CHROMIUM = flags.DEFINE_string("chromium", "/usr/bin/chromium", "Path of the browser.")


def records(folder: pathlib.Path) -> Iterator[dict]:
    """Yields the training episodes of a run repeatedly, without end."""
    paths = sorted((folder / "trajectories").glob("step_*.jsonl"))
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return (json.loads(line) for line in itertools.cycle(lines))


def make(run: pathlib.Path, out: pathlib.Path, steps: int, episodes: int) -> None:
    """Writes the large run. Its metrics repeat the metrics of the real run."""
    (out / "trajectories").mkdir(parents=True, exist_ok=True)
    source = records(run)
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    metrics = [line for line in metrics if line["step"] > 0]
    with open(out / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            line = metrics[(step - 1) % len(metrics)] | {"step": step}
            file.write(json.dumps(line) + "\n")
    for step in range(1, steps + 1):
        path = out / "trajectories" / f"step_{step:06d}.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for record in itertools.islice(source, episodes // steps):
                file.write(json.dumps(record | {"step": step - 1}, ensure_ascii=False) + "\n")
    for name in ("config.json", "provenance.json"):
        (out / name).write_text((run / name).read_text())
    tokenizer = out / "tokenizer"
    tokenizer.mkdir(exist_ok=True)
    for path in (run / "tokenizer").iterdir():
        (tokenizer / path.name).write_bytes(path.read_bytes())


def measure(page: pathlib.Path, repeats: int) -> None:
    """Prints the seconds from opening the address to a usable list, and the seconds of typical
    actions in the list.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("this needs playwright: pip install playwright")
    seconds: dict[str, list[float]] = {}

    def timed(name: str, action) -> None:
        started = time.perf_counter()
        action()
        seconds.setdefault(name, []).append(time.perf_counter() - started)

    with sync_playwright() as playwright:
        for _ in range(repeats):
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM.value, args=["--no-sandbox"]
            )
            tab = browser.new_page()

            def open_page(tab=tab) -> None:
                tab.goto(f"file://{page.resolve()}#episodes", wait_until="commit")
                tab.wait_for_selector("#episode-list .line")

            def filter_list(tab=tab) -> None:
                tab.select_option("[name=outcome]", "success")
                tab.wait_for_function(
                    "!document.querySelector('.count').textContent.startsWith('20,000')"
                )

            def next_episode(tab=tab) -> None:
                before = tab.inner_text(".episode-head")
                tab.keyboard.press("Escape")
                tab.keyboard.press("j")
                tab.wait_for_function(
                    "b => document.querySelector('.episode-head').innerText !== b", arg=before
                )

            timed("open until the list is there", open_page)
            tab.wait_for_selector(".turn")
            timed("filter", filter_list)
            timed("next episode", next_episode)
            browser.close()
    for name, values in seconds.items():
        print(f"{name}: median {statistics.median(values):.2f} s, largest {max(values):.2f} s")


def main(argv: list[str]) -> None:
    """Generates a large run or measures a page, depending on the arguments."""
    del argv
    if MEASURE.value:
        measure(pathlib.Path(MEASURE.value), REPEATS.value)
    elif RUN.value and OUT.value:
        make(pathlib.Path(RUN.value), pathlib.Path(OUT.value), STEPS.value, EPISODES.value)
    else:
        raise app.UsageError("give --run and --out, or --measure")


if __name__ == "__main__":
    app.run(main)
