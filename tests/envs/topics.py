"""A small corpus for the tests of deep search: made-up topics and countries, and their questions."""

import json
import re

# The passages with which AgentGym's server was recorded.
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
# Worded as in the corpus of facts, which the scripted player understands.
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
CAPITALS = len(QUESTIONS)  # number of the first question about a country
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
    """JSON lines; the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def by_shared_words(query, topk, passages=PASSAGES):
    """What the recorded server found: most distinct words shared, ties by the order of passages."""

    def words(text):
        return set(re.findall(r"\w+", text.lower()))

    shared = [len(words(query) & words(passage["contents"])) for passage in passages]
    order = sorted(range(len(passages)), key=lambda i: (-shared[i], i))
    return [(passages[i], float(shared[i])) for i in order[:topk]]


def options(folder, **changes):
    """Options of searchqa with these passages, written into the folder, searched by tantivy."""
    return {
        "corpus": str(write_rows(folder / "corpus.jsonl", PASSAGES + COUNTRIES)),
        "questions": str(write_rows(folder / "questions.jsonl", QUESTIONS)),
        "engine": "tantivy",
        **changes,
    }
