"""Text to token ids and back, from Hugging Face, sentencepiece and GGUF files, or plain bytes.

There is one class. Every format is turned into the fast `tokenizers` library, so that any
tokenizer can be saved as a Hugging Face directory.
"""

import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from agentgym_jax.text import gguf_tokenizer, sentencepiece_tokenizer
from agentgym_jax.text.template import COMPACT

_BYTES_SPECIALS = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|im_end|>")
_QWEN2_RULES = [
    {
        "type": "Split",
        "pattern": {"Regex": gguf_tokenizer.QWEN2_WORDS},
        "behavior": "Isolated",
        "invert": False,
    },
    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
]
_TEMPLATE_VARIABLES = ("bos_token", "eos_token", "pad_token", "unk_token")


class Tokenizer:
    """Encodes pieces of an episode; special tokens come from our templates only, never from text.

    `encode` treats its argument as a continuation of an episode: it adds no special tokens and no
    space that only starts a document, and reads the characters of `<|im_end|>` as characters.

    Attributes:
      chat_template: Jinja source of the conversation format; None if the files have none.
      special_tokens: name to id of the tokens that `encode` never makes.
      template_variables: `bos_token` and the like, as the template wants to read them.
    """

    def __init__(
        self, backend_json: str, config: Mapping[str, Any], *, guarded: Iterable[str] = ()
    ) -> None:
        """Builds from the contents of `tokenizer.json` and `tokenizer_config.json`.

        Args:
          backend_json: text of a `tokenizer.json`.
          config: contents of a `tokenizer_config.json`.
          guarded: added tokens that are treated as special although the file does not say so.

        Raises:
          ValueError: the JSON is not a tokenizer, or the config names several chat templates and
            none of them `default`.
        """
        self._json = backend_json
        self._config = dict(config)
        self._guarded = frozenset(guarded)
        self.chat_template = _chat_template(self._config)
        self.template_variables = {
            name: _token_text(self._config[name])
            for name in _TEMPLATE_VARIABLES
            if name in self._config and self._config[name] is not None
        }
        self._text = self._backend()
        self._text.encode_special_tokens = True  # the names of special tokens are plain text
        added = self._text.get_added_tokens_decoder()
        self._plain_added = [token.content for token in added.values() if not token.special]
        self.special_tokens: Mapping[str, int] = {
            token.content: i for i, token in sorted(added.items()) if token.special
        }
        self._forbidden = frozenset(
            i
            for name, i in self.special_tokens.items()
            if "unk_token" not in self.template_variables
            or name != self.template_variables["unk_token"]
        )
        names = "|".join(map(re.escape, self.special_tokens))
        self._names = re.compile(f"(?={names})" if names else "(?!)")
        self.vocab_size = 1 + max(self._text.get_vocab(with_added_tokens=True).values())

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size}, specials={len(self.special_tokens)})"

    def encode(self, text: str) -> list[int]:
        """Ids of a text from outside; whatever it contains, no special token comes out.

        The one exception is `unk_token`, which stands for characters that have no token.
        """
        ids = self._text.encode(text, add_special_tokens=False).ids
        if self._forbidden.isdisjoint(ids):
            return ids
        # A unigram model finds control tokens in its vocabulary like other words: break names up.
        breaks = [match.start() + 1 for match in self._names.finditer(text)]
        parts = [text[i:j] for i, j in itertools.pairwise([0, *breaks, len(text)])]
        return [i for part in parts for i in self._text.encode(part, add_special_tokens=False).ids]

    def encode_with_specials(self, text: str) -> list[int]:
        """Ids of a text of our own, in which the names of special tokens mean these tokens.

        Slow, as it builds the tokenizer again: for checks.
        """
        return self._backend().encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special tokens appear by name, broken UTF-8 as U+FFFD."""
        return self._text.decode(list(ids), skip_special_tokens=False)

    def special_id(self, name: str) -> int:
        """Id of a special token such as `<|im_end|>`.

        Raises:
          KeyError: there is no such special token.
        """
        if name not in self.special_tokens:
            raise KeyError(f"no special token {name!r}; there are {list(self.special_tokens)}")
        return self.special_tokens[name]

    @property
    def eos_id(self) -> int | None:
        """Id of the `eos_token` of the config, which ends a document; None if not set."""
        if "eos_token" not in self.template_variables:
            return None
        return self._text.token_to_id(self.template_variables["eos_token"])

    @property
    def is_qwen2(self) -> bool:
        """True if the class `Qwen2Tokenizer` of `transformers` makes the same ids.

        That class keeps vocabulary and merges of a `tokenizer.json` and cuts words by a rule of its
        own. transformers 5 takes it for every model of type qwen2, whatever the files say.
        """
        state = json.loads(self._json)
        model, cut = state["model"], state["pre_tokenizer"]
        if model["type"] != "BPE" or cut is None or cut["type"] != "Sequence":
            return False
        options = (
            "unk_token",
            "continuing_subword_prefix",
            "end_of_word_suffix",
            "byte_fallback",
            "ignore_merges",
        )
        return (
            not any(model[name] for name in options if name in model)
            and state["normalizer"] == {"type": "NFC"}
            and [_rule(step) for step in cut["pretokenizers"]] == _QWEN2_RULES
        )

    def with_chat_template(self, template: str) -> "Tokenizer":
        """The same tokenizer with another conversation format (Jinja source)."""
        config = self._config | {"chat_template": template}
        return Tokenizer(self._json, config, guarded=self._guarded)

    def guarding(self, texts: Iterable[str]) -> "Tokenizer":
        """The same tokenizer, in which every added token that occurs in the texts is special.

        Some files do not mark the role markers of their own template as special, so that a user
        could write them.
        """
        texts = list(texts)
        names = {name for name in self._plain_added if any(name in text for text in texts)}
        if not names:
            return self
        return Tokenizer(self._json, self._config, guarded=self._guarded | names)

    def save(self, directory: str | pathlib.Path) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json`, which `transformers` loads.

        The class is always the general one, which takes all rules from `tokenizer.json`. Those of
        single model families bring rules of their own.
        """
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "tokenizer.json").write_text(self._json, encoding="utf-8")
        # Without these names the general class gives decoders a `token_type_ids` they refuse.
        inputs = {"model_input_names": ["input_ids", "attention_mask"]}
        config = inputs | self._config | {"tokenizer_class": "PreTrainedTokenizerFast"}
        if self.chat_template is not None:
            config["chat_template"] = self.chat_template
        text = json.dumps(config, indent=2, ensure_ascii=False, sort_keys=True)
        (directory / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")

    def _backend(self) -> tokenizers.Tokenizer:
        """The fast tokenizer, set up to encode continuations without cutting or padding."""
        return tokenizers.Tokenizer.from_str(_as_continuation(self._json, self._guarded))


def load_tokenizer(source: str | pathlib.Path) -> Tokenizer:
    """Reads a tokenizer.

    Args:
      source: a Hugging Face directory (with `tokenizer.json`, or only `tokenizer.model`), a
        sentencepiece `.model` file, a `.gguf` file, or the word `bytes`.

    Raises:
      FileNotFoundError: there is nothing at that path.
      ValueError: what is there is no tokenizer that we can read.
    """
    if source == "bytes":
        return byte_tokenizer()
    path = pathlib.Path(source)
    if path.is_dir():
        return _load_directory(path)
    if not path.exists():
        raise FileNotFoundError(
            f"no tokenizer at {path}: expected a Hugging Face directory, a .model or .gguf file, "
            "or the word bytes"
        )
    if path.suffix == ".gguf":
        return Tokenizer(*gguf_tokenizer.read(path))
    if path.suffix == ".model":
        return Tokenizer(*sentencepiece_tokenizer.read(path))
    raise ValueError(
        f"{path}: cannot tell the kind of tokenizer from the name; expected a directory, "
        "*.model (sentencepiece) or *.gguf"
    )


def byte_tokenizer() -> Tokenizer:
    """One token per byte (id = byte) and five special tokens: for tests and toy models."""
    alphabet = _byte_alphabet()
    vocab = {alphabet[byte]: byte for byte in range(256)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [tokenizers.AddedToken(name, special=True, normalized=False) for name in _BYTES_SPECIALS]
    )
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": COMPACT}
    return Tokenizer(backend.to_str(), config)


def _load_directory(path: pathlib.Path) -> Tokenizer:
    """Hugging Face directory; its own chat template file wins over the one in the config."""
    config: dict[str, Any] = {}
    if (path / "tokenizer_config.json").exists():
        config = _read_json(path / "tokenizer_config.json")
    if (path / "chat_template.jinja").exists():
        config["chat_template"] = (path / "chat_template.jinja").read_text(encoding="utf-8")
    if (path / "tokenizer.json").exists():
        return Tokenizer((path / "tokenizer.json").read_text(encoding="utf-8"), config)
    if (path / "tokenizer.model").exists():
        backend_json, names = sentencepiece_tokenizer.read(path / "tokenizer.model")
        return Tokenizer(backend_json, names | config)
    raise ValueError(
        f"{path} has neither tokenizer.json nor tokenizer.model. Write tokenizer.json with "
        "transformers: AutoTokenizer.from_pretrained(directory).save_pretrained(directory)"
    )


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _chat_template(config: Mapping[str, Any]) -> str | None:
    """The conversation format of a config: a string, or the one named `default` in a list."""
    if "chat_template" not in config or config["chat_template"] is None:
        return None
    template = config["chat_template"]
    if isinstance(template, str):
        return template
    named = {entry["name"]: entry["template"] for entry in template}
    if "default" not in named:
        raise ValueError(f"tokenizer has chat templates {sorted(named)}, none of them is 'default'")
    return named["default"]


def _token_text(value: str | Mapping[str, Any]) -> str:
    """Name of a token that a config gives as a string or as an object with `content`."""
    return value if isinstance(value, str) else value["content"]


def _as_continuation(backend_json: str, guarded: frozenset[str]) -> str:
    """Text of a `tokenizer.json` without what only suits whole documents, `guarded` made special."""
    try:
        state = json.loads(backend_json)
    except json.JSONDecodeError as error:
        raise ValueError(f"tokenizer.json is not JSON: {error}") from error
    keys = {"added_tokens", "model", "pre_tokenizer"}
    if not isinstance(state, dict) or not keys <= set(state):
        raise ValueError(f"tokenizer.json is not one of `tokenizers`: it needs {sorted(keys)}")
    for token in state["added_tokens"]:
        token["special"] = token["special"] or token["content"] in guarded
    for part in _metaspaces(state["pre_tokenizer"]):
        # "first" puts a space before the first piece of a text; ours are never the first.
        if part["prepend_scheme"] == "first":
            part["prepend_scheme"] = "never"
    state["truncation"] = state["padding"] = None
    return json.dumps(state, ensure_ascii=False)


def _rule(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step of a pre-tokenizer without what changes offsets alone."""
    return {key: value for key, value in step.items() if key != "trim_offsets"}


def _metaspaces(part: Mapping[str, Any] | None) -> Iterable[Any]:
    """The Metaspace steps of a pre-tokenizer, which may be a sequence of steps."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [step for inner in part["pretokenizers"] for step in _metaspaces(inner)]
    return [part] if part["type"] == "Metaspace" else []


def _byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2's)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]
