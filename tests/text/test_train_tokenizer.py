import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from agentgym_jax.text import train_tokenizer as training
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.template import CHATML, COMPACT
from agentgym_jax.text.tokenizer import load_tokenizer
from agentgym_jax.text.train_tokenizer import train_tokenizer

COLOURS = ("red", "green", "blue")
THINGS = ("ball", "door")
TEXTS = [
    f"There is a {colour} {thing} {n} steps to your right, {m} ahead.\nAction:\nmove forward"
    for colour in COLOURS
    for thing in THINGS
    for n in range(4)
    for m in range(3)
]
ISOLATE = r"red|green|blue|ball|door|\d|\n|, "


def train(out, template=COMPACT, vocab_size=400, texts=TEXTS):
    return train_tokenizer(
        iter(texts), vocab_size=vocab_size, pretokenizer_pattern=ISOLATE, out=out, template=template
    )


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    return train(out), out


def test_common_phrases_are_single_tokens_and_variable_parts_are_separate(trained):
    tokenizer, _ = trained
    pieces = [tokenizer.decode([i]) for i in tokenizer.encode(TEXTS[0])]
    assert pieces == [
        "There is a ", "red", " ", "ball", " ", "0", " steps to your right", ", ", "0", " ahead.",
        "\n", "Action:", "\n", "move forward",
    ]  # fmt: skip


def test_texts_beyond_a_limit_are_not_read(tmp_path, monkeypatch):
    small = train(tmp_path / "small", texts=TEXTS[:2])
    monkeypatch.setattr(training, "_MOST_CHARACTERS", sum(map(len, TEXTS[:2])))
    large = train(tmp_path / "large", texts=TEXTS)
    assert large.encode(TEXTS[5]) == small.encode(TEXTS[5])


@given(st.text())
def test_every_text_round_trips(trained, text):
    tokenizer, _ = trained
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_same_texts_give_the_same_files(trained, tmp_path):
    train(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (trained[1] / name).read_bytes()


@pytest.mark.parametrize(
    ("template", "specials"),
    [
        (COMPACT, {"<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|im_end|>"}),
        (CHATML, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}),
    ],
)
def test_the_role_markers_of_the_template_are_special_tokens(template, specials, tmp_path):
    tokenizer = train(tmp_path, template)
    assert set(tokenizer.special_tokens) == specials
    renderer = ChatRenderer(load_tokenizer(tmp_path))
    assert renderer.stop_ids == (tokenizer.special_tokens["<|im_end|>"],)
    messages = [{"role": "user", "content": TEXTS[5]}]
    reference = AutoTokenizer.from_pretrained(tmp_path)
    expected = reference.apply_chat_template(messages, tokenize=True, add_generation_prompt=True)
    assert sum(renderer.opening(messages), []) == expected["input_ids"]


def test_the_vocabulary_is_at_most_as_large_as_requested(trained):
    assert trained[0].vocab_size <= 400


def test_a_vocabulary_without_room_for_bytes_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no room for 256 bytes and 5 special"):
        train(tmp_path, vocab_size=260)


def test_a_template_without_an_end_token_is_refused(tmp_path):
    source = "{% for m in messages %}{{ m['role'] + m['content'] + '\n' }}{% endfor %}"
    with pytest.raises(ValueError, match="special token of the form"):
        train(tmp_path, source + "{% if add_generation_prompt %}assistant{% endif %}")
