"""The dense engine: a sentence encoder in JAX, tested on a small model with random weights."""

import json
import math
import re

import numpy as np
import pytest

from tests.envs.searchqa import topics

for package in ("jax", "safetensors", "tokenizers"):
    pytest.importorskip(package, reason="the dense engine needs jax, safetensors and tokenizers")
from safetensors.numpy import load_file, save_file  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

from agentgym_envs.base.environment import SetupError  # noqa: E402
from agentgym_envs.searchqa.engines import dense  # noqa: E402
from agentgym_envs.searchqa.engines.corpus_file import Corpus  # noqa: E402
from agentgym_envs.searchqa.engines.encoder import Encoder  # noqa: E402

WIDTH, HEADS, LAYERS, INNER, POSITIONS = 16, 2, 1, 32, 300
WORDS = sorted({w for row in topics.PASSAGES for w in re.findall(r"\w+", row["contents"])})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Returns the folder of a BERT model with one layer."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(0)
    vocabulary = {word: i for i, word in enumerate(["[UNK]", "query", "passage", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "model_type": "bert",
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": POSITIONS,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {
        "embeddings.word_embeddings.weight": (len(vocabulary), WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm": (WIDTH,),
    }
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value"):
            shapes[f"{at}.{part}"] = (WIDTH, WIDTH)
        shapes[f"{at}.attention.output.dense"] = (WIDTH, WIDTH)
        shapes[f"{at}.intermediate.dense"] = (INNER, WIDTH)
        shapes[f"{at}.output.dense"] = (WIDTH, INNER)
        shapes[f"{at}.attention.output.LayerNorm"] = shapes[f"{at}.output.LayerNorm"] = (WIDTH,)
    weights = {}
    for name, shape in shapes.items():
        if name.endswith(".weight"):
            weights[name] = rng.normal(size=shape).astype(np.float32)
        else:
            weights[f"{name}.weight"] = rng.normal(0.5, 0.4, size=shape).astype(np.float32)
            weights[f"{name}.bias"] = rng.normal(0, 0.1, size=shape[0]).astype(np.float32)
    save_file(weights, folder / "model.safetensors")
    return folder


def reference(folder, ids):
    """Returns BERT's output for one text.

    The output is computed token by token and head by head in double precision.
    """
    w = {
        name: value.astype(np.float64)
        for name, value in load_file(folder / "model.safetensors").items()
    }

    def linear(x, name):
        return w[f"{name}.weight"] @ x + w[f"{name}.bias"]

    def normed(x, name):
        return (x - x.mean()) / x.std() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def gelu(x):
        return np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x])

    e = "embeddings"
    states = [
        normed(
            w[f"{e}.word_embeddings.weight"][token]
            + w[f"{e}.position_embeddings.weight"][place]
            + w[f"{e}.token_type_embeddings.weight"][0],
            f"{e}.LayerNorm",
        )
        for place, token in enumerate(ids)
    ]
    size = WIDTH // HEADS
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            [linear(x, f"{at}.attention.self.{part}") for x in states]
            for part in ("query", "key", "value")
        )
        new = []
        for i, x in enumerate(states):
            mixed = []
            for head in range(HEADS):
                part = slice(head * size, (head + 1) * size)
                scores = np.array([q[i][part] @ other[part] / size**0.5 for other in k])
                shares = np.exp(scores - scores.max())
                shares /= shares.sum()
                mixed.append(sum(s * other[part] for s, other in zip(shares, v, strict=True)))
            attended = linear(np.concatenate(mixed), f"{at}.attention.output.dense")
            x = normed(x + attended, f"{at}.attention.output.LayerNorm")
            inner = gelu(linear(x, f"{at}.intermediate.dense"))
            new.append(normed(x + linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm"))
        states = new
    mean = np.mean(states, axis=0)
    return mean / np.linalg.norm(mean)


def test_the_encoder_equals_a_plain_implementation_for_any_padding(model):
    texts = ["Topic 3 is a place", "Its main product is item 7 and it was founded", "region 5"]
    encoder = Encoder(model)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    expected = [reference(model, tokenizer.encode(text).ids) for text in texts]
    np.testing.assert_allclose(encoder.queries(texts), expected, atol=2e-5)
    # batches of other shapes give the same vectors
    for text, vector in zip(texts, expected, strict=True):
        np.testing.assert_allclose(encoder.queries([text])[0], vector, atol=2e-5)


def test_queries_for_an_e5_model_get_their_prefix(model, tmp_path):
    e5 = tmp_path / "e5-tiny"
    e5.mkdir()
    for path in model.iterdir():
        (e5 / path.name).write_bytes(path.read_bytes())
    plain, told = Encoder(model), Encoder(e5)
    text = "region 5"
    np.testing.assert_allclose(told.queries([text]), plain.queries([f"query: {text}"]), atol=1e-6)
    assert np.abs(told.queries([text]) - told.passages([text])).max() > 1e-3


def test_each_passage_is_nearest_to_itself_and_scores_are_sorted(model, tmp_path):
    corpus = Corpus(topics.write_rows(tmp_path / "corpus.jsonl", topics.PASSAGES), tmp_path)
    dense.build(corpus, tmp_path, str(model))
    engine = dense.open_index(tmp_path, str(model))
    asked = [row["contents"] for row in topics.PASSAGES]
    for number, hits in enumerate(engine.search(asked, 3)):
        scores = [score for _, score in hits]
        assert hits[0][0] == number and scores == sorted(scores, reverse=True)
        assert scores[0] == pytest.approx(1.0, abs=5e-3)  # vectors are stored in half precision
    assert [path.name for path in tmp_path.glob("*.npy") if "part" in path.name] == []


def test_an_interrupted_index_build_keeps_its_finished_parts(model, tmp_path, monkeypatch):
    monkeypatch.setattr(dense, "PART", 20)
    corpus = Corpus(topics.write_rows(tmp_path / "corpus.jsonl", topics.PASSAGES), tmp_path)
    asked = []

    class Dying(Corpus):
        def contents(self, start, end):
            asked.append(start)
            if len(asked) == 3:
                raise KeyboardInterrupt
            return super().contents(start, end)

    dying = Dying(corpus.path, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        dense.build(dying, tmp_path, str(model))
    dense.build(dying, tmp_path, str(model))
    assert asked == [0, 20, 40, 40]
    assert np.load(tmp_path / "vectors.npy").shape == (60, WIDTH)


def test_an_unreadable_model_is_reported(model, tmp_path):
    with pytest.raises(SetupError, match="lacks config.json, model.safetensors"):
        Encoder(tmp_path)
    for path in model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(SetupError, match="type 't5', expected 'bert'"):
        Encoder(tmp_path)
