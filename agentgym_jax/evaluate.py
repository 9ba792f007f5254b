r"""Evaluates an agent on held-out tasks: writes scores.json and trajectories/, prints a table.

  python -m agentgym_jax.evaluate --config=configs/eval/quickstart.py --workdir=runs/eval \
      --model=runs/quickstart
  python -m agentgym_jax.evaluate --config=configs/eval/suite.py --workdir=runs/expert \
      --model=expert --environments=textcraft,babyai

The model is a run folder (its latest checkpoint), a Hugging Face directory or hub id, a preset,
`expert` (each environment's scripted agent), `random` (selects random valid actions), or the
address of an OpenAI-compatible chat endpoint such as http://127.0.0.1:8000/v1, whose key is in an
environment variable (config.endpoint.key_variable). The same command resumes an interrupted
evaluation. `python -m agentgym_jax.results` compares results.
"""

if __name__ == "agentgym_jax.evaluate":  # the package attribute `evaluate` is the function
    raise ImportError(
        "the module agentgym_jax.evaluate is a command (python -m agentgym_jax.evaluate); to "
        "evaluate from Python, write `from agentgym_jax import evaluate` and call "
        "evaluate(config, model, workdir)"
    )

if __name__ == "__main__":  # before JAX is imported
    from agentgym_jax.runs import interrupts

    interrupts.install()

import sys

from absl import app, flags
from ml_collections import config_flags

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.api import USER_ERRORS, Result, StopRequested, evaluate
from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.cli.startup import given, launch
from agentgym_jax.evaluation import score_report
from agentgym_jax.telemetry.console import open_console

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file, with its options after a colon.", lock_config=True
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for scores.json and trajectories/.")
_MODEL = flags.DEFINE_string("model", None, "Agent to evaluate, as described above.")
_ENVIRONMENTS = flags.DEFINE_list(
    "environments", [], "Environments of the config to use, such as textcraft,babyai; default all."
)
_SAME_TASKS_AS = flags.DEFINE_string(
    "same_tasks_as",
    None,
    "A result (folder or scores.json); the evaluation is refused if its tasks are different.",
)


def main(argv: list[str]) -> int:
    """Evaluates an agent on the config's tasks; returns the exit status."""
    if not _MODEL.value:
        raise app.UsageError("--model= is empty; name a model, `expert`, `random` or an address")
    prepare()
    # These values are in the config already; their keys have precedence over a run's values.
    overrides = config_flags.get_override_values(flags.FLAGS["config"])
    try:
        result = evaluate(
            _CONFIG.value,
            _MODEL.value,
            given(_WORKDIR),
            {key: value for key, value in overrides.items() if "[" not in key},
            environments=_ENVIRONMENTS.value,
            same_tasks_as=_SAME_TASKS_AS.value,
        )
    except StopRequested as stopped:
        sys.stderr.write("\nstopped; run the same command to resume\n")
        return stopped.exit_status
    print_scores(result)
    return 0


def print_scores(result: Result) -> None:
    """Prints the tables of a result, with notes."""
    console = open_console()
    for part in (result, result.greedy):
        if part is not None:
            console.print(score_report.score_table(part.document))
            for sentence in score_report.score_notes(part.document):
                console.print(sentence, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    launch(main, "config", "workdir", "model", algorithms=ALGORITHMS, errors=USER_ERRORS)
