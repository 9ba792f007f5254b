"""A tiny tokenizer like Qwen2's, extended by the special tokens of several families."""

import json
import pathlib

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

from agentgym_jax.text.tokenizer import Tokenizer, load_tokenizer

TEMPLATES = pathlib.Path(__file__).parent / "templates"
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<s>",
    "</s>",
]
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = [
    "user\nassistant\nsystem\n",
    "There is a red door 1 1 steps in front of you.\n\nAction:\ngo to red door 1\n",
    "The door is open.\n\n\nYou see a key 2 steps to your left.\n  \nThought: go there.\n",
    " [/INST] [INST] \n\n<|user|>\n<|assistant|>\n",
] * 4


@pytest.fixture(scope="session")
def tiny_json():
    """Returns the text of a tokenizer.json with about 400 tokens.

    The token `<tool>` is added but is not special.
    """
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens(SPECIALS)
    backend.add_tokens([tokenizers.AddedToken("<tool>", special=False, normalized=False)])
    return backend.to_str()


def _config(template, eos):
    source = (TEMPLATES / f"{template}.jinja").read_text().rstrip("\n")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": eos,
        "chat_template": source,
    }


@pytest.fixture
def make_tokenizer(tiny_json):
    """Returns a function that makes a tokenizer from a template's name and an end-of-text token."""

    def make(template: str, eos: str = "</s>") -> Tokenizer:
        return Tokenizer(tiny_json, _config(template, eos))

    return make


@pytest.fixture(scope="session")
def make_pair(tiny_json, tmp_path_factory):
    """Returns a function that maps a template's name to two tokenizers of the same directory.

    The first tokenizer is this project's, the second is that of `transformers`.
    """
    made = {}

    def make(template: str):
        if template not in made:
            directory = tmp_path_factory.mktemp(template)
            (directory / "tokenizer.json").write_text(tiny_json, encoding="utf-8")
            config = json.dumps(_config(template, "</s>"))
            (directory / "tokenizer_config.json").write_text(config, encoding="utf-8")
            made[template] = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
        return made[template]

    return make
