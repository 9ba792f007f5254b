"""A tiny tokenizer like Qwen2's, extended by the special tokens of several families."""

import json
import pathlib

import pytest
import tokenizers
from transformers import AutoTokenizer

from agentgym_jax.text.tokenizer import Tokenizer, load_tokenizer
from tests.model_files import train_like_qwen2

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
CORPUS = [
    "user\nassistant\nsystem\n",
    "There is a red door 1 1 steps in front of you.\n\nAction:\ngo to red door 1\n",
    "The door is open.\n\n\nYou see a key 2 steps to your left.\n  \nThought: go there.\n",
    " [/INST] [INST] \n\n<|user|>\n<|assistant|>\n",
] * 4


@pytest.fixture(scope="session")
def tiny_json():
    """Returns the text of a tokenizer.json like Qwen2's.

    The token `<tool>` is added but is not special.
    """
    backend = train_like_qwen2(CORPUS, SPECIALS)
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
