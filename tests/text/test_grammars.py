"""Grammars of answers: masks of tokens, the end of an answer, limits and errors."""

import numpy as np
import pytest

from agentgym_jax.text import grammars
from agentgym_jax.text.grammars import Grammars
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.text.train_tokenizer import train_tokenizer

TOKENIZER = byte_tokenizer()
STOPS = [TOKENIZER.special_tokens["<|im_end|>"], TOKENIZER.special_tokens["<|endoftext|>"]]
VOCAB = 300  # larger than the tokenizer
COMPILER = Grammars(TOKENIZER, STOPS, VOCAB)


def allowed(matcher):
    """Returns the ids that a mask allows."""
    bits = np.unpackbits(matcher.allowed().view(np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def characters(matcher):
    """Returns the allowed characters, and whether the answer may end."""
    ids = allowed(matcher)
    assert set(STOPS) <= set(ids) or set(STOPS).isdisjoint(ids)
    return "".join(chr(i) for i in ids if i not in STOPS), STOPS[0] in ids


def test_masks_follow_the_grammar_to_its_end():
    matcher = COMPILER.compile('start: "a" /[bc]/ "d"?')
    assert characters(matcher) == ("a", False)
    matcher.advance(ord("a"))
    assert characters(matcher) == ("bc", False)
    matcher.advance(ord("c"))
    assert characters(matcher) == ("d", True)
    matcher.advance(ord("d"))
    assert characters(matcher) == ("", True)
    matcher.advance(STOPS[1])
    assert not matcher.error


def test_matchers_of_one_grammar_are_independent():
    first, second = (COMPILER.compile('start: "xy" | "z"') for _ in range(2))
    first.advance(ord("x"))
    assert characters(first) == ("y", False)
    assert characters(second) == ("xz", False)


def test_only_stop_tokens_among_special_ones_are_ever_allowed():
    ids = allowed(COMPILER.compile("start: /(?s:.*)/"))
    assert set(ids) & set(TOKENIZER.special_tokens.values()) == set(STOPS)
    assert max(ids) < TOKENIZER.vocab_size


def test_a_vocabulary_that_fills_its_last_word_has_a_mask(tmp_path):
    texts = ["go to the red ball, then pick up the yellow key and open a blue door"] * 9
    tokenizer = train_tokenizer(
        texts, vocab_size=288, pretokenizer_pattern=r"\w+|\s", out=tmp_path / "tokenizer"
    )
    assert tokenizer.vocab_size == 288
    stop = tokenizer.special_tokens["<|im_end|>"]
    matcher = Grammars(tokenizer, [stop], 288).compile('start: "go"?')
    assert len(matcher.allowed()) == 9
    assert {tokenizer.decode([i]) for i in allowed(matcher)} >= {"g", tokenizer.decode([stop])}


@pytest.mark.parametrize(
    "grammar",
    [
        "",
        "start: x",
        'start: "a',
        "start: /(/",
        'start: %json {"type": "word"}',
        'start: %json {"not": {}}',
        'start: %json {"$ref": "http://127.0.0.1/schema"}',
        "start: " + "(" * 50_000 + '"a"' + ")" * 50_000,
        "start: %json " + '{"items":' * 5000 + "{}" + "}" * 5000,
        'start: "' + "a" * grammars.MAX_CHARACTERS + '"',
        "start: %json {" + ",".join('"$ref": "#"' for _ in range(grammars.MAX_RULES + 1)) + "}",
    ],
    ids=str.__len__,
)
def test_invalid_and_large_grammars_are_refused(grammar):
    with pytest.raises(ValueError):
        COMPILER.compile(grammar)


def test_long_chains_of_rules_and_references_compile_without_a_crash():
    n = grammars.MAX_RULES - 1
    rules = "\n".join(f"r{i}: r{i + 1}" for i in range(n))
    assert characters(COMPILER.compile(f'start: r0\n{rules}\nr{n}: "a"')) == ("a", False)
    chain = ", ".join(f'"d{i}": {{"$ref": "#/$defs/d{i + 1}"}}' for i in range(n))
    schema = f'{{"$ref": "#/$defs/d0", "$defs": {{{chain}, "d{n}": {{"const": 5}}}}}}'
    assert characters(COMPILER.compile(f"start: %json {schema}")) == ("5", False)


def test_a_grammar_that_becomes_too_large_ends_the_answer_with_an_error():
    matcher = COMPILER.compile("start: /(a?){2000}a{2000}/")
    assert characters(matcher) == ("a", False)
    matcher.advance(ord("a"))
    ids = allowed(matcher)
    assert set(ids) == set(STOPS)
    assert matcher.error
