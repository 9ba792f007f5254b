"""Questions about films and people, all of them invented, with the answers of TMDB's API."""

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_envs import data_files
from agentgym_envs.base.served import ServedEnvironment
from agentgym_envs.tools.actions import ToolError
from agentgym_envs.tools.places import PLACES
from agentgym_envs.tools.served import tool_environment
from agentgym_envs.tools.tasks import Call, Task, TaskSet, Template, draw, question
from agentgym_envs.tools.world import AskingWorld, World

_FIRST = "Ada Bruno Clara Dario Elif Farid Greta Hugo Ines Jonas Kira Leo Mara Nils Olga".split()
_LAST = "Abara Brandt Castell Dimov Eklund Ferro Grimm Halvorsen Ito Jansen Kovac".split()
_ADJECTIVES = "Amber Broken Crimson Distant Endless Frozen Golden Hollow".split()
_NOUNS = "Anchor Bridge Comet Harbor Lantern Orchard River Signal".split()
_GENRES = "Action Comedy Drama Fantasy Horror Mystery Romance Thriller".split()
_KEYWORDS = "archive clockmaker desert duel eclipse island lighthouse orphan storm twins".split()
_COMPANIES = ("Blue Heron Pictures", "Northgate Films", "Quarry Lane Studios", "Tidewater Media")
_NATIONS = {"CA": "Canada", "DE": "Germany", "IT": "Italy", "JP": "Japan", "NO": "Norway"}
# code of the language, its name, its English name, and a summary in it, by country
_LANGUAGES = {
    "DE": ("de", "Deutsch", "German", "Ein Film über {} und {}."),
    "NL": ("nl", "Nederlands", "Dutch", "Een film over {} en {}."),
    "US": ("en", "English", "English", "A film about {} and {}."),
}
_JOBS = ("Director", "Producer", "Writer", "Editor", "Original Music Composer")
_UNKNOWN = (
    '{"success":false,"status_code":34,'
    '"status_message":"The resource you requested could not be found."}'
)
_Facts = dict[str, Any]  # results of the tools for one film or person, by the tool's name


def _date(rng: random.Random, years: range) -> str:
    return f"{rng.choice(years)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"


def _person(rng: random.Random, name: str) -> _Facts:
    place, handle = rng.choice(PLACES), name.replace(" ", "").lower()
    return {
        "get_search_person": [{"id": rng.randrange(1000, 10**6), "name": name}],
        "get_person_details": {
            "name": name,
            "biography": f"{name} was born in {place.name} and works in films.",
            "birthday": _date(rng, range(1940, 2000)),
            "place_of_birth": f"{place.name}, {place.country}",
        },
        "get_person_cast": {"cast": []},
        "get_person_crew": {"crew": []},
        "get_person_external_ids": {
            "imdb_id": f"nm{rng.randrange(10**6, 10**7)}",
            "facebook_id": handle,
            "instagram_id": f"{handle}_films",
            "twitter_id": None,
        },
    }


def _film(rng: random.Random, title: str) -> _Facts:
    number, words, nations = rng.randrange(1000, 10**6), rng.sample(_KEYWORDS, 4), sorted(_NATIONS)
    texts = {land: text.format(*words) for land, (_, _, _, text) in _LANGUAGES.items()}
    return {
        "get_search_movie": [{"id": number, "overview": texts["US"], "title": title}],
        "get_movie_details": {
            "title": title,
            "budget": rng.randrange(1, 200) * 10**6,
            "genres": [{"id": _GENRES.index(g), "name": g} for g in rng.sample(_GENRES, 2)],
            "revenue": rng.randrange(1, 900) * 10**6,
            "vote_average": rng.randrange(30, 95) / 10,
            "release_date": _date(rng, range(1970, 2023)),
        },
        "get_movie_production_companies": {
            "production_companies": [
                {"id": len(n), "logo_path": None, "name": n, "origin_country": rng.choice(nations)}
                for n in rng.sample(_COMPANIES, 2)
            ]
        },
        "get_movie_production_countries": {
            "production_countries": [
                {"iso_3166_1": code, "name": _NATIONS[code]} for code in rng.sample(nations, 2)
            ]
        },
        "get_movie_keywords": {"keywords": words},
        "get_movie_alternative_titles": {
            "id": number,
            "titles": [{"iso_3166_1": "US", "title": f"{title}: {words[2].title()}", "type": ""}],
        },
        "get_movie_translation": {
            "id": number,
            "translations": [
                {"iso_3166_1": land, "iso_639_1": code, "name": name, "english_name": english}
                | {"data": {"overview": texts[land]}}
                for land, (code, name, english, _) in _LANGUAGES.items()
            ],
        },
    }


def _join(rng: random.Random, film: _Facts, people: Sequence[_Facts]) -> None:
    """Gives a film its cast and crew, and the people their roles and jobs."""
    (entry,) = film["get_search_movie"]
    roles = [("cast", "character", f"{name} the Elder") for name in rng.sample(_FIRST, 4)]
    roles += [("crew", "job", job) for job in _JOBS]
    film |= {"get_movie_cast": {"cast": []}, "get_movie_crew": {"crew": []}}
    for person, (kind, word, role) in zip(rng.sample(people, len(roles)), roles, strict=True):
        (found,) = person["get_search_person"]
        film[f"get_movie_{kind}"][kind].append({**found, word: role})
        shown = {"id": entry["id"], "title": entry["title"], word: role}
        person[f"get_person_{kind}"][kind] = [*person[f"get_person_{kind}"][kind], shown][:10]


@functools.cache
def _everything() -> tuple[dict[str, _Facts], dict[str, _Facts]]:
    """Returns the facts of all films by title, and of all people by name."""
    rng = random.Random("movie")
    names = rng.sample([f"{first} {last}" for first in _FIRST for last in _LAST], 80)
    people = {name: _person(rng, name) for name in names}
    films = {f"The {a} {n}": _film(rng, f"The {a} {n}") for a in _ADJECTIVES for n in _NOUNS}
    for film in films.values():
        _join(rng, film, list(people.values()))
    return films, people


def _tool(kind: str, name: str, text: str) -> Callable[..., Any]:
    """Returns a tool that shows facts of the film or person with an id."""

    @functools.cache
    def results() -> dict[str, Any]:
        table = _everything()[("movie", "person").index(kind)].values()
        return {str(facts[f"get_search_{kind}"][0]["id"]): facts[name] for facts in table}

    def of_movie(self: World, movie_id: str) -> Any:
        return results().get(movie_id, _UNKNOWN)

    def of_person(self: World, person_id: str) -> Any:
        return results().get(person_id, _UNKNOWN)

    tool = of_movie if kind == "movie" else of_person
    tool.__doc__ = text
    return tool


class MovieWorld(AskingWorld):
    """The films and people; nothing changes."""

    tools = (
        *("get_search_movie", "get_movie_details", "get_movie_production_companies"),
        *("get_movie_production_countries", "get_movie_cast", "get_movie_crew"),
        *("get_movie_keywords", "get_search_person", "get_person_details", "get_person_cast"),
        *("get_person_crew", "get_person_external_ids", "get_movie_alternative_titles"),
        *("get_movie_translation", "check_valid_actions", "finish"),
    )

    def samples(self) -> dict[str, list[Any]]:
        """Returns arguments with which the tools can be called."""
        film, person = next(zip(*map(dict.items, _everything()), strict=False))
        return {
            "movie_name": [film[0], "The Amber"],
            "movie_id": [str(film[1]["get_search_movie"][0]["id"]), "12"],
            "person_name": [person[0], "Nobody"],
            "person_id": [str(person[1]["get_search_person"][0]["id"]), "12"],
            "answer": ["unknown"],
        }

    def get_search_movie(self, movie_name: str) -> Any:
        """Id, title and summary of a film."""
        found = _search(_everything()[0], movie_name)
        if found is None:  # AgentGym takes the first of no results
            raise ToolError("IndexError", "list index out of range")
        return found["get_search_movie"]

    def get_search_person(self, person_name: str) -> Any:
        """Id and name of a person."""
        found = _search(_everything()[1], person_name)
        return [] if found is None else found["get_search_person"]


for _name, _text in {
    "get_movie_details": "Budget, genres, revenue, vote and date of release.",
    "get_movie_production_companies": "Companies that made it.",
    "get_movie_production_countries": "Countries it was made in.",
    "get_movie_cast": "Its leading actors and their roles.",
    "get_movie_crew": "Its director, producer, writer and others.",
    "get_movie_keywords": "Its keywords.",
    "get_movie_alternative_titles": "Its other titles.",
    "get_movie_translation": "Its summary in other languages.",
    "get_person_details": "Biography, birthday, place of birth.",
    "get_person_cast": "Up to ten roles the person played.",
    "get_person_crew": "Up to ten jobs behind the camera.",
    "get_person_external_ids": "Ids on other sites.",
}.items():
    setattr(MovieWorld, _name, _tool(_name.split("_")[1], _name, _text))


def _search(table: Mapping[str, _Facts], words: str) -> _Facts | None:
    """Returns the entry of this name, or the first whose name contains the words."""
    wanted = words.strip().lower()
    exact = (name for name in table if name.lower() == wanted)
    name = next(exact, None) or next((n for n in table if wanted and wanted in n.lower()), None)
    return None if name is None else table[name]


def _look(facts: _Facts, *tools: str) -> list[Call]:
    """Returns the calls that find a film or a person, and ask for these facts."""
    kind, name = ("movie", "title") if "get_search_movie" in facts else ("person", "name")
    (found,) = facts[f"get_search_{kind}"]
    search: Call = (f"get_search_{kind}", {f"{kind}_name": found[name]})
    return [search, *((tool, {f"{kind}_id": str(found["id"])}) for tool in tools)]


def _read(result: Any, path: Sequence[str]) -> Any:
    if not path:
        return result
    if path[0] == "*":
        return [_read(entry, path[1:]) for entry in result]
    return _read(result[int(path[0]) if path[0].isdigit() else path[0]], path[1:])


def _template(goal: str, tool: str, path: str, job: str = "") -> Template:
    """Returns a template of `movie.toml`."""

    def template(rng: random.Random) -> Task:
        title, facts = rng.choice(list(_everything()[0].items()))
        calls = _look(facts, "get_movie_crew" if job else tool)
        if job:
            crew = facts["get_movie_crew"]["crew"]
            facts = _everything()[1][next(m["name"] for m in crew if m["job"] == job)]
            calls += _look(facts, tool)[1:]
        return question(goal.format(title), calls, _read(facts[tool], path.split()))

    return template


def _released_first(rng: random.Random) -> Task | None:
    pair = rng.sample(list(_everything()[0].items()), 2)
    dates = [film["get_movie_details"]["release_date"] for _, film in pair]
    if dates[0] == dates[1]:
        return None
    return question(
        f"Which film was released first, {pair[0][0]} or {pair[1][0]}? Please answer me with the "
        "title as a string.",
        [call for _, film in pair for call in _look(film, "get_movie_details")],
        pair[dates.index(min(dates))][0],
    )


@functools.cache
def _tasks() -> TaskSet:
    splits = {
        split: {name: _template(**row) for name, row in rows.items()}
        for split, rows in data_files.beside(__file__).items()
    }
    splits["test"]["released_first"] = _released_first
    return draw("movie", 25, **splits)


def make_served_environment() -> ServedEnvironment:
    """Returns the film tools as a served environment."""
    return tool_environment(
        "movie",
        MovieWorld,
        _tasks(),
        max_turns=12,
        about="Answer a question about films and the people who make them.",
        hints="Ids always come from get_search_movie, get_search_person, casts and crews; they are "
        "strings.",
        example='get_search_person with Action Input: {"person_name": "Agnes Varda"}',
    )
