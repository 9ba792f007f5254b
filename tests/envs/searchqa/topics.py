"""A small corpus for the tests of deep search, with questions about invented topics and countries."""

import json
import re

# Passages of the searches that were recorded from AgentGym's server.
PASSAGES = [
    {
        "id": str(i),
        "contents": f'"Topic {i}"\nTopic {i} is a place in region {i % 7}. Its main product is item '
        f"{i % 13} and it was founded in {1800 + i}.",
    }
    for i in range(60)
]
QUESTIONS = [
    {
        "id": f"t{i}",
        "question": f"What is the code word of topic {i}?",
        "golden_answers": [f"answer {i}", f"code {i}"],
        "split": "train" if i % 2 else "test",
        "kind": "single_hop",
    }
    for i in range(60)
]
# Invented names. The sentences about them are worded as in the corpus of facts, so that the
# scripted agent can parse them.
NAMES = [
    first + second
    for first in "Ardo Bel Corva Dun Estra Fen Gor Hes Ilva Jor".split()
    for second in "via mark nia land wick tia".split()
]
COUNTRIES = [
    {
        "id": f"capital-{name}",
        "contents": f'"Capital of {name}"\nThe capital of {name} is {name} City. {name} City belongs '
        f"to the country {name}.",
    }
    for name in NAMES
]
CAPITALS = len(QUESTIONS)  # index of the first question about a capital
QUESTIONS += [
    {
        "id": f"c-{name}",
        "question": f"What is the capital of {name}?",
        "golden_answers": [f"{name} City"],
        "split": "train" if i % 2 else "test",
        "kind": "single_hop",
    }
    for i, name in enumerate(NAMES)
]


def write_rows(path, rows):
    """Writes rows as JSON lines to a file; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def by_shared_words(query, topk, passages=PASSAGES):
    """Returns the `topk` passages that share most distinct words with the query, and the counts.

    Passages with equal counts keep their order.
    """

    def words(text):
        return set(re.findall(r"\w+", text.lower()))

    shared = [len(words(query) & words(passage["contents"])) for passage in passages]
    order = sorted(range(len(passages)), key=lambda i: (-shared[i], i))
    return [(passages[i], float(shared[i])) for i in order[:topk]]


def options(folder, **changes):
    """Returns options of searchqa for a corpus of these passages.

    The passages are written to the folder, and tantivy searches them.
    """
    return {
        "corpus": str(write_rows(folder / "corpus.jsonl", PASSAGES + COUNTRIES)),
        "questions": str(write_rows(folder / "questions.jsonl", QUESTIONS)),
        "engine": "tantivy",
        **changes,
    }
