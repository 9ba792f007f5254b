"""Converts text to token ids and back; all tokenizers use the fast `tokenizers` library."""

import itertools
import json
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from agentgym_jax.checks import limits
from agentgym_jax.checks.limits import Range
from agentgym_jax.text import sentencepiece_tokenizer
from agentgym_jax.text.template import COMPACT, Value, with_variables

_BYTES_SPECIALS = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|im_end|>")
# regular expression for the words of Qwen2's tokenizer.json
QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_RULES = [
    {"type": "Split", "pattern": {"Regex": QWEN2_WORDS}, "behavior": "Isolated", "invert": False},
    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
]
_AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")
_NOT_OF_QWEN2 = ("unk_token", *_AFFIXES, "byte_fallback", "ignore_merges")
_GENERATION_FILE = "generation_config.json"
_TokenId = Annotated[int, Range(0)]
_TEMPLATE_VARIABLES = tuple(
    f"{name}_token" for name in ("bos", "eos", "pad", "unk", "sep", "cls", "mask")
)
# Classes of `transformers` whose tokenizers are what `tokenizer.json` says.
_GENERAL_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Other files from which `transformers` takes tokens.
_COMPANIONS = ("added_tokens.json", "special_tokens_map.json")
_SOURCES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
# printable character for each byte in byte-level vocabularies, as in GPT-2
BYTE_ALPHABET = [
    chr(byte if byte in _PRINTABLE else 256 + sum(b not in _PRINTABLE for b in range(byte)))
    for byte in range(256)
]

_BYTES = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")  # byte without a character in sentencepiece


class Tokenizer:
    """Tokenizer that encodes pieces of an episode; only templates produce special tokens.

    `encode` treats its argument as the continuation of an episode: it adds no special tokens and no
    space for the start of a document. It encodes the names of special tokens as ordinary text.

    Attributes:
      chat_template: Jinja source of the conversation format; None if the files define none.
      special_tokens: Ids of the tokens that `encode` never returns, by name.
      template_variables: Variables that the template may read, such as `bos_token`.
      end_ids: Ids that end an answer according to `generation_config.json`.
    """

    def __init__(
        self,
        backend_json: str,
        config: Mapping[str, Any],
        *,
        guarded: Iterable[str] = (),
        end_ids: Iterable[int] = (),
    ) -> None:
        """Builds a tokenizer from `tokenizer.json` (text) and `tokenizer_config.json` (object).

        `guarded` are added tokens to treat as special although the file does not mark them so.

        Raises:
          ValueError: A file has another form than those of `tokenizers` and `transformers`.
        """
        self._json, self._config, self._guarded = backend_json, dict(config), frozenset(guarded)
        self.end_ids = tuple(end_ids)
        self.chat_template = _chat_template(self._config)
        tokens = {name: self._config.get(name) for name in _TEMPLATE_VARIABLES}
        self.template_variables: Mapping[str, str] = {
            name: _token_text(name, token) for name, token in tokens.items() if token is not None
        }
        self._text = self._backend()
        self._text.encode_special_tokens = True  # encodes names of special tokens as plain text
        added = self._text.get_added_tokens_decoder()
        self._plain_added = [token.content for token in added.values() if not token.special]
        self.special_tokens: Mapping[str, int] = {
            token.content: i for i, token in sorted(added.items()) if token.special
        }
        self._added = {token.content for token in added.values()}
        self._is_byte_level = "ByteLevel" in str(self._text.decoder)
        self._has_byte_tokens = "ByteFallback" in str(self._text.decoder)
        unknown = self.template_variables.get("unk_token")
        self._forbidden = {i for name, i in self.special_tokens.items() if name != unknown}
        pattern = "|".join(map(re.escape, self.special_tokens))
        self._names = re.compile(f"(?={pattern})" if pattern else "(?!)")
        self.vocab_size = 1 + max(self._text.get_vocab(with_added_tokens=True).values())

    def encode(self, text: str) -> list[int]:
        """Encodes an untrusted text; returns no special token, except perhaps `unk_token`."""
        ids = self._text.encode(text, add_special_tokens=False).ids
        if self._forbidden.isdisjoint(ids):
            return ids
        # a unigram model finds control tokens like words, so their names are split
        breaks = [match.start() + 1 for match in self._names.finditer(text)]
        parts = [text[i:j] for i, j in itertools.pairwise([0, *breaks, len(text)])]
        return [i for part in parts for i in self._text.encode(part, add_special_tokens=False).ids]

    def encode_with_specials(self, text: str) -> list[int]:
        """Encodes a trusted text with names of special tokens; slow."""
        return self._backend().encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids; special tokens appear by name, invalid UTF-8 as U+FFFD."""
        ids = list(ids)
        text = self._text.decode(ids, skip_special_tokens=False)
        if not self._has_byte_tokens or "\ufffd" not in text:
            return text
        names = [name for name in map(self._text.id_to_token, ids) if name is not None]
        return self._text.decoder.decode(_mark_broken_bytes(names))

    def token_bytes(self, token: int) -> bytes:
        """Returns the bytes of a token, which may be a part of a character; of a special one its name."""
        name = self._text.id_to_token(token) or ""
        if name in self._added:
            return name.encode()
        if self._is_byte_level and all(character in _BYTES for character in name):
            return bytes(_BYTES[character] for character in name)
        if (byte := _byte(name)) is not None:
            return bytes([byte])
        return name.replace("\u2581", " ").encode()  # the space of sentencepiece

    def has_same_ids(self, other: "Tokenizer") -> bool:
        """Returns True if every id has the same token in both tokenizers."""
        mine, others = (t._text.get_vocab(with_added_tokens=True) for t in (self, other))
        return mine == others

    @property
    def eos_id(self) -> int | None:
        """Returns the id of the config's `eos_token`, which ends a document."""
        name = self.template_variables.get("eos_token")
        return None if name is None else self._text.token_to_id(name)

    @property
    def is_qwen2(self) -> bool:
        """Returns True if the class `Qwen2Tokenizer` of `transformers` would return the same ids.

        transformers 5 uses this class, which has its own rule for words, for all qwen2 models.
        """
        state = json.loads(self._json)
        model, cut = state["model"], state["pre_tokenizer"]
        if model["type"] != "BPE" or cut is None or cut["type"] != "Sequence":
            return False
        # `trim_offsets` affects only offsets, not ids.
        rules = [step | {"trim_offsets": None} for step in cut["pretokenizers"]]
        return (
            not any(model.get(name) for name in _NOT_OF_QWEN2)
            and state["normalizer"] == {"type": "NFC"}
            and rules == [rule | {"trim_offsets": None} for rule in _QWEN2_RULES]
        )

    def guarding(self, texts: Iterable[str]) -> "Tokenizer":
        """Returns a tokenizer in which every added token that occurs in `texts` is special.

        Some files do not mark the role markers of their template as special.
        """
        texts = list(texts)
        names = {name for name in self._plain_added if any(name in text for text in texts)}
        if not names:
            return self
        guarded = self._guarded | names
        return Tokenizer(self._json, self._config, guarded=guarded, end_ids=self.end_ids)

    def ending_with(self, end_ids: Iterable[int]) -> "Tokenizer":
        """Returns a tokenizer with further tokens that end an answer."""
        ends = dict.fromkeys((*self.end_ids, *end_ids))
        return Tokenizer(self._json, self._config, guarded=self._guarded, end_ids=ends)

    def with_variables(self, variables: Mapping[str, Value]) -> "Tokenizer":
        """Returns a tokenizer whose chat template sets variables; see `template.with_variables`."""
        if not variables:
            return self
        if self.chat_template is None:
            raise ValueError(f"there is no chat template that could read {sorted(variables)}")
        config = self._config | {"chat_template": with_variables(self.chat_template, variables)}
        return Tokenizer(self._json, config, guarded=self._guarded, end_ids=self.end_ids)

    def save(self, directory: str | pathlib.Path) -> None:
        """Writes the files of a tokenizer, which `transformers` can load.

        `tokenizer.json` is the last one, so a directory that has it is complete.
        """
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        # without this entry the general class returns `token_type_ids`, which decoders reject
        inputs = {"model_input_names": ["input_ids", "attention_mask"]}
        # classes for model families would add rules to those of `tokenizer.json`
        config = inputs | self._config | {"tokenizer_class": "PreTrainedTokenizerFast"}
        if self.chat_template is not None:
            config["chat_template"] = self.chat_template
        text = json.dumps(config, indent=2, ensure_ascii=False, sort_keys=True)
        (directory / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
        self.save_end_ids(directory)
        partial = directory / ".tokenizer.json.partial"
        partial.write_text(self._json, encoding="utf-8")
        partial.replace(directory / "tokenizer.json")

    def save_end_ids(self, directory: pathlib.Path) -> None:
        """Writes `generation_config.json` with `end_ids`, unless there is one or there are none."""
        path = directory / _GENERATION_FILE
        if self.end_ids and not path.exists():
            ends = {"do_sample": True, "eos_token_id": list(self.end_ids)}
            path.write_text(json.dumps(ends) + "\n", encoding="utf-8")

    def _backend(self) -> tokenizers.Tokenizer:
        """Builds the fast tokenizer without truncation or padding; marks `guarded` as special."""
        try:
            state = json.loads(self._json)
            keys = {"added_tokens", "model", "pre_tokenizer"}
            if not isinstance(state, dict) or not keys <= set(state):
                raise TypeError(f"it needs {sorted(keys)}")
            for token in state["added_tokens"]:
                token["special"] = token["special"] or token["content"] in self._guarded
            for part in _metaspaces(state["pre_tokenizer"]):
                # "first" puts a space before the start of a text, but a piece continues a text
                if part["prepend_scheme"] == "first":
                    part["prepend_scheme"] = "never"
            state["truncation"] = state["padding"] = None
            text = json.dumps(state, ensure_ascii=False)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"tokenizer.json is not JSON: {error}") from error
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"tokenizer.json is not one of `tokenizers`: {error}") from error
        try:
            return tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # noqa: BLE001 - the library raises no narrower class
            reason = " ".join(str(error).split())
            raise ValueError(f"tokenizer.json is not one of `tokenizers`: {reason}") from error


def load_tokenizer(source: str | pathlib.Path) -> Tokenizer:
    """Loads a Hugging Face directory or `.model` file; `bytes` selects `byte_tokenizer`."""
    if source == "bytes":
        return byte_tokenizer()
    path = pathlib.Path(source)
    if path.is_dir():
        return _load_directory(path)
    if not path.exists():
        raise FileNotFoundError(
            f"no tokenizer at {path}: expected a Hugging Face directory, a .model file, or "
            "the word bytes"
        )
    if path.suffix == ".model":
        return Tokenizer(*sentencepiece_tokenizer.read(path))
    raise ValueError(
        f"{path}: the name does not show the kind of tokenizer; expected a directory or "
        "*.model (sentencepiece)"
    )


def byte_tokenizer(template: str = COMPACT) -> Tokenizer:
    """Returns a tokenizer with one token per byte (id = byte) and five special tokens."""
    vocab = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [tokenizers.AddedToken(name, special=True, normalized=False) for name in _BYTES_SPECIALS]
    )
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": template}
    return Tokenizer(backend.to_str(), config)


def read_end_ids(directory: pathlib.Path) -> tuple[int, ...]:
    """Returns the ids that end an answer according to `generation_config.json`; empty without it."""
    path = directory / _GENERATION_FILE
    if not path.exists():
        return ()
    kinds = {"eos_token_id": _TokenId | Sequence[_TokenId] | None}
    found = limits.read_object(path, kinds).get("eos_token_id")
    return (found,) if isinstance(found, int) else tuple(found or ())


def _load_directory(path: pathlib.Path) -> Tokenizer:
    config: dict[str, Any] = {}
    if (path / "tokenizer_config.json").exists():
        config = limits.read_object(path / "tokenizer_config.json")
    if (path / "chat_template.jinja").exists():  # has precedence over the template in the config
        config["chat_template"] = (path / "chat_template.jinja").read_text(encoding="utf-8")
    if not any((path / name).exists() for name in _SOURCES):
        raise ValueError(f"{path} has no tokenizer: none of {', '.join(_SOURCES)}")
    end_ids = read_end_ids(path)
    try:
        if _is_general(path, config):
            backend_json = (path / "tokenizer.json").read_text(encoding="utf-8")
        elif (path / "tokenizer.model").exists() and not (path / "tokenizer.json").exists():
            backend_json, names = sentencepiece_tokenizer.read(path / "tokenizer.model")
            config = names | config
        else:
            backend_json, names = _read_with_transformers(path)
            config = names | {k: v for k, v in config.items() if k == "chat_template"}
        return Tokenizer(backend_json, config, end_ids=end_ids)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _is_general(path: pathlib.Path, config: Mapping[str, Any]) -> bool:
    """Returns True if `tokenizer.json` alone is what `transformers` would read from a directory.

    So runs whose tokenizer this project has saved need not import `transformers` for three seconds.
    """
    name = config.get("tokenizer_class")
    return (
        (path / "tokenizer.json").exists()
        and (name in _GENERAL_CLASSES or name is None and not (path / "config.json").exists())
        and "added_tokens_decoder" not in config
        and not any((path / companion).exists() for companion in _COMPANIONS)
    )


def _read_with_transformers(path: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """Returns the fast tokenizer of `transformers` as text, and its special tokens and template."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it warns that torch is missing
    from transformers import AutoTokenizer  # noqa: PLC0415

    try:
        loaded = AutoTokenizer.from_pretrained(
            path,
            local_files_only=True,
            trust_remote_code=False,  # without it, a tokenizer with code asks at the terminal
        )
    except Exception as error:  # the classes of `transformers` raise errors of any kind
        reason = limits.shorten(" ".join(str(error).split()))
        raise ValueError(
            f"transformers cannot read this tokenizer ({type(error).__name__}: {reason})"
        ) from error
    if not loaded.is_fast:
        raise ValueError(
            f"{type(loaded).__name__} of transformers has no fast tokenizer; tokenizer.json is needed"
        )
    names = {name: getattr(loaded, name) for name in _TEMPLATE_VARIABLES}
    names = {name: token for name, token in names.items() if token is not None}
    if loaded.chat_template is not None:
        template = loaded.chat_template
        if isinstance(template, Mapping):
            template = [{"name": name, "template": text} for name, text in template.items()]
        names["chat_template"] = template
    return loaded.backend_tokenizer.to_str(), names


def _mark_broken_bytes(names: Sequence[str]) -> list[str]:
    """Returns tokens in which U+FFFD stands for bytes that are no part of a character.

    The decoder of `tokenizers` replaces all bytes beside a broken one, too. Then an answer that is cut
    inside of a character would lose the characters before it.
    """
    marked = list(names)
    for is_byte, run in itertools.groupby(range(len(names)), lambda i: _byte(names[i]) is not None):
        places = list(run) if is_byte else []
        data = bytes(byte for i in places if (byte := _byte(names[i])) is not None)
        at = 0
        while at < len(data):
            try:
                data[at:].decode()
                break
            except UnicodeDecodeError as error:
                for i in places[at + error.start : at + error.end]:
                    marked[i] = "\ufffd"
                at += error.end
    return marked


def _byte(name: str) -> int | None:
    """Returns the byte of a token such as `<0x0A>`; None for other tokens."""
    found = _BYTE_TOKEN.fullmatch(name)
    return None if found is None else int(found[1], 16)


def _token_text(name: str, token: Any) -> str:
    """Returns the text of a token, which `transformers` writes as a text or an object."""
    text = token.get("content") if isinstance(token, Mapping) else token
    if not isinstance(text, str):
        raise ValueError(
            f"tokenizer_config.json: {name}={limits.shorten(token)}: expected a text, or an object "
            "with its content"
        )
    return text


def _chat_template(config: Mapping[str, Any]) -> str | None:
    """Returns the chat template of a config: a string, or the list entry named `default`."""
    template = config.get("chat_template")
    if template is None or isinstance(template, str):
        return template
    try:
        named = {entry["name"]: entry["template"] for entry in template}
    except (TypeError, KeyError) as error:
        raise ValueError(
            f"tokenizer_config.json: chat_template={limits.shorten(template)}: expected a text, or a "
            "list of objects with name and template"
        ) from error
    if not isinstance(named.get("default"), str):
        raise ValueError(f"tokenizer has chat templates {list(named)}, none of them is 'default'")
    return named["default"]


def _metaspaces(part: Mapping[str, Any] | None) -> Iterable[Any]:
    if part is not None and part["type"] == "Sequence":
        return [step for inner in part["pretokenizers"] for step in _metaspaces(inner)]
    return [part] if part is not None and part["type"] == "Metaspace" else []
