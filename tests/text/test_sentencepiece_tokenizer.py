import io

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from agentgym_jax.text.tokenizer import load_tokenizer

TEXTS = [
    "There is a red door 1 steps to your left. café 日本 {x}  two",
    "go to the blue ball 2 and pick up the key",
    "a door, a ball; the room's walls",
] * 20


@pytest.fixture(scope="session", params=["bpe", "unigram"])
def models(request, tmp_path_factory):
    """Returns the path of a .model file and sentencepiece's reader of this file."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=out,
        model_type=request.param,
        vocab_size=340,
        hard_vocab_limit=False,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.model"
    path.write_bytes(out.getvalue())
    return path, sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


@pytest.fixture(scope="session")
def pair(models):
    path, reference = models
    return load_tokenizer(path), reference


SLICES = st.builds(
    lambda text, start, stop: text[start:stop],
    st.sampled_from(TEXTS[:3]),
    st.integers(0, 30),
    st.integers(0, 60),
)
CHARACTERS = st.text(alphabet=st.sampled_from("aedor thel1. \n\té日🙂<s>"))


@given(st.lists(SLICES | CHARACTERS, max_size=4).map("".join))
def test_the_ids_equal_those_of_sentencepiece_without_the_added_space(pair, text):
    ours, reference = pair
    # sentencepiece itself adds the leading space
    expected = reference.encode(text) if text else []
    assert (ours.encode(" " + text) if text else []) == expected
    assert ours.decode(ours.encode(text)) == text


def test_control_tokens_are_special_and_never_made_from_text(pair):
    ours, reference = pair
    assert ours.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert ours.vocab_size == reference.vocab_size()
    assert not {1, 2} & set(ours.encode("<s>a</s>"))
    assert ours.eos_id == 2


def test_a_directory_with_only_the_model_file_is_enough(pair, models):
    path, _ = models
    assert load_tokenizer(path.parent).encode("a red door") == pair[0].encode("a red door")


def test_repeated_spaces_are_merged_if_the_model_requires_it(tmp_path):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=out,
        vocab_size=80,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (tmp_path / "m.model").write_bytes(out.getvalue())
    reference = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    text = "a  red \u210c door"  # NFKC replaces this letter by an H
    assert load_tokenizer(tmp_path / "m.model").encode(" " + text) == reference.encode(text)


def test_a_file_that_is_not_a_model_is_refused(tmp_path):
    (tmp_path / "m.model").write_bytes(b"\xff\xff not a model")
    with pytest.raises(ValueError, match="not a sentencepiece model"):
        load_tokenizer(tmp_path / "m.model")
