"""Append-only rendering of conversations: what a chat template writes, piece by piece, as ids.

An episode is one growing sequence of tokens: opening, sampled action, closing of the turn,
observation, sampled action, ... Nothing is ever rendered or encoded a second time. That is only
right if the template writes the same text for a message whatever comes after it, which
`template.py` proves before a `ChatRenderer` exists.

Text and special tokens never mix: special tokens come from the template's own text, and what
stands between two of them (template text and message content) is encoded as one run. Special
tokens isolate runs, so the ids are those of rendering everything and encoding it at once.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from agentgym_jax.text.template import ChatTemplate, Grammar
from agentgym_jax.text.tokenizer import Tokenizer
from agentgym_jax.trajectory import TokenSource

Piece = int | str  # a finished id, or text that is encoded together with its text neighbours

# Encoded in pieces and at once when a renderer is built.
_SAMPLE = (
    {"role": "user", "content": "You are in a room. Goal: go to the red door."},
    {"role": "assistant", "content": "Thought: it is 2 steps ahead.\nAction:\nmove forward"},
    {"role": "user", "content": "There is a red door 1\n step ahead, and a café.\n"},
    {"role": "assistant", "content": "done"},
)


@dataclasses.dataclass(frozen=True)
class Message:
    """One message. `loss` is True on an assistant message that is to be imitated."""

    role: str
    content: str
    loss: bool = False


@dataclasses.dataclass(frozen=True)
class EncodedConversation:
    """A conversation as ids; n is its number of tokens.

    Attributes:
      tokens: int32 [n].
      action_mask: bool [n], True on the tokens to imitate, the end of the turn included.
      sources: int8 [n], a TokenSource each; ACTION on every answer after the opening.
    """

    tokens: np.ndarray
    action_mask: np.ndarray
    sources: np.ndarray


class ChatRenderer:
    """Writes the pieces of a conversation as token ids, each once, in the order of an episode.

    If the template trims outer whitespace, so are system and user messages. Answers are never
    changed: their tokens are as sampled.

    Attributes:
      stop_ids: tokens that end a sampled turn. The first is the template's own; the tokenizer's
        end of document follows if it is another one.
      grammar: the template's strings.
    """

    stop_ids: tuple[int, ...]
    grammar: Grammar

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Learns the template's strings and proves that conversations only grow at their end.

        Raises:
          ValueError: there is no template, it is not append-only, or its text and the tokens
            around it cannot be encoded apart; the message says why.
        """
        template = ChatTemplate(tokenizer.chat_template, tokenizer.template_variables)
        self.grammar = template.grammar()
        self._tokenizer = tokenizer.guarding(self.grammar.literals())
        names = sorted(self._tokenizer.special_tokens, key=len, reverse=True)
        self._specials = re.compile("(" + "|".join(map(re.escape, names)) + ")")
        self._assistant_header = self._pieces(self.grammar.assistant_header)
        self._before_stop, stop, after_stop = self._split_footer()
        self._check_answer_prefix()
        self._after_stop, self._next_header = _move_tail(
            after_stop, self._pieces(self.grammar.next_user_header)
        )
        ends = (stop,) if tokenizer.eos_id is None else (stop, tokenizer.eos_id)
        self.stop_ids = tuple(dict.fromkeys(ends))
        self._check_runs(template)

    def opening(self, messages: Sequence[Mapping[str, str]]) -> list[list[int]]:
        """Tokens before the first sampled one, ending with the header of the answer.

        Args:
          messages: dictionaries with `role` and `content`: optionally a system message, then
            users and assistants in turn, a user last.

        Returns:
          Two chunks: all that precedes the last message (equal for all tasks with the same
          instructions), and the last message with the answer's header. One chunk if there is
          only one message, or no special token between the last two.
        """
        check_roles([message["role"] for message in messages], last="user")
        pieces: list[Piece] = []
        content_at = 0
        for i, message in enumerate(messages):
            role, text = message["role"], self.grammar.content(message["role"], message["content"])
            if role == "assistant":
                pieces += [*self.action(message["content"]), *self._after_stop]
                continue
            pieces += self._header(role, messages[i - 1]["role"] if i else None)
            content_at = len(pieces)
            pieces.append(text)
            if role == "user":
                pieces += self._assistant_header
        if len(messages) == 1:
            return [self._encode(pieces)]
        breaks = [j + 1 for j in range(content_at) if isinstance(pieces[j], int)]
        cut = breaks[-1] if breaks else 0
        chunks = [self._encode(pieces[:cut]), self._encode(pieces[cut:])]
        return [chunk for chunk in chunks if chunk]

    def action(self, text: str) -> list[int]:
        """Ids of an answer as a model would sample it, its stop token included.

        These are the ids of the whole rendered text unless the first characters merge with the
        template's header in front, as a leading newline may: a sampled token cannot.
        """
        header = self._assistant_header[-1:]
        context = header[0] if header and isinstance(header[0], str) else ""
        tail = "".join(piece for piece in self._before_stop if isinstance(piece, str))
        answer = self.grammar.answer_prefix + text + tail
        before = self._tokenizer.encode(context)
        ids = self._tokenizer.encode(context + answer)
        ids = ids[len(before) :] if ids[: len(before)] == before else self._tokenizer.encode(answer)
        return [*ids, self.stop_ids[0]]

    def close_turn(self, ended_by_stop: bool) -> list[int]:
        """Tokens after a sampled answer; none of them is sampled.

        Args:
          ended_by_stop: the last sampled token is one of `stop_ids`. Otherwise the turn was
            cut, and the stop token comes first here.
        """
        if ended_by_stop:
            return self._encode(self._after_stop)
        return self._encode([*self._before_stop, self.stop_ids[0], *self._after_stop])

    def observation(self, text: str) -> list[int]:
        """Tokens of a user message after `close_turn`, ending with the header of the answer."""
        content = self.grammar.content("user", text)
        return self._encode([*self._next_header, content, *self._assistant_header])

    def encode_conversation(self, messages: Sequence[Message]) -> EncodedConversation:
        """Ids of a finished conversation: exactly those of an episode of the methods above.

        All before the first answer with `loss` is the opening. A user message at the end asks for
        an answer, as an observation does.

        Raises:
          ValueError: the roles do not alternate from a user (after an optional system message),
            or a message with `loss` is not an assistant's.
        """
        check_roles([message.role for message in messages])
        for i, message in enumerate(messages):
            if message.loss and message.role != "assistant":
                raise ValueError(f"message {i} has loss but its role is {message.role!r}")
        first = _opening_length(messages)
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

    def _header(self, role: str, before: str | None) -> list[Piece]:
        """The pieces in front of a system or user message."""
        if role == "system" or before == "system":
            text = self.grammar.system_header if role == "system" else self.grammar.after_system
            if text is None:
                raise ValueError(
                    "this chat template takes no system message; put the text at the start of the "
                    "first user message"
                )
            return self._pieces(text)
        return self._pieces(self.grammar.first_user_header) if before is None else self._next_header

    def _pieces(self, text: str) -> list[Piece]:
        """Splits text of the template at its special tokens."""
        if not self._tokenizer.special_tokens:
            return [text] if text else []
        ids = self._tokenizer.special_tokens
        parts = self._specials.split(text)
        return [ids[part] if part in ids else part for part in parts if part]

    def _encode(self, pieces: Sequence[Piece]) -> list[int]:
        """Ids of the pieces; neighbouring texts are one run."""
        ids: list[int] = []
        run = ""
        for piece in [*pieces, -1]:  # the id at the end flushes the last run
            if isinstance(piece, str):
                run += piece
                continue
            if run:
                ids += self._tokenizer.encode(run)
                run = ""
            ids.append(piece)
        return ids[:-1]

    def _split_footer(self) -> tuple[list[Piece], int, list[Piece]]:
        """The end of an answer: text before the stop token, the stop token, the rest."""
        pieces = self._pieces(self.grammar.assistant_footer)
        for i, piece in enumerate(pieces):
            if isinstance(piece, int):
                return pieces[:i], piece, pieces[i + 1 :]
        raise ValueError(
            f"chat template ends an answer with {self.grammar.assistant_footer!r}, in which there "
            f"is no special token (they are {list(self._tokenizer.special_tokens)}): a sampled turn "
            "would have no end. Use a template that closes an answer with a special token."
        )

    def _check_answer_prefix(self) -> None:
        """Refuses structure between the header and the answer that a model would have to sample."""
        prefix = self.grammar.answer_prefix
        if any(isinstance(piece, int) for piece in self._pieces(prefix)):
            raise ValueError(
                f"chat template writes {prefix!r} before an answer, but does not write it when it "
                "asks for one. Move it to the generation prompt of the template."
            )

    def _check_runs(self, template: ChatTemplate) -> None:
        """Compares ids encoded run by run with those of the whole text, on sample conversations."""
        system = {"role": "system", "content": "Answer with one action."}
        samples = [list(_SAMPLE)]
        if self.grammar.system_header is not None:
            samples.append([system, *_SAMPLE])
        for sample in samples:
            ours = self.encode_conversation(
                [Message(m["role"], m["content"]) for m in sample]
            ).tokens
            whole = self._tokenizer.encode_with_specials(template.render(sample))
            if ours.tolist() != whole[: len(ours)]:
                at = next(
                    i for i, pair in enumerate(zip(ours, whole, strict=False)) if pair[0] != pair[1]
                )
                raise ValueError(
                    "chat template and tokenizer do not fit append-only rendering: encoding a "
                    "sample in pieces and at once differs at token "
                    f"{at}: {self._tokenizer.decode(ours[at : at + 8].tolist())!r} against "
                    f"{self._tokenizer.decode(whole[at : at + 8])!r}. A special token that eats "
                    "neighbouring whitespace, or structure words that are no special tokens, "
                    "cause this."
                )


def _move_tail(
    after_stop: Sequence[Piece], next_header: Sequence[Piece]
) -> tuple[list[Piece], list[Piece]]:
    """Moves text that would run on into the next header from the end of a turn to that header."""
    closing, header = list(after_stop), list(next_header)
    while closing and header and isinstance(closing[-1], str) and isinstance(header[0], str):
        header.insert(0, closing.pop())
    return closing, header


def _opening_length(messages: Sequence[Message]) -> int:
    """Number of messages before the first answer with loss, or before the first answer at all."""
    answers = [i for i, message in enumerate(messages) if message.role == "assistant"]
    trained = [i for i in answers if messages[i].loss]
    return next(iter(trained or answers), len(messages))


def check_roles(roles: Sequence[str], last: str | None = None) -> None:
    """Raises unless roles alternate from a user, after an optional system message."""
    body = roles[1:] if roles and roles[0] == "system" else roles
    expected = ["user" if i % 2 == 0 else "assistant" for i in range(len(body))]
    if not body or list(body) != expected or (last is not None and roles[-1] != last):
        ending = f", {last} last" if last else ""
        raise ValueError(
            f"roles are {list(roles)}; expected an optional system message, then user and "
            f"assistant in turn{ending}"
        )
