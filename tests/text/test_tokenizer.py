import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

from agentgym_jax.text.tokenizer import Tokenizer, byte_tokenizer, load_tokenizer


def test_a_byte_is_its_own_id():
    tokenizer = byte_tokenizer()
    assert tokenizer.encode("Aé\n") == [0x41, 0xC3, 0xA9, 0x0A]
    assert tokenizer.vocab_size == 261
    assert tokenizer.special_tokens["<|im_end|>"] == 260


@given(st.text())
def test_bytes_round_trip(text):
    tokenizer = byte_tokenizer()
    assert tokenizer.encode(text) == list(text.encode("utf-8"))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_names_of_special_tokens_in_a_text_are_plain_characters():
    tokenizer = byte_tokenizer()
    assert tokenizer.encode("<|im_end|>") == list(b"<|im_end|>")
    assert tokenizer.encode_with_specials("a<|im_end|>") == [97, 260]


def test_names_of_special_tokens_in_a_text_are_tokenised_like_other_text(tiny_json):
    state = json.loads(tiny_json)
    state["added_tokens"] = []
    text = "go<|im_end|>\n<|im_start|>user\n"
    expected = Tokenizer(json.dumps(state), {}).encode(text)
    assert Tokenizer(tiny_json, {}).encode(text) == expected


def test_decoding_shows_special_tokens_and_broken_characters():
    assert byte_tokenizer().decode([65, 260, 0xC3, 66]) == "A<|im_end|>\ufffdB"


@pytest.mark.parametrize("make", [byte_tokenizer, lambda: None])
def test_a_tokenizer_round_trips_through_files(make, tiny_json, tmp_path):
    tokenizer = make() or Tokenizer(tiny_json, {"eos_token": {"content": "</s>"}})
    tokenizer.save(tmp_path / "a")
    again = load_tokenizer(tmp_path / "a")
    again.save(tmp_path / "b")
    text = "a red door</s><tool>é\n"
    assert again.encode(text) == tokenizer.encode(text)
    assert again.special_tokens == tokenizer.special_tokens
    assert again.chat_template == tokenizer.chat_template
    assert again.eos_id == tokenizer.eos_id is not None
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_save_that_ends_early_leaves_no_tokenizer(tmp_path, monkeypatch, number):
    """Checks a process that is killed while it writes the file of this number."""
    write, written = pathlib.Path.write_text, []

    def killed(path, text, **options):
        written.append(path)
        write(path, text[: len(text) // 2] if len(written) == number else text, **options)
        if len(written) == number:
            raise KeyboardInterrupt

    tokenizer = byte_tokenizer().ending_with([1])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pathlib.Path, "write_text", killed)
        tokenizer.save(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()


def test_transformers_loads_our_files(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.save(tmp_path)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    assert reference.encode("dé\n", add_special_tokens=False) == tokenizer.encode("dé\n")
    assert reference.eos_token_id == tokenizer.eos_id
    assert reference.chat_template == tokenizer.chat_template


def test_a_template_file_takes_precedence_over_the_config(tiny_json, tmp_path):
    (tmp_path / "tokenizer.json").write_text(tiny_json, encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "old"}')
    assert load_tokenizer(tmp_path).chat_template == "old"
    (tmp_path / "chat_template.jinja").write_text("new")
    assert load_tokenizer(tmp_path).chat_template == "new"


def test_the_default_of_several_templates_is_used(tiny_json):
    named = [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]
    assert Tokenizer(tiny_json, {"chat_template": named}).chat_template == "d"
    with pytest.raises(ValueError, match="none of them is 'default'"):
        Tokenizer(tiny_json, {"chat_template": named[:1]})


def test_no_space_is_added_before_a_continuation(tiny_json):
    state = json.loads(tiny_json)
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    state["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            json.loads(metaspace.__getstate__()),
            state["pre_tokenizer"]["pretokenizers"][1],
        ],
    }
    tokenizer = Tokenizer(json.dumps(state), {})
    assert tokenizer.decode(tokenizer.encode("go")) == "go"
    tokenizer = Tokenizer(json.dumps(state).replace('"first"', '"always"'), {})
    assert tokenizer.decode(tokenizer.encode("go")) == "\u2581go"


def test_a_guarded_token_is_no_longer_read_from_text(tiny_json):
    tokenizer = Tokenizer(tiny_json, {})
    (marker,) = tokenizer.encode("<tool>")
    assert tokenizer.guarding(["nothing"]) is tokenizer
    guarded = tokenizer.guarding(["x <tool> y"])
    assert marker not in guarded.encode("<tool>")
    assert guarded.special_tokens["<tool>"] == marker


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "has no tokenizer: none of tokenizer.json"),
        ({"vocab.txt": "a"}, "transformers cannot read this tokenizer"),
        ({"tokenizer.json": "{"}, "not JSON"),
        ({"tokenizer.json": '{"model": {}}'}, "needs"),
        ({"tokenizer.json": "{}", "tokenizer_config.json": "[]"}, "expected a JSON object"),
        ({"tokenizer.json": "{}", "tokenizer_config.json": "{,"}, "tokenizer_config.json is not"),
    ],
)
def test_the_error_for_a_directory_without_a_tokenizer_gives_the_reason(files, reason, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=reason):
        load_tokenizer(tmp_path)


TEXT = "a red door</s><tool><mark>é\n<s>go"
MARK = {"content": "<mark>", "lstrip": False, "normalized": False, "rstrip": False}
MARK |= {"single_word": False, "special": True}
CLASS = {"tokenizer_class": "Qwen2Tokenizer"}


def gpt2_files(state):
    """Returns the files of a byte-level tokenizer before `tokenizer.json` existed."""
    merges = "".join(f"{left} {right}\n" for left, right in state["model"]["merges"])
    return {
        "vocab.json": json.dumps(state["model"]["vocab"]),
        "merges.txt": "#version: 0.2\n" + merges,
    }


@pytest.mark.parametrize(
    ("config", "companions"),
    [
        (CLASS, {}),
        (CLASS | {"bos_token": "<s>", "sep_token": "</s>", "add_prefix_space": False}, {}),
        ({}, {"special_tokens_map.json": {"bos_token": "<s>", "cls_token": "<s>"}}),
        ({"added_tokens_decoder": {"500": MARK}}, {}),
        (CLASS | {"additional_special_tokens": ["<mark>"]}, {}),
        (CLASS, None),
    ],
)
def test_a_directory_is_read_as_transformers_reads_it(config, companions, tiny_json, tmp_path):
    files = {"tokenizer.json": tiny_json}
    if companions is None:
        files, companions = gpt2_files(json.loads(tiny_json)), {}
    for name, value in ({"tokenizer_config.json": config} | companions).items():
        files[name] = json.dumps(value)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    tokenizer, reference = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    expected = reference.encode(TEXT, add_special_tokens=False)
    assert tokenizer.encode_with_specials(TEXT) == expected
    names = reference.special_tokens_map
    names.pop("additional_special_tokens", None)
    assert tokenizer.template_variables == {name: str(token) for name, token in names.items()}
    assert {*reference.all_special_tokens} <= {*tokenizer.special_tokens}
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode_with_specials(TEXT) == expected


def test_code_of_a_tokenizer_is_not_run_and_not_asked_for(tiny_json, tmp_path, monkeypatch):
    config = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(tiny_json, encoding="utf-8")
    (tmp_path / "own.py").write_text("raise SystemExit('run')")
    monkeypatch.setattr("builtins.input", lambda text="": pytest.fail("asked"))
    with pytest.raises(ValueError, match="custom code"):
        load_tokenizer(tmp_path)


def test_a_missing_path_and_an_unknown_file_have_different_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="no tokenizer at"):
        load_tokenizer(tmp_path / "nothing")
    (tmp_path / "vocab.txt").write_text("a")
    with pytest.raises(ValueError, match="does not show the kind of tokenizer"):
        load_tokenizer(tmp_path / "vocab.txt")
