"""Supervised data of a run: conversations from files or recorded demonstrations."""

import functools
from collections.abc import Callable

from absl import logging

from agentgym_jax.config.sections import ConfigError, call, config_errors
from agentgym_jax.config.settings import RecordedDataSettings
from agentgym_jax.data import tasks as selection
from agentgym_jax.data.conversations import Conversation, read_conversations
from agentgym_jax.data.demonstrations import record_sets
from agentgym_jax.jobs.environments import Environments
from agentgym_jax.runs.run_folder import RunFolder


def load_conversations(
    settings: RecordedDataSettings,
    folder: RunFolder,
    environments: Environments | None,
    show: Callable[[str, int, int], None] = lambda phase, done, total: None,
) -> list[Conversation]:
    """Returns the conversations of the files, then those of the demonstrations.

    Demonstrations are recorded once and kept in the run folder. Without a `module` or `options` of
    their own they have those of the run's environment of that name. Conversations of episodes whose
    environment failed are skipped. Sets that select tasks by split need `environments`. `show` is
    called with the progress of the recording.
    """
    read: list[Conversation] = []
    for path in settings.files:
        with config_errors(f"config.{settings.section}.files: ", OSError):
            read += read_conversations(path, bad=settings.bad)
    valid = [conversation for conversation in read if conversation.is_valid]
    if len(valid) < len(read):
        skipped = len(read) - len(valid)
        logging.warning(
            "%d of %d conversations left out: their environment failed", skipped, len(read)
        )
    clients = {} if environments is None else environments.clients
    started = {} if environments is None else environments.started
    sets = {}
    for name, entry in settings.demonstrations.items():
        options = dict(entry)
        environment, tasks = options.pop("environment"), options.pop("tasks")
        for key, value in (started[environment] if environment in started else {}).items():
            if key not in options or options[key] in ("", None):
                options[key] = value
        path = f"{settings.section}.demonstrations.{name}.tasks"
        needs_server = tasks["kind"] == "split"
        if needs_server and environment not in clients:
            raise ConfigError(
                f"config.{path}: kind 'split' needs the server of {environment}, which this job "
                "does not start; use 'residues' or 'file'"
            )
        manifest = clients[environment].tasks() if needs_server else ()
        chosen = call(selection.select, path, tasks, environment=environment, manifest=manifest)
        sets[name] = (chosen, options)
    return valid + record_sets(sets, folder, functools.partial(show, "recording demonstrations"))
