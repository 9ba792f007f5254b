"""Counts the questions of the embedded corpus that the scripted expert answers; see README.md.

python -m agentgym_facts build
python experiments/2026-11-22_searchqa/expert.py --split test --results results.json
"""

import argparse
import collections
import json
import pathlib
import re
import string
import time

import bm25s
import Stemmer

from agentgym_facts import store
from agentgym_facts.expert import Expert

TOP = 3


class Search:
    """Search with bm25s over all passages, like the environment's default engine."""

    def __init__(self, folder):
        self.ids, self.texts = [], []
        for row in store.read_rows(folder / store.PASSAGES):
            self.ids.append(row["id"])
            self.texts.append(row["contents"])
        self._stemmer = Stemmer.Stemmer("english")
        self._index = bm25s.BM25(backend="numba")
        self._index.index(self._tokens(self.texts), show_progress=False)

    def _tokens(self, texts):
        return bm25s.tokenize(texts, stopwords="en", stemmer=self._stemmer, show_progress=False)

    def __call__(self, query):
        found = self._index.retrieve(self._tokens([query]), k=TOP, show_progress=False)[0][0]
        return [int(i) for i in found]


def information(search, found):
    """Returns the found passages in the format of the environment's observations."""
    lines = []
    for i, row in enumerate(found):
        title, text = search.texts[row].split("\n", 1)
        lines.append(f"Doc {i + 1}(Title: {title}) {text}")
    return "\n<information>" + "\n".join(lines) + "</information>\n"


def normal(answer):
    """Returns the answer after SQuAD's normalisation."""
    plain = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def play(search, row, turns):
    """Answers one question; returns success within the turn limit, the turns taken, and the log."""
    expert, observation, log = Expert(row["question"]), "", []
    for turn in range(1, turns + 1):
        action = expert.next_action(observation)
        text = re.sub(r"</?(?:search|answer)>", "", action)
        log.append(action)
        if action.startswith("<answer>"):
            return normal(text) in {normal(a) for a in row["golden_answers"]}, turn, log
        found = search(text)
        log.append([search.ids[i] for i in found])
        observation = information(search, found)
    return False, turns, log


def main():
    """Answers all questions of a split and prints the shares of correct answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--kind")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--show-failures", action="store_true")
    options = parser.parse_args()
    folder = options.corpus or store.default_folder()
    start = time.perf_counter()
    search = Search(folder)
    print(f"indexed {len(search.ids):,} passages in {time.perf_counter() - start:.0f} s")
    groups = collections.defaultdict(lambda: [0, 0, 0])
    failures = []
    for row in store.read_rows(folder / store.QUESTIONS):
        if row["split"] != options.split or options.kind not in (None, row["kind"]):
            continue
        is_right, turns, log = play(search, row, options.turns)
        first, last = row["template"].split("/")[0], row["template"].split("/")[-1]
        kind = row["kind"]
        for group in (kind, f"{kind} from {first}", f"{kind} to {last}"):
            groups[group][0] += is_right
            groups[group][1] += 1
            groups[group][2] += turns
        if not is_right:
            failures.append(
                {key: row[key] for key in ("id", "template", "question")} | {"log": log}
            )
    table = {
        group: {
            "right": right,
            "of": of,
            "share": round(right / of, 4),
            "turns": round(turns / of, 2),
        }
        for group, (right, of, turns) in sorted(groups.items())
    }
    for group, row in table.items():
        print(
            f"{group:<45} {row['right']:>5} of {row['of']:>5}  {row['share']:.3f}  {row['turns']}"
        )
    if options.results:
        result = {"corpus": folder.name, "split": options.split, "turns": options.turns}
        result |= {"groups": table, "failures": failures}
        options.results.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
