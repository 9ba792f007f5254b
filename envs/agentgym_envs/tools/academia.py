"""Questions about papers that cite each other and authors who wrote together, all invented."""

import functools
import itertools
import random
from typing import Any

from agentgym_envs.base.served import ServedEnvironment
from agentgym_envs.tools.served import tool_environment
from agentgym_envs.tools.tasks import Call, Task, TaskSet, draw, question
from agentgym_envs.tools.world import AskingWorld

_FIRST = "Anna Boris Chen Divya Emre Fatima Gustav Hana Ivan Jun Katya Luis".split()
_LAST = "Aalto Bianchi Costa Duarte Eriksen Fischer Gupta Horvat".split()
_ORGS = "Baltic Polytechnic,Delta Research,Highland University,Institute Orion,Lakeside Labs"
_METHODS = "Sparse,Robust,Causal,Federated,Recurrent,Bayesian,Contrastive,Modular".split(",")
_TOPICS = "Graph Matching,Speech Synthesis,Route Planning,Image Retrieval,Code Repair".split(",")
_USES = "in Medicine,at Scale,with Few Labels,for Robots".split(",")
_VENUES = {
    "Conference": ("ICXA", "SYMB", "NORDIC-ML"),
    "Journal": ("J. Applied Graphs", "Acta Data"),
}
_PAPERS = 90
# attributes of the nodes and of the edges of a graph, and the neighbours of its nodes
_Nodes = dict[str, dict[str, Any]]
_Edges = dict[frozenset[str], dict[str, Any]]


class _Graph:
    def __init__(self, nodes: _Nodes, edges: _Edges):
        self.nodes = nodes
        self.edges = edges
        self.neighbours: dict[str, list[str]] = {node: [] for node in nodes}
        for one, other in map(sorted, edges):
            self.neighbours[one].append(other)
            self.neighbours[other].append(one)


@functools.cache
def _graphs() -> dict[str, _Graph]:
    rng = random.Random("academia")
    names = rng.sample([f"{first} {last}" for first in _FIRST for last in _LAST], 50)
    authors = {name: {"name": name, "org": rng.choice(_ORGS.split(","))} for name in names}
    titles = [f"{m} {t} {u}" for m in _METHODS for t in _TOPICS for u in _USES]
    papers: _Nodes = {}
    cites: _Edges = {}
    writes: _Edges = {}
    for title in rng.sample(titles, _PAPERS):
        kind = rng.choice(sorted(_VENUES))
        first = rng.randrange(len(names))  # authors write with authors near them in the list
        team = [names[(first + i) % len(names)] for i in rng.sample(range(6), rng.randrange(1, 5))]
        for cited in rng.sample(sorted(papers), min(len(papers), rng.randrange(4))):
            cites[frozenset((title, cited))] = {}
        papers[title] = {
            "year": rng.randrange(1998, 2024),
            "venue": rng.choice(_VENUES[kind]),
            "n_citation": rng.randrange(200),
            "keywords": rng.sample([t.lower() for t in _TOPICS], 2),
            "doc_type": kind,
            "authors": team,
        }
        for pair in itertools.combinations(sorted(team), 2):
            edge = writes.setdefault(frozenset(pair), {"weight": 0, "collaborative_papers": []})
            edge["weight"] += 1
            edge["collaborative_papers"].append(title)
    return {"PaperNet": _Graph(papers, cites), "AuthorNet": _Graph(authors, writes)}


class AcademiaWorld(AskingWorld):
    """The graphs, and which of them are loaded."""

    tools = (
        *("loadPaperNet", "loadAuthorNet", "neighbourCheck", "paperNodeCheck", "authorNodeCheck"),
        *("authorEdgeCheck", "paperEdgeCheck", "check_valid_actions", "finish"),
    )

    def __init__(self) -> None:
        self._loaded: set[str] = set()

    def loadPaperNet(self) -> str:
        """Make PaperNet ready."""
        self._loaded.add("PaperNet")
        return "PaperNet is loaded."

    def loadAuthorNet(self) -> str:
        """Make AuthorNet ready."""
        self._loaded.add("AuthorNet")
        return "AuthorNet is loaded."

    def neighbourCheck(self, graph: str, node: str) -> Any:
        """Lists the neighbours of a paper or an author; graph is "PaperNet" or "AuthorNet"."""
        return self._refusal(graph, node) or _graphs()[graph].neighbours[node]

    def paperNodeCheck(self, node: str) -> Any:
        """Year, venue, citations, keywords, type and authors of a paper."""
        return self._refusal("PaperNet", node) or _graphs()["PaperNet"].nodes[node]

    def authorNodeCheck(self, node: str) -> Any:
        """Name and organisation of an author."""
        return self._refusal("AuthorNet", node) or _graphs()["AuthorNet"].nodes[node]

    def authorEdgeCheck(self, node1: str, node2: str) -> Any:
        """Papers that two authors wrote together."""
        return self._edge("AuthorNet", node1, node2)

    def paperEdgeCheck(self, node1: str, node2: str) -> Any:
        """Shows what joins two papers."""
        return self._edge("PaperNet", node1, node2)

    def samples(self) -> dict[str, list[Any]]:
        """Returns arguments with which the tools can be called."""
        authors, titles = (list(_graphs()[name].nodes) for name in ("AuthorNet", "PaperNet"))
        return {
            "graph": ["PaperNet", "AuthorNet"],
            "node": [titles[0], authors[0]],
            "node1": [authors[0], titles[0]],
            "node2": [authors[1], titles[1]],
            "answer": ["unknown"],
        }

    def state(self) -> dict[str, Any]:
        """Returns the graphs that are loaded."""
        return {"loaded": sorted(self._loaded)}

    def _refusal(self, graph: str, node: str) -> str:
        if graph not in _graphs():
            return f"There is no graph named {graph}."
        if graph not in self._loaded:
            return f"Please load the {graph} first."
        is_known = node in _graphs()[graph].nodes
        return "" if is_known else f"There is no node named {node} in the {graph}."

    def _edge(self, graph: str, node1: str, node2: str) -> Any:
        refusal = self._refusal(graph, node1) or self._refusal(graph, node2)
        missing = f"There is no edge between {node1} and {node2}."
        return refusal or _graphs()[graph].edges.get(frozenset((node1, node2)), missing)


_LOAD: Call = ("loadAuthorNet", {})


def _neighbours(author: str) -> Call:
    return ("neighbourCheck", {"graph": "AuthorNet", "node": author})


def _some_author(rng: random.Random) -> tuple[str, list[str]]:
    """Returns an author who has collaborators, and these."""
    neighbours = _graphs()["AuthorNet"].neighbours
    author = rng.choice([name for name in neighbours if neighbours[name]])
    return author, neighbours[author]


def _paper(text: str, key: str) -> Any:
    """Returns a template that asks for an attribute of a paper."""

    def template(rng: random.Random) -> Task:
        title, node = rng.choice(list(_graphs()["PaperNet"].nodes.items()))
        calls: list[Call] = [("loadPaperNet", {}), ("paperNodeCheck", {"node": title})]
        return question(text.format(title), calls, node[key])

    return template


def _organisation(rng: random.Random) -> Task:
    author, node = rng.choice(list(_graphs()["AuthorNet"].nodes.items()))
    goal = f"Which organization does {author} belong to? Please answer with its name."
    return question(goal, [_LOAD, ("authorNodeCheck", {"node": author})], node["org"])


def _collaborators(rng: random.Random) -> Task:
    author, found = _some_author(rng)
    goal = f"How many collaborators does {author} have? Please give me a numerical value."
    return question(goal, [_LOAD, _neighbours(author)], len(found))


def _joint_papers(rng: random.Random) -> Task:
    author, found = _some_author(rng)
    other = rng.choice(found)
    edge = _graphs()["AuthorNet"].edges[frozenset((author, other))]
    goal = f"Which papers did {author} and {other} write together? Please provide a list of titles."
    call: Call = ("authorEdgeCheck", {"node1": author, "node2": other})
    return question(goal, [_LOAD, call], edge["collaborative_papers"])


def _mutual_collaborators(rng: random.Random) -> Task | None:
    (one, near), (other, far) = _some_author(rng), _some_author(rng)
    mutual = len(set(near) & set(far))
    if one == other or not mutual:
        return None
    goal = f"How many mutual collaborators do {one} and {other} share? Please give me a number."
    return question(goal, [_LOAD, _neighbours(one), _neighbours(other)], mutual)


def _collaborators_of_the_organisation(rng: random.Random) -> Task | None:
    author, found = _some_author(rng)
    nodes = _graphs()["AuthorNet"].nodes
    same = [name for name in found if nodes[name]["org"] == nodes[author]["org"]]
    if not same or len(found) > 7:
        return None
    checks: list[Call] = [("authorNodeCheck", {"node": name}) for name in (author, *found)]
    return question(
        f"Who are the collaborators of {author} from the same organization? Please provide the "
        "names in the format ['author1', 'author2', ...].",
        [_LOAD, _neighbours(author), *checks],
        same,
    )


@functools.cache
def _tasks() -> TaskSet:
    return draw(
        "academia",
        20,
        train=dict(
            year=_paper("When was the paper {} published? Please answer with the year.", "year"),
            venue=_paper("At which venue was the paper {} published?", "venue"),
            authors=_paper("Who wrote the paper {}? Please provide a list of names.", "authors"),
            organisation=_organisation,
            collaborators=_collaborators,
            joint_papers=_joint_papers,
        ),
        test=dict(
            citations=_paper(
                "How often is the paper {} cited? Please give a number.", "n_citation"
            ),
            mutual_collaborators=_mutual_collaborators,
            collaborators_of_the_organisation=_collaborators_of_the_organisation,
        ),
    )


def make_served_environment() -> ServedEnvironment:
    """Returns the tools for papers and authors as a served environment."""
    return tool_environment(
        "academia",
        AcademiaWorld,
        _tasks(),
        max_turns=12,
        about="Answer a question about scientific papers and their authors. PaperNet joins papers "
        "that cite each other, AuthorNet people who wrote together.",
        hints="Load a graph before you ask it.",
        example='neighbourCheck with Action Input: {"graph": "AuthorNet", "node": "Ada Byron"}',
    )
