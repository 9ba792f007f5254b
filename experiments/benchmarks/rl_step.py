r"""Measures an RL step in three environments: times, tokens per second, MFU and log-probability gap.

  PYTHONPATH=.:envs python experiments/benchmarks/rl_step.py --variant=new --out=FILE
  PYTHONPATH=.:envs python experiments/benchmarks/rl_step.py --variant=old --model=/path/of/qwen

The step is that of experiments/2026-11-26_qwen_three_environments: TextCraft, BabyAI and SciWorld
(left out without Java), 192 episodes, 128 rows, LoRA of rank 16. A preset has random weights and a
byte tokenizer, so its turns are as long as allowed, none is valid, and a bonus for entropy gives the
update something to do. Each call measures one variant, and writes a result after every counted step:

  old         shapes of prefill and length of decode calls as in that experiment
  new         today's defaults
  drafts      new with drafts of four tokens
  int8        new with int8 decode weights
  int8_cache  new with int8 decode weights and an int8 cache
  both        new with drafts and int8 decode weights

Other changes since then have no key (the draw in one pass, prefixes copied without unused slots,
the state of the rows on the device), so `old` has them, too. Numbers are medians of the counted
steps; the first steps compile. MFU counts 6 FLOPs per weight and token of the update, with adapters
4, relative to the data sheet of an H100 (which is that of an H200) or, on other devices, to the
measured rate of large products. The gap is that between sampler and learner.
"""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable

import jax
import side_by_side
import worker_ours
from absl import app, flags

from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.config.sections import plain
from agentgym_jax.configs import common
from agentgym_jax.jobs.run import Run, StopFlag
from agentgym_jax.planning.topology import CHIPS
from agentgym_jax.rl import loop as rl
from agentgym_jax.rl.build import open_rl

OLD = dict(
    buckets=((32, 64), (64, 32), (256, 16), (1024, 8)), decode_steps=8, return_after_finished=8
)
# Changes of the sections `sampler` and `model`.
VARIANTS: dict[str, tuple[dict, dict]] = {
    "old": (OLD, {}),
    "new": ({}, {}),
    "drafts": (dict(draft_tokens=4), {}),
    "int8": ({}, dict(decode_dtype="int8")),
    "int8_cache": ({}, dict(decode_dtype="int8", cache_dtype="int8")),
    "both": (dict(draft_tokens=4), dict(decode_dtype="int8")),
}
GROUPS = dict(textcraft="depth", babyai="family", sciworld="task")
TURNS = dict(textcraft=10, babyai=6, sciworld=10)
METRICS = {
    "rollout_s": "time/rollout_s",
    "decode_s": "time/decode_s",
    "prefill_s": "time/prefill_s",
    "env_wait_s": "time/env_wait_s",
    "score_s": "time/score_s",
    "update_s": "time/update_s",
    "step_s": "time/iteration_s",
    "sampled_tokens": "rollout/sampled_tokens",
    "batch_tokens": "batch/tokens",
    "updates": "policy/updates",
    "tokens_per_step": "rollout/tokens_per_step",
    "occupancy": "rollout/occupancy",
    "prefill_occupancy": "rollout/prefill_occupancy",
    "gap_mean": "policy/logprob_gap_mean",
    "gap_max": "policy/logprob_gap_max",
}

_VARIANT = flags.DEFINE_enum("variant", "new", list(VARIANTS), "Settings to measure.")
_MODEL = flags.DEFINE_string("model", "qwen2.5-0.5b", "Hugging Face directory or preset.")
_ENVIRONMENTS = flags.DEFINE_list("environments", list(GROUPS), "Environments of the step.")
_STEPS = flags.DEFINE_integer("steps", 2, "Number of counted steps.", 1)
_SKIPPED = flags.DEFINE_integer("skipped", 1, "First steps, which compile and are not counted.", 1)
_TINY = flags.DEFINE_bool("tiny", False, "A tiny policy and few episodes, to try the script.")
_OUT = flags.DEFINE_string("out", "", "File that the JSON line is appended to.")


class Measured(Exception):
    """All steps are measured."""


def chosen_environments() -> list[str]:
    """Returns the environments that this machine can run."""
    has_java = shutil.which("java") is not None or "JAVA_HOME" in os.environ
    if not has_java and "sciworld" in _ENVIRONMENTS.value:
        sys.stderr.write("sciworld is left out: it needs a Java runtime, and there is none\n")
    return [name for name in _ENVIRONMENTS.value if has_java or name != "sciworld"]


def config(environments: list[str]):
    """Returns the config of the run."""
    sampler, model = VARIANTS[_VARIANT.value]
    is_random = not pathlib.Path(_MODEL.value).is_dir()
    c = common.base()
    c.model.update(source=_MODEL.value, lora=common.lora(rank=16))
    c.environments = {
        name: common.environment(
            train=dict(kind="split", split="train", group_by=GROUPS[name], where={}, limit=0),
            eval=dict(kind="suite", subtasks=(), limit=1),
            horizon=dict(kind="fixed", turns=TURNS[name]),
            eval_max_turns=1,
        )
        for name in environments
    }
    c.env_server.workers, c.pool.workers = 12, 128
    c.sampler.update(rows=128, cache_length=8192)
    c.sampling.update(max_turn_tokens=32 if is_random else 128, max_tokens=8192)
    c.rollout.update(tasks_per_step=24, group_size=8, max_parse_errors=20)
    c.algorithm.update(kl_coef=0.0, entropy_coef=1e-3, logprob_chunk=1024)
    c.optimizer.learning_rate = 2e-4
    c.learner.update(row_length=8192, micro_rows=4, min_informative_groups=0, max_logprob_gap=10.0)
    if _TINY.value:
        c.model = common.tiny_model()
        c.env_server.workers, c.pool.workers = 1, 4
        c.sampler.update(rows=4, cache_length=4096)
        c.sampling.update(max_turn_tokens=8, max_tokens=4096)
        c.rollout.update(tasks_per_step=len(environments), group_size=2)
        c.learner.update(row_length=4096, micro_rows=1, num_row_lengths=1)
        c.horizon = dict(kind="fixed", turns=2)
        for entry in c.environments.values():
            entry.horizon = {}
    if is_random:
        c.tokenizer.source = "bytes"
    with c.unlocked():
        c.sampler.update(sampler)
        c.model.update(model)
    c.total_steps = _SKIPPED.value + _STEPS.value + 1  # a run evaluates its last step
    c.evaluation.update(every=0, at_start=False)
    c.checkpoint.every = 10**6
    return c


def measure(run: Run, write: Callable[[], None]) -> None:
    """Calls `write` after every counted step, and ends the run after the last one."""
    log_step = run.log_step

    def logged(now: int, metrics) -> None:
        log_step(now, metrics)
        if now > _SKIPPED.value:
            write()
        if now == _SKIPPED.value + _STEPS.value:
            raise Measured

    run.log_step = logged


@functools.cache
def peak_flops(dtype: str) -> float:
    """Returns the peak rate of matrix products, in FLOP per second."""
    kind = jax.devices()[0].device_kind
    if "H100" in kind or "H200" in kind:
        return CHIPS["h100"].flops
    return 1e9 * worker_ours.roofline({})()["matmul_gflops"][dtype]


def record(c, parts, metrics: pathlib.Path) -> dict:
    """Returns the medians of the counted steps so far."""
    lines = map(json.loads, metrics.read_text().splitlines())
    steps = [line for line in lines if line["step"] > _SKIPPED.value]
    found = {
        name: statistics.median(line.get(metric, 0.0) for line in steps)
        for name, metric in METRICS.items()
    }
    per_weight = 4 if parts.model.adapters else 6
    flops = per_weight * parts.model.policy.num_parameters * found["batch_tokens"]
    peak = peak_flops(c.model.dtype)
    return dict(
        benchmark="rl_step",
        variant=_VARIANT.value,
        model="tiny" if _TINY.value else _MODEL.value,
        environments=list(c.environments),
        steps=len(steps),
        sampler=c.sampler.to_dict(),
        decode_dtype=c.model.decode_dtype,
        device=str(jax.devices()[0].device_kind),
        jax=jax.__version__,
        peak_flops=peak,
        tokens_per_s=found["sampled_tokens"] / found["rollout_s"],
        mfu=flops / found["update_s"] / peak if found["update_s"] else 0.0,
        env_errors=sum(line["rollout/env_errors"] for line in steps),
        **found,
    )


def main(_: list[str]) -> None:
    """Prints a JSON line after every counted step; the last one has the medians of all."""
    prepare()
    c = config(chosen_environments())
    stdout = sys.stdout
    with (
        tempfile.TemporaryDirectory() as workdir,
        contextlib.redirect_stdout(sys.stderr),  # console output goes to standard error
        contextlib.suppress(Measured),
        open_rl(plain(c), workdir, StopFlag()) as (run, parts),
    ):

        def write() -> None:
            with contextlib.redirect_stdout(stdout):
                made = record(c, parts, pathlib.Path(workdir) / "metrics.jsonl")
                side_by_side.write(made, _OUT.value)

        measure(run, write)
        rl.train(run, parts)


if __name__ == "__main__":
    app.run(main)
