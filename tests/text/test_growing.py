"""Growing texts: equal to the text of all tokens, with linear work."""

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from agentgym_jax.text.growing import GrowingText
from agentgym_jax.text.thinking import split_thinking
from agentgym_jax.text.tokenizer import byte_tokenizer, load_tokenizer
from tests.examples import fixed

BYTES = byte_tokenizer()


@pytest.fixture(scope="module")
def sentencepiece_tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tokenizer.model"
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["the small ship sails to the ship", "a ship\n"] * 20),
            model_writer=file,
            vocab_size=290,
            hard_vocab_limit=False,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            minloglevel=2,
        )
    return load_tokenizer(path)


PIECES = ["a ", "é", "😀", "\ufffd", "word"]


@fixed(100)
@given(
    st.lists(st.sampled_from(PIECES).map(str.encode) | st.binary(max_size=4), max_size=60),
    st.lists(st.integers(1, 20), min_size=60, max_size=60),
)
def test_a_growing_text_is_the_text_of_all_tokens(parts, steps):
    tokens = list(b"".join(parts))
    growing, count = GrowingText(BYTES.decode), 0
    for step in steps:
        count += step
        text, unchanged = growing.update(tokens[:count])
        assert text == BYTES.decode(tokens[:count])
        assert 0 <= unchanged <= len(text)


@fixed(100)
@given(
    st.lists(st.sampled_from(PIECES).map(str.encode) | st.binary(max_size=4), max_size=30),
    st.lists(st.integers(1, 20), min_size=60, max_size=60),
)
def test_a_broken_byte_leaves_the_characters_beside_it(sentencepiece_tokenizer, parts, steps):
    ids = {sentencepiece_tokenizer.token_bytes(i): i for i in range(256 + 3)}
    data = b"".join(parts)
    tokens = [ids[bytes([byte])] for byte in data]
    text = sentencepiece_tokenizer.decode(tokens)
    assert text.replace("\ufffd", "") == data.decode(errors="ignore").replace("\ufffd", "")
    growing, count = GrowingText(sentencepiece_tokenizer.decode), 0
    for step in steps:
        count += step
        text, unchanged = growing.update(tokens[:count])
        assert text == sentencepiece_tokenizer.decode(tokens[:count])
        assert 0 <= unchanged <= len(text)


@pytest.mark.parametrize("text", ["the small ship sails ", "ünïcödé 😀 ", "😀", "\n"])
def test_each_report_decodes_only_the_newest_tokens(sentencepiece_tokenizer, text):
    for tokenizer in (BYTES, sentencepiece_tokenizer):
        decoded = 0

        def decode(ids, tokenizer=tokenizer):
            nonlocal decoded
            decoded += len(ids)
            return tokenizer.decode(ids)

        tokens = tokenizer.encode(text * 2000)[:4000]
        growing = GrowingText(decode)
        for count in range(8, len(tokens) + 1, 8):
            found, _ = growing.update(tokens[:count])
        assert found == tokenizer.decode(tokens[:count])
        assert decoded < 40 * len(tokens)


@pytest.mark.parametrize("text", ["the ship", "ünïcödé 😀", "a\n\n  b"])
def test_the_bytes_of_tokens_join_to_the_text(sentencepiece_tokenizer, text):
    for tokenizer in (BYTES, sentencepiece_tokenizer):
        ids = tokenizer.encode(text)
        joined = b"".join(map(tokenizer.token_bytes, ids)).decode()
        assert joined.removeprefix(" ") == text  # sentencepiece may begin with a space
    special = BYTES.special_tokens["<|im_end|>"]
    assert BYTES.token_bytes(special) == b"<|im_end|>"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("go", "go"),
        ("<think>\na\n</think>\n\ngo", "\n\ngo"),
        ("opened by the prompt</think>go", "go"),
        ("<think>a</think>b</think>go", "go"),
        ("<think>never closed: go", ""),
        ("say <think>", "say <think>"),
    ],
)
def test_thinking_ends_after_its_last_end(text, rest):
    thinking, found = split_thinking(text)
    assert found == rest
    assert thinking + found == text
