"""Supervised data of a run: conversations from files or recorded demonstrations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from agentgym_jax.data import tasks as selection
from agentgym_jax.data.conversations import Conversation, read_conversations
from agentgym_jax.data.demonstrations import record, record_sets
from agentgym_jax.data.rows import Bad
from agentgym_jax.jobs.config.environments import check_tasks
from agentgym_jax.jobs.config.sections import ConfigError, call, check
from agentgym_jax.jobs.config.settings import RecordedDataSettings
from agentgym_jax.run_folder import RunFolder

Manifest = Callable[[], Sequence[Mapping[str, Any]]]


def check_demonstrations(settings: RecordedDataSettings, section: str = "sft") -> None:
    """Checks the sets of demonstrations in a section before any server starts."""
    for name, options in settings.demonstrations.items():
        path = f"{section}.demonstrations.{name}"
        check(
            _check_set,
            path,
            {key: options[key] for key in ("environment", "tasks") if key in options},
        )
        check_tasks(f"{path}.tasks", options["tasks"])
        rest = {key: value for key, value in options.items() if key not in ("environment", "tasks")}
        check(record, path, rest, tasks=(), path=None)


def _check_set(environment: str, tasks: Mapping[str, Any]) -> None:
    """Declares the valid keys of a set of demonstrations that `record` does not have."""


def load_conversations(
    settings: RecordedDataSettings,
    folder: RunFolder,
    manifests: Mapping[str, Manifest],
    section: str = "sft",
) -> list[Conversation]:
    """Returns the conversations of the files, followed by those of the demonstrations.

    Demonstrations are recorded once and kept in the run folder. Episodes whose environment failed
    are skipped; run folders contain such episodes.

    Args:
      settings: Section that names the files and demonstrations.
      folder: Run folder.
      manifests: Functions that fetch the task list, by environment. A function is called only if a
        set selects its tasks by split.
      section: Name of the section, for messages.
    """
    read = [c for path in settings.files for c in _read(path, settings.bad, section)]
    conversations = [conversation for conversation in read if conversation.is_valid]
    if len(conversations) < len(read):
        logging.warning(
            "%d of %d conversations left out: their environment failed",
            len(read) - len(conversations),
            len(read),
        )
    sets = {}
    for name, entry in settings.demonstrations.items():
        options = dict(entry)
        environment, tasks = options.pop("environment"), dict(options.pop("tasks"))
        manifest: Sequence[Mapping[str, Any]] = ()
        if tasks["kind"] == "split":
            if environment not in manifests:
                raise ConfigError(
                    f"config.{section}.demonstrations.{name}.tasks: kind 'split' needs the server of "
                    f"{environment}, which this job does not start; use 'residues' or 'file'"
                )
            manifest = manifests[environment]()
        chosen = call(
            selection.select,
            f"{section}.demonstrations.{name}.tasks",
            tasks,
            environment=environment,
            manifest=manifest,
        )
        sets[name] = (chosen, options)
    return conversations + record_sets(sets, folder.path / "data")


def _read(path: str, bad: Bad, section: str) -> Sequence[Conversation]:
    try:
        return read_conversations(path, bad=bad)
    except (ValueError, OSError) as error:
        raise ConfigError(f"config.{section}.files: {error}") from error
