r"""Measures the time of one whole RL step by phase, and the share of it in which the device waits
for the host.

  PYTHONPATH=. python experiments/benchmarks/iteration.py
  PYTHONPATH=. python experiments/benchmarks/iteration.py --model=/path/of/qwen --steps=2 --skipped=1

Without --model the run uses configs/quickstart.py with its first turn limit, after a short warm
start, so that episodes are about as long as in the quickstart. With --model the run trains the
model in a Hugging Face directory with configs/paper/babyai.py, 8 episodes of 2 turns. Both runs use
HTTP and start their servers.

Phases in seconds, from metrics.jsonl; medians over the steps after the skipped ones:

  step        from one line of metrics.jsonl to the next, so with logging and checkpoint
  decode, prefill        time/decode_s, time/prefill_s: the sampler's calls until their results are there
  score, update         time/score_s, time/update_s: with packing and transfers
  environments          time/env_wait_s: no row could decode
  rollout, rest         time/rollout_s less decode, prefill and environments: text, tokens, queues
  between               time/iteration_s less rollout, score and update: advantages, episodes to disk
  checkpoint            time/checkpoint_s: until the copy is off the device; mean over the steps
  around                the rest of the step: weights to the sampler, the line of metrics.jsonl

  host share = 1 - (decode + prefill + score + update) / step

`host_share` is the median over the steps, so rare checkpoints do not affect it. `host_share_of_all`
is computed from the sums of all steps, checkpoints included. The four phases do some host work too.
JAX's profiler therefore records one more step at the end:

  device idle = 1 - (time in which at least one operation ran) / step

of the traced step. On an accelerator, operations are read from the events of the accelerator's
planes; on a CPU, from the events of XLA's own threads. Work of XLA in the caller's thread counts as
idle. The profiler itself takes time, so this number is an upper bound. Target: under 5 % on the
quickstart. --profile adds a step under cProfile and lists the functions of the main thread. The
listed seconds include the cost of cProfile; only their order is meaningful.
"""

import contextlib
import cProfile
import io
import json
import pathlib
import pstats
import statistics
import sys
import tempfile
from collections.abc import Iterator

import jax
import side_by_side
from absl import app, flags

from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.config.sections import plain
from agentgym_jax.jobs.run import Run, StopFlag, StopRequested
from agentgym_jax.rl import loop as rl
from agentgym_jax.rl.build import open_rl
from configs import quickstart
from configs.paper import babyai

_MODEL = flags.DEFINE_string("model", "", "Hugging Face directory; empty: the quickstart's policy.")
_DTYPE = flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Data type of --model.")
_STEPS = flags.DEFINE_integer("steps", 8, "Number of counted steps.")
_SKIPPED = flags.DEFINE_integer("skipped", 3, "First steps, which compile and are not counted.")
_WARM_START = flags.DEFINE_integer(
    "warm_start", 150, "Supervised steps of the quickstart's warm start."
)
_PROFILE = flags.DEFINE_bool("profile", False, "Whether to run one more step under cProfile.")
_OUT = flags.DEFINE_string("out", "", "File that the JSON line is appended to.")

_DEVICE = {
    "decode": "time/decode_s",
    "prefill": "time/prefill_s",
    "score": "time/score_s",
    "update": "time/update_s",
}


def make_quickstart_config():
    """Returns the quickstart's config with a shorter warm start and a fixed horizon of 6 turns."""
    c = quickstart.get_config()
    c.horizon = dict(kind="fixed", turns=6)
    c.sft.steps = _WARM_START.value
    c.sft.demonstrations.play.tasks.stop = c.sft.demonstrations.play.tasks.start + 40 * 40
    c.sft.demonstrations.expert.tasks.stop = c.sft.demonstrations.expert.tasks.start + 40 * 40
    return c


def make_model_config(path: str):
    """Returns a config with few and short episodes of a real network."""
    c = babyai.get_config("size=0p5b")
    c.model.update(source=path, dtype=_DTYPE.value, decode_dtype=_DTYPE.value)
    c.mesh = dict(data=1, fsdp=1, tensor=1, decode_tensor=0)
    c.rollout.tasks_per_step, c.rollout.group_size, c.learner.mini_batches = 2, 4, 1
    c.sampler.update(rows=8, buckets=((64, 8),), decode_steps=16, return_after_finished=2)
    c.sampling.update(max_turn_tokens=32, max_tokens=1024)
    c.sampler.cache_length = c.learner.row_length = 1024
    c.horizon = dict(kind="fixed", turns=2)
    c.algorithm.kl_coef = 0.0
    c.algorithm.entropy_coef = 1e-3  # gives a learning signal even if all episodes fail
    c.checkpoint.every = 10**6
    return c


def config() -> dict:
    """Returns the config of the run, without evaluations."""
    c = make_model_config(_MODEL.value) if _MODEL.value else make_quickstart_config()
    # After the counted steps one step is traced. Another one follows, because a run evaluates its
    # last step.
    c.total_steps = _SKIPPED.value + _STEPS.value + 1 + _PROFILE.value + 1
    c.learner.min_informative_groups = 0
    c.evaluation.update(every=0, at_start=False)
    return plain(c)


@contextlib.contextmanager
def observed(run: Run, folder: str, profile: cProfile.Profile) -> Iterator[None]:
    """Traces the first step after the counted steps and, with --profile, profiles the next step;
    then stops the run.
    """
    traced = _SKIPPED.value + _STEPS.value + 1
    log_step = run.log_step

    def logged(step: int, metrics) -> None:
        log_step(step, metrics)
        if step == traced - 1:
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0
            jax.profiler.start_trace(folder, profiler_options=options)
        elif step == traced:
            jax.profiler.stop_trace()
            if _PROFILE.value:
                profile.enable()
        elif step == traced + 1:
            profile.disable()
        if step == traced + _PROFILE.value:
            raise StopRequested("all steps are measured")

    run.log_step = logged
    yield


def busy_s(folder: str) -> float:
    """Returns the seconds of a trace in which at least one operation ran on a device."""
    path = next(pathlib.Path(folder).rglob("*.xplane.pb"))
    planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    lines = [line for plane in devices or planes for line in plane.lines]
    if not devices:
        lines = [line for line in lines if line.name.startswith("tf_XLA")]
    spans = sorted((e.start_ns, e.start_ns + e.duration_ns) for line in lines for e in line.events)
    total, last = 0.0, 0.0
    for start, end in spans:
        total += max(0.0, end - max(start, last))
        last = max(last, end)
    return total / 1e9


def phases(line: dict, before: dict) -> dict[str, float]:
    """Returns the seconds of each phase of one step, as defined in the docstring of this file."""
    found = {"step": line["time"] - before["time"]}
    found |= {name: line.get(metric, 0.0) for name, metric in _DEVICE.items()}
    found["environments"] = line["time/env_wait_s"]
    of_rollout = found["decode"] + found["prefill"] + found["environments"]
    found["rollout, rest"] = line["time/rollout_s"] - of_rollout
    of_iteration = line["time/rollout_s"] + found["score"] + found["update"]
    found["between"] = line["time/iteration_s"] - of_iteration
    found["checkpoint"] = line["time/checkpoint_s"]
    found["around"] = found["step"] - line["time/iteration_s"] - found["checkpoint"]
    return found


def host_share(found: dict[str, float]) -> float:
    """Returns the host share of one step, or of several steps if `found` has their sums."""
    return 1 - sum(found[name] for name in _DEVICE) / found["step"]


def table_of(lines: list[dict], trace: str) -> dict:
    """Returns the record of a run. `lines` are the lines of metrics.jsonl from step 1 on."""
    counted = range(_SKIPPED.value, _SKIPPED.value + _STEPS.value)
    steps = [phases(lines[i], lines[i - 1]) for i in counted]
    table = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    sums = {name: sum(step[name] for step in steps) for name in steps[0]}
    table["checkpoint"] = sums["checkpoint"] / len(steps)
    traced = phases(lines[counted.stop], lines[counted.stop - 1])
    names = ("rollout/episodes", "rollout/turns_mean", "rollout/success", "rollout/sampled_tokens")
    names += ("rollout/occupancy", "batch/tokens", "policy/updates")
    return dict(
        phases=table,
        host_share=statistics.median(map(host_share, steps)),
        host_share_of_all=host_share(sums),
        traced_step_s=traced["step"],
        traced_host_share=host_share(traced),
        device_idle=1 - busy_s(trace) / traced["step"],
        work={name: statistics.median(lines[i].get(name, 0.0) for i in counted) for name in names},
        env_errors=sum(lines[i]["rollout/env_errors"] for i in counted),
        compilations=[line["jax/compilations"] for line in lines],
        steps=steps,
    )


def show(record: dict) -> None:
    """Prints a line per phase, with its share of the step."""
    for name, seconds in record["phases"].items():
        share = seconds / record["phases"]["step"]
        sys.stderr.write(f"{name:14} {seconds:9.3f} s  {100 * share:5.1f} %\n")
    sys.stderr.write(
        f"host share {100 * record['host_share']:.1f} %, with checkpoints "
        f"{100 * record['host_share_of_all']:.1f} %; traced step {record['traced_step_s']:.2f} s: "
        f"host share {100 * record['traced_host_share']:.1f} %, device idle "
        f"{100 * record['device_idle']:.1f} %\n{record['work']}\n"
    )


def main(_: list[str]) -> None:
    """Prints one JSON line and a table."""
    prepare()
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as workdir, tempfile.TemporaryDirectory() as trace:
        with (
            contextlib.redirect_stdout(sys.stderr),  # console output goes to standard error
            open_rl(config(), workdir, StopFlag()) as (run, parts),
            observed(run, trace, profile),
        ):
            with contextlib.suppress(StopRequested):
                rl.train(run, parts)
        lines = (pathlib.Path(workdir) / "metrics.jsonl").read_text().splitlines()
        # A run with a warm start has a line before step 1.
        logged = [line for line in map(json.loads, lines) if line["step"]]
        record = table_of(logged, trace)
    side_by_side.write(
        dict(benchmark="iteration", model=_MODEL.value or "quickstart", **record), _OUT.value
    )
    show(record)
    if _PROFILE.value:
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(45)
        sys.stderr.write(text.getvalue())


if __name__ == "__main__":
    app.run(main)
