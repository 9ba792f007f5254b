"""Supervised data of a run: conversations from files or recorded demonstrations, as token ids."""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from absl import logging

from agentgym_jax.data import preferences
from agentgym_jax.data import tasks as selection
from agentgym_jax.data.conversations import Conversation, read_conversations
from agentgym_jax.data.demonstrations import record, record_sets
from agentgym_jax.data.rows import Bad
from agentgym_jax.run.environments import check_tasks
from agentgym_jax.run.sections import ConfigError, call, check
from agentgym_jax.run_folder import RunFolder
from agentgym_jax.text.chat import ChatRenderer, EncodedConversation, Message
from agentgym_jax.trajectory import TokenSource

Manifest = Callable[[], Sequence[Mapping[str, Any]]]


class Sources(Protocol):
    """The keys of a section that say where conversations come from.

    Attributes:
      files: conversation files or folders.
      demonstrations: name -> tasks and player to record.
      bad: rows that cannot be read: `fatal` or `skip`.
    """

    @property
    def files(self) -> Sequence[str]:
        """See above."""

    @property
    def demonstrations(self) -> Mapping[str, Any]:
        """See above."""

    @property
    def bad(self) -> Bad:
        """See above."""


def check_demonstrations(settings: Sources, section: str = "sft") -> None:
    """Checks the sets of a section before anything is started."""
    for name, options in settings.demonstrations.items():
        where = f"{section}.demonstrations.{name}"
        check(
            _recorded,
            where,
            {key: options[key] for key in ("environment", "tasks") if key in options},
        )
        check_tasks(f"{where}.tasks", options["tasks"])
        rest = {key: value for key, value in options.items() if key not in ("environment", "tasks")}
        check(record, where, rest, tasks=(), path=None)


def _recorded(environment: str, tasks: Mapping[str, Any]) -> None:
    """Keys of a set of demonstrations besides those of `record`."""


def load_conversations(
    settings: Sources,
    folder: RunFolder,
    manifests: Mapping[str, Manifest],
    section: str = "sft",
) -> list[Conversation]:
    """Conversations of the files, then of the demonstrations.

    Demonstrations are recorded once and kept in the run folder. Episodes whose environment failed,
    which our own run folders hold as well, are left out.

    Args:
      settings: the section.
      folder: of the run.
      manifests: environment -> what asks its server for the task list; read only by sets whose
        tasks are chosen by split.
      section: its name, for messages.
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
        return read_conversations(path, bad=bad).conversations
    except (ValueError, OSError) as error:
        raise ConfigError(f"config.{section}.files: {error}") from error


def texts(conversations: Sequence[Conversation]) -> Iterator[str]:
    """All message texts: what a tokenizer is trained on."""
    for conversation in conversations:
        for message in conversation.messages:
            yield message.content


def encode(
    conversations: Sequence[Conversation],
    renderer: ChatRenderer,
    preambles: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    train_on: str,
) -> list[EncodedConversation]:
    """Token ids as an episode would have them.

    Args:
      conversations: to imitate.
      renderer: of the run's tokenizer.
      preambles: environment -> messages that precede the first observation in this run; an
        environment that is not named gets none (its files bring their own), nor does a
        conversation that has a system message already.
      train_on: `actions` or `text`, see SftSettings.
    """
    encoded = []
    for conversation in conversations:
        environment = environment_of(conversation)
        before = [Message(m["role"], m["content"]) for m in preambles.get(environment, ())]
        if conversation.messages[0].role == "system":
            before = []
        sequence = renderer.encode_conversation([*before, *conversation.messages])
        if train_on == "text":
            sequence = on_text(sequence)
        encoded.append(sequence)
    return encoded


def environment_of(conversation: Conversation) -> str:
    """Name of the environment that a conversation was held with."""
    return selection.canonical_item_id(conversation.item_id).rpartition("_")[0]


def openings(
    conversations: Sequence[Conversation],
) -> dict[str, tuple[Mapping[str, str], ...]]:
    """Environment -> messages before the first observation, as most of its conversations have them."""
    counts: dict[str, collections.Counter[tuple[Message, ...]]] = {}
    for conversation in conversations:
        prompt = preferences.opening(conversation.messages)
        if len(prompt) < len(conversation.messages):  # has an answer to imitate
            count = counts.setdefault(environment_of(conversation), collections.Counter())
            count[prompt[:-1]] += 1
    found: dict[str, tuple[Mapping[str, str], ...]] = {}
    for name, count in counts.items():
        ((most, times),) = count.most_common(1)
        if times < count.total():
            logging.warning(
                "%d of %d conversations on %s open in another way than its episodes will",
                count.total() - times,
                count.total(),
                name,
            )
        found[name] = tuple({"role": m.role, "content": m.content} for m in most)
    return found


def on_text(sequence: EncodedConversation) -> EncodedConversation:
    """Trains on everything but the answers that are marked as not to be imitated."""
    is_text = sequence.action_mask | (sequence.sources != TokenSource.ACTION)
    is_text[0] = False  # predicted from nothing
    return dataclasses.replace(sequence, action_mask=is_text)
