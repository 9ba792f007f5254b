"""The parts of an SFT job."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from agentgym_jax.data.conversations import Conversation
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run import offline
from agentgym_jax.run.conversations import Manifest
from agentgym_jax.run.offline import Loaded, OfflineParts, OfflineSettings
from agentgym_jax.run.run import Run, StopFlag
from agentgym_jax.run.settings import SftSettings

SFTParts: TypeAlias = OfflineParts[SftSettings, tuple[Conversation, ...]]


def parse(config: Mapping[str, Any]) -> OfflineSettings[SftSettings]:
    """Checks every section of a plain config."""
    return offline.parse(config, "sft", SftSettings)


@contextlib.contextmanager
def open_sft(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[tuple[Run, SFTParts]]:
    """Builds the job from a plain config; closes servers, threads and files at the end."""
    settings = parse(config)

    def load(run: Run, manifests: Mapping[str, Manifest]) -> Loaded[tuple[Conversation, ...]]:
        found = tuple(supervised.load_conversations(settings.learning, run.folder, manifests))
        return Loaded(found, found)

    with offline.open_offline(config, workdir, stop, settings, load) as opened:
        yield opened
