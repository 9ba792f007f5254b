import json

import gguf
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_jax.text.gguf_metadata import read_metadata
from agentgym_jax.text.tokenizer import Tokenizer, load_tokenizer

TEMPLATE = "{{ messages }}"


def write_gguf(path, tokenizer_json, pre="qwen2"):
    """Writes a .gguf file with the tokenizer of a tokenizer.json and two additional unused entries."""
    backend = tokenizer_json["backend"]
    vocab = sorted(backend.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    added = backend.get_added_tokens_decoder()
    kinds = [1 if i not in added else (3 if added[i].special else 4) for _, i in vocab]
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_float32("test.float", 0.5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([piece for piece, _ in vocab] + ["[UNUSED0]", "[UNUSED1]"])
    writer.add_token_types([*kinds, 5, 5])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer_json["merges"]])
    writer.add_eos_token_id(backend.token_to_id("<|im_end|>"))
    writer.add_chat_template(TEMPLATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


@pytest.fixture(scope="session")
def parts(tiny_json):
    return {
        "backend": tokenizers.Tokenizer.from_str(tiny_json),
        "merges": json.loads(tiny_json)["model"]["merges"],
    }


@pytest.fixture(scope="session")
def pair(parts, tiny_json, tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(path, parts)
    return load_tokenizer(path), Tokenizer(tiny_json, {})


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("aedor DI\n\r\t12's.é\u0301🙂<|>")))
def test_the_ids_are_those_of_the_tokenizer_json(pair, text):
    ours, reference = pair
    assert ours.encode(text) == reference.encode(text)
    assert ours.decode(ours.encode(text)) == reference.decode(reference.encode(text))


def test_special_tokens_template_and_size_are_read(pair):
    ours, reference = pair
    assert ours.special_tokens == reference.special_tokens
    # unused entries are not included in the vocabulary
    assert ours.vocab_size == reference.vocab_size
    assert ours.chat_template == TEMPLATE
    assert ours.eos_id == reference.special_id("<|im_end|>")
    assert ours.encode("<tool>") == reference.encode("<tool>")


def test_llama_cuts_digits_in_threes_and_qwen_one_by_one(parts, tmp_path):
    for pre, expected in (("llama-bpe", 2), ("qwen2", 4), ("smollm", 4)):
        write_gguf(tmp_path / f"{pre}.gguf", parts, pre)
        backend = load_tokenizer(tmp_path / f"{pre}.gguf")._text
        words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str("1234")]
        assert len(words) == expected, pre


def test_metadata_agrees_with_the_gguf_package(parts, tmp_path):
    write_gguf(tmp_path / "m.gguf", parts)
    fields = gguf.GGUFReader(str(tmp_path / "m.gguf")).fields
    ours = read_metadata(tmp_path / "m.gguf")
    names = [name for name in fields if not name.startswith("GGUF.")]
    assert list(ours) == names
    assert all(ours[name] == fields[name].contents() for name in names)


def test_an_unknown_way_of_cutting_words_is_named(parts, tmp_path):
    write_gguf(tmp_path / "m.gguf", parts, pre="mystery")
    with pytest.raises(ValueError, match="'mystery' is not one of.*qwen2"):
        load_tokenizer(tmp_path / "m.gguf")


def test_a_file_without_a_tokenizer_says_which_field_it_lacks(tmp_path):
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "qwen2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match="no field tokenizer.ggml.model"):
        load_tokenizer(tmp_path / "m.gguf")


def test_a_file_that_is_cut_off_or_something_else_is_refused(parts, tmp_path):
    write_gguf(tmp_path / "m.gguf", parts)
    whole = (tmp_path / "m.gguf").read_bytes()
    for size in (30, 200, 3000):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(ValueError, match="broken or cut off"):
            load_tokenizer(tmp_path / "cut.gguf")
    (tmp_path / "other.gguf").write_bytes(b"PK\x03\x04 not a model")
    with pytest.raises(ValueError, match="not a GGUF file"):
        load_tokenizer(tmp_path / "other.gguf")
