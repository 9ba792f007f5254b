"""Append-only rendering of conversations: encodes the text of a chat template in pieces.

The text between two special tokens of the template is encoded as one run. Special tokens isolate
runs, so the ids equal those of the whole conversation rendered and encoded in one call.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Mapping, Sequence

import numpy as np

from agentgym_jax.episodes.trajectory import TokenSource
from agentgym_jax.text.template import ChatTemplate
from agentgym_jax.text.tokenizer import Tokenizer

Piece = int | str  # id of a special token, or text that is encoded with neighbouring text

_CHARACTERS_PER_TOKEN = 16  # more than in most texts

# conversation with which a new renderer checks that both ways of encoding agree
_SAMPLE = (
    {"role": "user", "content": "You are in a room. Goal: go to the red door."},
    {"role": "assistant", "content": "Thought: it is 2 steps ahead.\nAction:\nmove forward"},
    {"role": "user", "content": "There is a red door 1\n step ahead, and a café.\n"},
    {"role": "assistant", "content": "done"},
)


@dataclasses.dataclass(frozen=True)
class Message:
    """Message of a conversation. `loss` is True for an assistant message to imitate."""

    role: str
    content: str
    loss: bool = False


@dataclasses.dataclass(frozen=True)
class EncodedConversation:
    """Conversation as token ids; n is the number of tokens."""

    tokens: np.ndarray  # int32 [n]
    action_mask: np.ndarray  # bool [n], True for tokens to imitate, including the end-of-turn token
    sources: np.ndarray  # int8 [n], TokenSource of each token; ACTION for answers after the opening


class ChatRenderer:
    """Renders the parts of a conversation as token ids, in the order of an episode.

    System and user messages are trimmed if the template trims them. Answers are never changed,
    because their tokens were sampled. If the template removes the thinking of earlier answers, the
    conversation continues in a new sequence without it.

    Attributes:
      stop_ids: Tokens that end a sampled turn: the template's stop token, then the tokenizer's
        end-of-document token and those of the model's generation_config.json if they differ.
      grammar: Fixed strings of the template.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Extracts the template's strings; raises ValueError if the template is not append-only."""
        self.template = ChatTemplate(tokenizer.chat_template, tokenizer.template_variables)
        self.grammar = self.template.grammar()
        self._tokenizer = tokenizer.guarding(self.grammar.literals())
        names = sorted(self._tokenizer.special_tokens, key=len, reverse=True)
        self._specials = re.compile("(" + ("|".join(map(re.escape, names)) or "(?!)") + ")")
        self._assistant_header = self.pieces(self.grammar.assistant_header)
        self._earlier_header = self.pieces(self.grammar.earlier_header)
        footer = self.pieces(self.grammar.assistant_footer)
        at = next((i for i, piece in enumerate(footer) if isinstance(piece, int)), None)
        if at is None:
            raise ValueError(
                f"chat template ends an answer with {self.grammar.assistant_footer!r}, in which there "
                f"is no special token (they are {list(self._tokenizer.special_tokens)}): a sampled "
                "turn would have no end. Use a template that closes an answer with a special token."
            )
        self._before_stop, stop, after_stop = footer[:at], int(footer[at]), footer[at + 1 :]
        prefix = self.grammar.answer_prefix
        if any(isinstance(piece, int) for piece in self.pieces(prefix)):
            raise ValueError(
                f"chat template writes {prefix!r} before an answer, but does not write it when it "
                "asks for one. Move it to the generation prompt of the template."
            )
        self._next_header = self.pieces(self.grammar.next_user_header)
        self._after_stop = after_stop
        seam = after_stop[-1:] + self._next_header[:1]
        if len(seam) == 2 and all(isinstance(piece, str) for piece in seam):
            self._next_header.insert(0, after_stop.pop())  # both texts could merge into one token
        document_end = () if tokenizer.eos_id is None else (tokenizer.eos_id,)
        self.stop_ids = tuple(dict.fromkeys((stop, *document_end, *tokenizer.end_ids)))
        self._check_runs()

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        """Returns the tokens before the first sampled token, including the answer's header.

        The last message is from a user. If other messages precede it, the result usually has two
        chunks, and tasks with the same instructions share the first chunk.
        """
        check_roles([message["role"] for message in messages], last="user")
        pieces: list[Piece] = []
        content_at = 0
        for i, message in enumerate(messages):
            role, text = message["role"], self.grammar.content(message["role"], message["content"])
            if role == "assistant":
                answer = self.grammar.earlier_answer(message["content"])
                pieces += [*self.action(answer), *self._after_stop]
                continue
            pieces += self._header(role, messages[i - 1]["role"] if i else None)
            content_at = len(pieces)
            pieces.append(text)
            if role == "user":
                is_last = i == len(messages) - 1
                pieces += self._assistant_header if is_last else self._earlier_header
        if len(messages) == 1:
            return [self.encode(pieces)]
        breaks = [j + 1 for j in range(content_at) if isinstance(pieces[j], int)]
        cut = breaks[-1] if breaks else 0
        chunks = [self.encode(pieces[:cut]), self.encode(pieces[cut:])]
        return [chunk for chunk in chunks if chunk]

    def action(self, text: str) -> list[int]:
        """Returns the ids of an answer, including its stop token, as a model would sample them.

        If header and answer were encoded as one text, a token could contain characters of both. A
        sampled token cannot.
        """
        header = self._assistant_header[-1:]
        context = header[0] if header and isinstance(header[0], str) else ""
        tail = "".join(piece for piece in self._before_stop if isinstance(piece, str))
        answer = self.grammar.answer_prefix + text + tail
        before = self._tokenizer.encode(context)
        ids = self._tokenizer.encode(context + answer)
        ids = ids[len(before) :] if ids[: len(before)] == before else self._tokenizer.encode(answer)
        return [*ids, self.stop_ids[0]]

    def continuation(
        self, messages: Sequence[Mapping[str, str]], ended_by_stop: bool
    ) -> list[int] | None:
        """Returns the tokens between a sampled answer and the next one.

        The conversation ends with the sampled answer and a user message. Returns None if the template
        changes the answer, so that the conversation continues in a new sequence: `opening(messages)`.
        """
        if self.rewrites(messages[-2]["content"]):
            return None
        return [*self.close_turn(ended_by_stop), *self.observation(messages[-1]["content"])]

    def rewrites(self, answer: str) -> bool:
        """Returns True if the template writes an answer differently when a message follows."""
        earlier = self.grammar.earlier_answer(answer)
        return bool(self.grammar.thinking_start) or earlier != answer

    def close_turn(self, ended_by_stop: bool) -> list[int]:
        """Returns the template's tokens after an answer, and its stop token unless sampled."""
        if ended_by_stop:
            return self.encode(self._after_stop)
        return self.encode([*self._before_stop, self.stop_ids[0], *self._after_stop])

    def observation(self, text: str) -> list[int]:
        """Returns the tokens of a user message after `close_turn`, and of the answer's header."""
        content = self.grammar.content("user", text)
        return self.encode([*self._next_header, content, *self._assistant_header])

    def start_of(self, text: str, tokens: int) -> str:
        """Returns the start of a user's text if the text certainly has more than `tokens` tokens.

        Otherwise returns the whole text. The time is bounded by the number of tokens, not by the
        length of the text. The start has twice as many tokens as asked for, because its last tokens
        can differ from those of the whole text.
        """
        length = _CHARACTERS_PER_TOKEN * tokens
        while length < len(text):
            start = text[:length]
            if len(self._tokenizer.encode(self.grammar.content("user", start))) > 2 * tokens:
                return start
            length *= 2
        return text

    @property
    def vocab_size(self) -> int:
        """Returns the number of token ids of the tokenizer."""
        return self._tokenizer.vocab_size

    def encode_conversation(self, messages: Sequence[Message]) -> EncodedConversation:
        """Encodes a finished conversation; the ids equal those of an episode encoded part by part.

        The opening ends before the first answer with `loss`. A final user message is followed by
        the header of an answer. Raises ValueError if the template changes an answer after the
        opening; see `split_conversation`.
        """
        check_roles([message.role for message in messages])
        for i, message in enumerate(messages):
            if message.loss and message.role != "assistant":
                raise ValueError(f"message {i} has loss but its role is {message.role!r}")
        answers = [i for i, message in enumerate(messages) if message.role == "assistant"]
        imitated = [i for i in answers if messages[i].loss]
        first = next(iter(imitated or answers), len(messages))
        changed = [i for i in answers if first <= i < len(messages) - 1]
        if any(self.rewrites(messages[i].content) for i in changed):
            raise ValueError(
                "the chat template removes the thinking of an answer that a message follows; split "
                "the conversation after this answer"
            )
        opening = [{"role": m.role, "content": m.content} for m in messages[:first]]
        spans = [(sum(self.opening(opening), []), TokenSource.PROMPT, False)]
        for message in messages[first:]:
            if message.role == "assistant":
                spans.append((self.action(message.content), TokenSource.ACTION, message.loss))
                spans.append((self.close_turn(True), TokenSource.OBSERVATION, False))
            else:
                spans.append((self.observation(message.content), TokenSource.OBSERVATION, False))
        lengths = [len(ids) for ids, _, _ in spans]
        return EncodedConversation(
            tokens=np.array([i for ids, _, _ in spans for i in ids], np.int32),
            action_mask=np.repeat(np.array([loss for _, _, loss in spans], bool), lengths),
            sources=np.repeat(np.array([source for _, source, _ in spans], np.int8), lengths),
        )

    def split_conversation(self, messages: Sequence[Message]) -> list[list[Message]]:
        """Returns conversations with the answers to imitate, none of which changes an answer.

        A conversation ends after an answer that the template changes when a message follows. The
        next one has its messages without loss.
        """
        parts: list[list[Message]] = []
        start = 0  # first message whose loss is not in an earlier part
        for i, message in enumerate(messages):
            is_last = i == len(messages) - 1
            if not is_last and not (message.role == "assistant" and self.rewrites(message.content)):
                continue
            before = [dataclasses.replace(m, loss=False) for m in messages[:start]]
            part = [*before, *messages[start : i + 1]]
            if is_last and not parts or any(m.loss for m in part):
                parts.append(part)
            start = i + 1
        return parts

    def _header(self, role: str, before: str | None) -> list[Piece]:
        """Returns the template's pieces before a system or user message."""
        if role == "system" or before == "system":
            text = self.grammar.system_header if role == "system" else self.grammar.after_system
            if text is None:
                raise ValueError(
                    "this chat template takes no system message; put the text at the start of the "
                    "first user message"
                )
            return self.pieces(text)
        return self.pieces(self.grammar.first_user_header) if before is None else self._next_header

    def pieces(self, text: str) -> list[Piece]:
        """Splits a text at the names of special tokens, which become ids."""
        ids = self._tokenizer.special_tokens
        parts = self._specials.split(text)
        return [ids[part] if part in ids else part for part in parts if part]

    def encode(self, pieces: Sequence[Piece]) -> list[int]:
        """Returns the ids of pieces; neighbouring texts are encoded as one run."""
        ids: list[int] = []
        for is_text, run in itertools.groupby(pieces, lambda piece: isinstance(piece, str)):
            if is_text:
                ids += self._tokenizer.encode("".join(map(str, run)))
            else:
                ids += map(int, run)
        return ids

    def _check_runs(self) -> None:
        """Checks on samples that ids encoded run by run equal those of the whole text."""
        system = {"role": "system", "content": "Answer with one action."}
        # The last answer may have its own form if the template removes thinking.
        sample_messages = _SAMPLE[:-1] if self.grammar.drops_thinking else _SAMPLE
        samples = [list(sample_messages)]
        if self.grammar.system_header is not None:
            samples.append([system, *sample_messages])
        for sample in samples:
            if sample[-1]["role"] == "user":
                pieces = sum(self.opening(sample), [])
            else:
                messages = [Message(m["role"], m["content"]) for m in sample]
                pieces = self.encode_conversation(messages).tokens.tolist()
            whole = self._tokenizer.encode_with_specials(self.template.render(sample))
            at = len(os.path.commonprefix([pieces, whole]))
            if at < len(pieces):
                raise ValueError(
                    "chat template and tokenizer do not fit append-only rendering: encoding a "
                    "sample in pieces and at once differs at token "
                    f"{at}: {self._tokenizer.decode(pieces[at : at + 8])!r} against "
                    f"{self._tokenizer.decode(whole[at : at + 8])!r}. A special token that eats "
                    "neighbouring whitespace, or structure words that are no special tokens, "
                    "cause this."
                )


def check_roles(roles: Sequence[str], last: str | None = None) -> None:
    """Raises ValueError unless user and assistant alternate, after an optional system message."""
    body = roles[1:] if roles and roles[0] == "system" else roles
    expected = ["user" if i % 2 == 0 else "assistant" for i in range(len(body))]
    if not body or list(body) != expected or (last is not None and roles[-1] != last):
        ending = f", {last} last" if last else ""
        raise ValueError(
            f"roles are {list(roles)}; expected an optional system message, then user and "
            f"assistant in turn{ending}"
        )
