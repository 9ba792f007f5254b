"""Encodes conversations as token ids, and finds their common prompts."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from agentgym_jax.data import preferences
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.tasks import canonical_item_id
from agentgym_jax.episodes.trajectory import TokenSource
from agentgym_jax.text.chat import ChatRenderer, EncodedConversation, Message


def encode(
    conversations: Sequence[Conversation],
    renderer: ChatRenderer,
    preambles: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    train_on: str,
) -> list[EncodedConversation]:
    """Encodes conversations in the same way as the run encodes its episodes.

    A conversation has several sequences if the chat template removes the thinking of earlier
    answers, or if its trace has several branches.

    `preambles` are messages before conversations without a system message, by environment.
    `train_on` is `actions` (loss on answers to imitate) or `text` (loss also on other tokens).
    """
    encoded = []
    for conversation in conversations:
        has_system = conversation.messages[0].role == "system"
        preamble = () if has_system else preambles.get(_environment_name(conversation), ())
        before = [Message(m["role"], m["content"]) for m in preamble]
        sequences = list(conversation.encoded)
        if not sequences:
            parts = renderer.split_conversation([*before, *conversation.messages])
            sequences = [renderer.encode_conversation(part) for part in parts]
        largest = max((s.tokens.max(initial=0) for s in sequences), default=0)
        if largest >= renderer.vocab_size:
            raise ValueError(
                f"{conversation.item_id}: token id {largest} of the trace is not in the vocabulary "
                f"of {renderer.vocab_size}; traces need the tokenizer of the model that sampled them"
            )
        encoded += [train_on_text(s) if train_on == "text" else s for s in sequences]
    return encoded


def _environment_name(conversation: Conversation) -> str:
    return canonical_item_id(conversation.item_id).rpartition("_")[0]


def common_prompts(
    conversations: Sequence[Conversation],
) -> dict[str, tuple[Mapping[str, str], ...]]:
    """Returns the most frequent messages before the first observation, by environment."""
    counts: dict[str, collections.Counter[tuple[Message, ...]]] = {}
    for conversation in conversations:
        prompt = preferences.opening(conversation.messages)
        if len(prompt) < len(conversation.messages):  # the conversation has an answer to imitate
            count = counts.setdefault(_environment_name(conversation), collections.Counter())
            count[prompt[:-1]] += 1
    found: dict[str, tuple[Mapping[str, str], ...]] = {}
    for name, count in counts.items():
        ((most, times),) = count.most_common(1)
        if times < count.total():
            text = "%d of %d conversations on %s open in another way than its episodes will"
            logging.warning(text, count.total() - times, count.total(), name)
        found[name] = tuple({"role": m.role, "content": m.content} for m in most)
    return found


def train_on_text(sequence: EncodedConversation) -> EncodedConversation:
    """Returns the sequence with a loss also on prompt and observations, except its first token."""
    is_text = sequence.action_mask | (sequence.sources != TokenSource.ACTION)
    is_text[0] = False  # no earlier token can predict the first one
    return dataclasses.replace(sequence, action_mask=is_text)
