from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.viewer.pieces import _as_bytes, token_pieces


def test_pieces_put_together_are_the_bytes_of_the_text(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.save(tmp_path)
    text = "a é 漢\n<|user|>"
    ids = tokenizer.encode(text)
    pieces = token_pieces(tmp_path, ids)
    assert "".join(pieces[i] for i in ids).encode("latin-1").decode() == text


def test_special_tokens_have_their_name_and_unknown_ones_nothing(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.save(tmp_path)
    end = tokenizer.special_id("<|im_end|>")
    assert token_pieces(tmp_path, [end, 99_999]) == {end: "<|im_end|>"}


def test_sentencepiece_writes_spaces_and_bytes_in_its_own_way():
    assert _as_bytes("\N{LOWER ONE EIGHTH BLOCK}door", is_byte_level=False) == b" door"
    assert _as_bytes("<0xE6>", is_byte_level=False) == b"\xe6"
    assert _as_bytes("<0xE6>", is_byte_level=True) == b"<0xE6>"


def test_a_folder_without_a_tokenizer_has_no_pieces(tmp_path):
    assert token_pieces(tmp_path, [1, 2]) == {}
