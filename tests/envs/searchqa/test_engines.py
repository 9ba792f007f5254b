"""Search engines: results agree with an independent BM25, and a killed build can be resumed."""

import math
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.building import fingerprint
from agentgym_envs.searchqa.engines.corpus_file import Corpus
from agentgym_envs.searchqa.library import Library, index_of
from tests.envs.searchqa import topics
from tests.run_python import output_of

for package in ("bm25s", "numba", "Stemmer", "tantivy"):
    pytest.importorskip(package, reason='engines need: pip install -e ".[search]"')
import bm25s  # noqa: E402

from agentgym_envs.searchqa.engines import bm25, tantivy_index  # noqa: E402
from agentgym_envs.searchqa.engines.bm25_build import build  # noqa: E402
from agentgym_envs.searchqa.engines.words import Words  # noqa: E402

RNG = random.Random("engines")
NAMES = [f"w{i}" for i in range(120)]
# Passages with words of very different frequency; some passages are equal, so that their scores
# tie.
ROWS = [
    {
        "id": f"p{i}",
        "contents": f'"Passage {i % 40}"\n'
        + " ".join(NAMES[int(120 * RNG.random() ** 3)] for _ in range(5 + i % 11)),
    }
    for i in range(300)
]
ROWS += [{**row, "id": f"copy of {row['id']}"} for row in ROWS[:50]]
QUERIES = [" ".join(RNG.choices(NAMES, k=1 + i % 6)) for i in range(40)] + ["passage 7 w1 w1"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    return Corpus(topics.write_rows(path / "corpus.jsonl", ROWS), path)


@pytest.fixture(scope="module")
def parts(corpus, tmp_path_factory):
    """Returns the folder of a bm25s index that was built in four parts."""
    folder = tmp_path_factory.mktemp("parts")
    build(corpus, folder, size=100)
    return folder


def scores_of(query, k1=1.2, b=0.75):
    """Returns the BM25 scores by Lucene's formula (Robertson and Zaragoza 2009, section 3)."""
    words = Words()
    documents = [words.split(row["contents"]) for row in ROWS]
    mean = sum(map(len, documents)) / len(documents)
    scores = np.zeros(len(documents))
    for word in words.split(query):
        holding = sum(word in document for document in documents)
        rarity = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        for i, document in enumerate(documents):
            count = document.count(word)
            scores[i] += rarity * count / (count + k1 * (1 - b + b * len(document) / mean))
    return scores


def test_the_kernel_finds_the_best_passages_and_breaks_ties_by_their_position(corpus, parts):
    engine = bm25.open_index(parts, "")
    for query, hits in zip(QUERIES, engine.search(QUERIES, 7), strict=True):
        scores = scores_of(query)
        best = sorted(scores[scores > 0], reverse=True)[:7]
        assert [score for _, score in hits] == pytest.approx(best, abs=1e-4)
        for number, score in hits:
            assert score == pytest.approx(scores[number], abs=1e-4)
        places = [(-score, number) for number, score in hits]
        assert places == sorted(places) and len({number for number, _ in hits}) == len(best)


def test_the_kernel_agrees_with_bm25s(parts):
    engine, words = bm25.open_index(parts, ""), Words()
    theirs = bm25s.BM25.load(parts / "index", show_progress=False)
    for query in QUERIES:
        _, scores = theirs.retrieve(
            [list(words.split(query))], k=5, show_progress=False, backend_selection="numpy"
        )
        ours = [score for _, score in engine.search([query], 5)[0]]
        assert ours == pytest.approx([score for score in scores[0] if score > 0], abs=1e-5)


def test_a_search_does_not_affect_the_next_search(parts):
    engine = bm25.open_index(parts, "")
    alone = [engine.search([query], 3)[0] for query in QUERIES]
    assert engine.search(QUERIES[::-1], 3)[::-1] == alone
    assert engine.search(["", "nothing of this", "the of"], 3) == [[], [], []]


def test_a_search_can_return_fewer_passages_than_requested(parts):
    rare = bm25.open_index(parts, "").search(["passage w119"], 100)[0]
    assert len(rare) == 100
    ((number, _), *rest) = bm25.open_index(parts, "").search(["39"], 100)[0]
    assert {number, *(n for n, _ in rest)} == {
        i for i, row in enumerate(ROWS) if row["contents"].startswith('"Passage 39"')
    }


def test_an_index_built_in_parts_equals_one_built_at_once(corpus, parts, tmp_path):
    build(corpus, tmp_path)
    one, many = bm25.open_index(tmp_path, ""), bm25.open_index(parts, "")
    assert one.search(QUERIES, 10) == many.search(QUERIES, 10)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]  # no partial index remains


def test_a_killed_build_keeps_its_finished_parts(corpus, tmp_path):
    command = [sys.executable, "-m", "agentgym_envs.searchqa.engines.bm25_build", "--part=2"]
    command += [str(corpus.path), str(corpus.path.parent), str(tmp_path)]
    path = os.pathsep.join(filter(None, sys.path))
    child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=-3)
    deadline = time.monotonic() + 120
    while len(finished := set(tmp_path.glob("part-?????"))) < 5:
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "index").exists()
    stamps = {part: part.stat().st_mtime_ns for part in finished}
    seen = {}

    class Watched(Corpus):
        def contents(self, start, end):
            seen[start] = end
            return super().contents(start, end)

    build(Watched(corpus.path, corpus.path.parent), tmp_path, size=2)
    assert stamps and not {2 * int(part.name[5:]) for part in stamps} & set(seen)
    assert 0 < len(seen) <= 175 - len(stamps)
    assert len(bm25.open_index(tmp_path, "").search(["w0"], 5)[0]) == 5


@pytest.fixture
def tantivys(corpus, tmp_path):
    tantivy_index.build(corpus, tmp_path, "")
    return tmp_path


def test_tantivy_finds_the_passages_with_the_best_scores(tantivys, parts):
    # Tantivy rounds passage lengths to one byte, so its scores differ slightly from the formula.
    ours = bm25.open_index(parts, "").search(QUERIES, 1)
    theirs = tantivy_index.open_index(tantivys, "").search(QUERIES, 20)
    for query, (best,), hits in zip(QUERIES, ours, theirs, strict=True):
        assert best[0] in [number for number, _ in hits], query
        assert [score for _, score in hits] == sorted((s for _, s in hits), reverse=True)
    assert tantivy_index.open_index(tantivys, "").search(["", "the"], 3) == [[], []]


def test_a_tantivy_build_resumes_after_its_last_commit(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(tantivy_index, "PART", 100)
    asked = []

    class Dying(Corpus):
        def contents(self, start, end):
            asked.append(start)
            if len(asked) == 3:
                raise KeyboardInterrupt
            return super().contents(start, end)

    dying = Dying(corpus.path, corpus.path.parent)
    with pytest.raises(KeyboardInterrupt):
        tantivy_index.build(dying, tmp_path, "")
    tantivy_index.build(dying, tmp_path, "")
    assert asked == [0, 100, 200, 200, 300]
    numbers = tantivy_index.open_index(tmp_path, "").search(["passage"], len(ROWS))[0]
    assert sorted(number for number, _ in numbers) == list(range(len(ROWS)))


@pytest.mark.parametrize("engine", ["bm25s", "tantivy"])
def test_an_index_is_built_once_and_its_corpus_can_be_compressed(engine, tmp_path, capfd):
    path = tmp_path / "corpus.jsonl.gz"
    rows = topics.write_rows(tmp_path / "plain.jsonl", ROWS)
    path.write_bytes(subprocess.run(["gzip", "-c", rows], capture_output=True).stdout)
    rows.unlink()
    found = []
    for _ in range(2):
        index = index_of(path, tmp_path / "data", engine=engine, encoder="")
        index.build()
        found.append(index.open().search("passage 7", 2))
    assert found[0] == found[1] and found[0][0].title == '"Passage 7"'
    assert capfd.readouterr().err.count(f"indexing 350 passages of {path} with {engine}") == 1


def test_a_repeated_query_is_answered_from_the_cache():
    class Counting:
        asked = 0

        def search(self, queries, topk):
            self.asked += 1
            return [[(0, 1.0)] for _ in queries]

    engine = Counting()
    library = Library([topics.PASSAGES[0]], engine)
    assert library.search("a", 3) is library.search("a", 3)
    library.search("a", 2)
    assert engine.asked == 2


def test_a_search_loads_neither_jax_nor_bm25s(parts):
    program = (
        "import sys, pathlib\n"
        "from agentgym_envs.searchqa.engines import bm25\n"
        f"assert bm25.open_index(pathlib.Path({str(parts)!r}), '').search(['w0'], 1)[0]\n"
        "assert not {'jax', 'bm25s'} & set(sys.modules)\n"
    )
    output_of("-c", program, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))


@pytest.mark.parametrize(
    ("text", "stems"),
    [
        ("The cities of São Tomé", ["citi", "sao", "tome"]),
        ("Which is Poland's capital?", ["which", "poland", "s", "capit"]),
        ("snake_case U-235", ["snake", "case", "u", "235"]),
        ("", []),
    ],
)
def test_words_are_reduced_to_stems_without_case_diacritics_and_stop_words(text, stems):
    assert list(Words().split(text)) == stems


@pytest.mark.parametrize(
    "line", ["no json", "[1]", '{"id": 1}', '{"contents": "x"}', '{"id": 1, "contents": null}']
)
def test_the_error_for_an_unreadable_corpus_names_the_row(tmp_path, line):
    path = tmp_path / "corpus.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(SetupError, match="row 1 of the corpus"):
        list(Corpus(path, tmp_path).contents(0, 1))


def test_a_corpus_that_changed_after_indexing_is_refused(tmp_path):
    path = topics.write_rows(tmp_path / "corpus.jsonl", ROWS[:3])
    assert len(Corpus(path, tmp_path)) == 3
    topics.write_rows(path, ROWS[:4])
    with pytest.raises(ValueError, match="have it indexed again"):
        Corpus(path, tmp_path)


def test_a_fingerprint_depends_on_the_file_and_on_the_texts(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(5 << 20))
    first = fingerprint([path], "x")
    assert first == fingerprint([path], "x") != fingerprint([path], "y")
    with path.open("r+b") as file:
        file.seek((5 << 20) - 1)
        file.write(b"\x01")
    assert fingerprint([path], "x") != first
