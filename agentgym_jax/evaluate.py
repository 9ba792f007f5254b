"""Scores a model: python -m agentgym_jax.evaluate --config=configs/eval/babyai.py --workdir=DIR --model=M

M is a Hugging Face directory or hub id, a .gguf file, a run folder (its latest checkpoint) or a
preset. Writes scores.json and trajectories/ to the workdir.
"""

import contextlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags
from rich.console import Console
from rich.table import Table

from agentgym_jax.evaluation import scores
from agentgym_jax.evaluation.evaluate import Evaluation, evaluate
from agentgym_jax.run.evaluation import EvaluationParts, open_evaluation
from agentgym_jax.run.run import StopFlag
from agentgym_jax.run.sections import plain
from agentgym_jax.sharding import reshard
from agentgym_jax.startup import USER_ERRORS, launch, prepare
from agentgym_jax.trajectory import to_record

_CONFIG = config_flags.DEFINE_config_file("config", None, "Config file.", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for scores.json and trajectories/.")
_MODEL = flags.DEFINE_string("model", None, "What is scored; see above.")


def main(argv: list[str]) -> int:
    """Plays the config's tasks with the model; returns the exit status."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}; flags start with --")
    prepare()
    config = plain(_CONFIG.value)
    config["model"] |= {"source": _MODEL.value, "architecture": {}}
    try:
        with StopFlag().installed() as stop, contextlib.ExitStack() as stack:
            parts = stack.enter_context(open_evaluation(config, _WORKDIR.value, stop))
            return run(parts, stop)
    except USER_ERRORS as error:
        sys.stderr.write(f"\nagentgym_jax.evaluate: {error}\n")
        return 1


def run(parts: EvaluationParts, stop: StopFlag) -> int:
    """Gives the sampler its weights, plays, writes and shows the scores."""
    policy = parts.model.decode_policy
    params = parts.model.initial_params(parts.seed)
    parts.sampler.set_params(reshard(params, parts.decode_shardings, policy.dtype), version=0)
    del params
    result = evaluate(
        parts.collector,
        parts.environments.eval_tasks,
        parts.evaluation,
        seed=parts.seed,
        step=0,
        max_turns=parts.max_turns,
        sampling=parts.sampling,
        max_invalid_actions=parts.max_invalid_actions,
        on_progress=lambda done, total, tokens: parts.console.phase(
            "evaluation", done, total, f"{tokens:,} tokens"
        ),
        should_stop=stop,
    )
    if stop():
        logging.warning("stopped; nothing was written")
        return 1
    write(parts, result)
    return 0


def write(parts: EvaluationParts, result: Evaluation) -> None:
    """scores.json, trajectories/ and a table; sampled and greedy episodes apart."""
    parts.folder.write_trajectories(0, [to_record(t) for t in result.trajectories], kind="eval")
    for mode, episodes in (("sampled", result.sampled), ("greedy", result.greedy)):
        if not episodes:
            continue
        name = "scores.json" if mode == "sampled" or not result.sampled else f"scores_{mode}.json"
        document = scores.write_scores(
            parts.folder.path / name,
            episodes,
            model=parts.name,
            decoding={
                "mode": mode,
                "temperature": parts.sampling.temperature if mode == "sampled" else 0.0,
                "max_turns": parts.max_turns,
                "tell_budget": parts.collector.tell_budget,
                "max_tokens": parts.sampling.max_tokens,
                "seed": parts.seed,
            },
            manifests=parts.environments.manifests,
        )
        Console().print(table(mode, document))


def table(mode: str, document: dict) -> Table:
    """Scores by group, and by environment if there are several, as a person reads them."""
    result = Table(title=f"{document['model']}, {mode}")
    for heading in ("group", "tasks", "success %", "95% interval", "score", "turns", "invalid"):
        result.add_column(heading, justify="left" if heading == "group" else "right")
    rows = [*document["groups"].items()]
    if len(document["environments"]) > 1:
        rows += document["environments"].items()
    for group, numbers in (*rows, ("all", document["overall"])):
        if numbers["success"] is None:
            result.add_row(group, "0", "-", "-", "-", "-", str(numbers["invalid"]))
            continue
        low, high = numbers["success_interval"]
        result.add_row(
            group,
            str(numbers["tasks"]),
            f"{100 * numbers['success']:.1f}",
            f"{100 * low:.1f} - {100 * high:.1f}",
            f"{numbers['score_mean']:.3f}",
            f"{numbers['turns_mean']:.1f}",
            str(numbers["invalid"]),
        )
    return result


if __name__ == "__main__":
    launch(main, "config", "workdir", "model")
