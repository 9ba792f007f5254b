"""WebArena's task format (arXiv:2307.13854): what a task asks for and how it is scored.

The 812 tasks of WebArena are a file of the user's own: `task_file.py` finds it. This module only
knows the format, which the tasks of our embedded sites share. Those have three stricter rules that
WebArena does not have: `short_answer`, an address that must be the same, and `state`.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from agentgym_envs.webarena.urls import SITES, SiteUrls

STRING_MATCH = "string_match"
URL_MATCH = "url_match"
PROGRAM_HTML = "program_html"
STATE = "state"  # not WebArena's: the databases of embedded sites
EVAL_TYPES = (STRING_MATCH, URL_MATCH, PROGRAM_HTML, STATE)

EXACT_MATCH = "exact_match"
MUST_INCLUDE = "must_include"
FUZZY_MATCH = "fuzzy_match"
SHORT_ANSWER = "short_answer"  # not WebArena's: the answer and next to nothing else
NOT_POSSIBLE = "N/A"  # the answer to a task that cannot be done

LAST_PAGE = "last"  # as a target's url: the page that the agent left
FUNCTION = "func:"  # begins a url or a locator that a named function computes
SCRIPT_STARTS = ("document.", "[...document.")
ALTERNATIVES = " |OR| "
TABS = " |AND| "
URL_RULE = "GOLD in PRED"  # the only rule that WebArena has
SAME_URL_RULE = "GOLD is PRED"  # not WebArena's: part of an address is not enough
ADDED, REMOVED, CHANGED = "added", "removed", "changed"  # kinds of edits


class TaskFormatError(ValueError):
    """A task does not have WebArena's format; the message names the task and the field."""


@dataclasses.dataclass(frozen=True)
class HtmlTarget:
    """One look at a page, for `program_html`.

    Attributes:
      url: address to open; "last" for the page that the agent left; "func:.." computes one.
      locator: "" for the whole document, a script that begins with `document.` or
        `[...document.`, or "func:..".
      exact_match: what the located text must be, or None.
      must_include: what it must contain, each with alternatives between " |OR| ", or None.
      prep_actions: scripts that run in the page before the locator; their errors do not count.
    """

    url: str
    locator: str
    exact_match: str | None = None
    must_include: tuple[str, ...] | None = None
    prep_actions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ShortText:
    """A text of a row that is compared as a `short_answer`."""

    text: str


@dataclasses.dataclass(frozen=True)
class Edit:
    """One row that a task adds, removes or changes in the database of an embedded site.

    Attributes:
      site: WebArena's name of the site; that of the shop and its dashboard is `shopping`.
      table: name of the table; `sites/*/content.py` says how its rows are compared.
      kind: ADDED, REMOVED or CHANGED.
      row: column -> value or ShortText. All other columns of an added row are empty. Of a row that is
        removed or changed, enough values to know it by.
      to: the new values of a changed row.
    """

    site: str
    table: str
    kind: str
    row: Mapping[str, Any]
    to: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Answers:
    """References of `string_match`; what is None is not asked for.

    Attributes:
      exact_match: the answer.
      must_include: what the answer must contain.
      fuzzy_match: a judge must find the answer to mean each of these.
      not_possible: the task cannot be done; the answer is "N/A" or, for a judge, the reason.
      short_answer: the answer, which may stand in a short sentence.
    """

    exact_match: str | None = None
    must_include: tuple[str, ...] | None = None
    fuzzy_match: tuple[str, ...] | None = None
    not_possible: bool = False
    short_answer: str | None = None


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How a task is scored: the product of its `eval_types`.

    Attributes:
      eval_types: some of EVAL_TYPES, in the order in which they are looked at.
      answers: for string_match; None without it.
      reference_urls: alternatives for url_match.
      targets: for program_html.
      reason: why a task is not possible, for a judge.
      same_url: the address of the last page must be a reference, not only contain one.
      edits: for state: everything that the task changes.
    """

    eval_types: tuple[str, ...]
    answers: Answers | None = None
    reference_urls: tuple[str, ...] = ()
    targets: tuple[HtmlTarget, ...] = ()
    reason: str = ""
    same_url: bool = False
    edits: tuple[Edit, ...] = ()

    @property
    def needs_judge(self) -> bool:
        """Whether no verdict is possible without a judge.

        A task that cannot be done does not: the answer "N/A" is right by itself.
        """
        return self.answers is not None and self.answers.fuzzy_match is not None


@dataclasses.dataclass(frozen=True)
class WebTask:
    """One task.

    Attributes:
      task_id: its number in the file.
      sites: keys of `urls.SITES` that it plays on.
      intent: what the agent is asked to do.
      start_urls: one address per tab at the start.
      evaluation: how it is scored.
      intent_template_id: tasks of one template differ in the values alone.
      intent_template: the intent with names in place of values.
      instantiation: the values.
      storage_state: WebArena's name of the file with the cookies of the accounts, or None.
      require_login: whether somebody must be logged in; always true in WebArena.
      require_reset: whether the sites must be as new; always false in WebArena.
      geolocation: WebArena's field; always null.
    """

    task_id: int
    sites: tuple[str, ...]
    intent: str
    start_urls: tuple[str, ...]
    evaluation: Evaluation
    intent_template_id: int = 0
    intent_template: str = ""
    instantiation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    storage_state: str | None = None
    require_login: bool = True
    require_reset: bool = False
    geolocation: Mapping[str, float] | None = None

    @property
    def accounts(self) -> tuple[str, ...]:
        """Sites on which somebody is logged in, read from the name of the file of cookies.

        WebArena's files are named `<site>[.<site>]_state.json`. They can be fewer than `sites`:
        two sites on one host would overwrite each other's cookies.
        """
        if self.storage_state is None:
            return ()
        return tuple(pathlib.PurePosixPath(self.storage_state).name.split("_state")[0].split("."))

    def at(self, urls: SiteUrls) -> "WebTask":
        """This task with addresses in place of placeholders.

        Raises:
          ValueError: the task uses a site that `urls` does not have.
        """
        return read_task(urls.fill(task_row(self)))


def read_task(row: Mapping[str, Any]) -> WebTask:
    """A task from WebArena's JSON.

    Raises:
      TaskFormatError: a field is missing, has the wrong type, or says what WebArena does not know.
    """
    reader = _Reader(row, f"task {row.get('task_id', '?')}" if isinstance(row, Mapping) else "task")
    sites = reader.texts("sites")
    if not set(sites) <= set(SITES):
        raise reader.wrong("sites", f"some of {', '.join(SITES)}")
    return WebTask(
        task_id=reader.one("task_id", int),
        sites=sites,
        intent=reader.one("intent", str),
        start_urls=tuple(reader.one("start_url", str).split(TABS)),
        evaluation=_evaluation(reader.inner("eval"), reader.one("string_note", str, default="")),
        intent_template_id=reader.one("intent_template_id", int, default=0),
        intent_template=reader.one("intent_template", str, default=""),
        instantiation=reader.one("instantiation_dict", Mapping, default={}),
        storage_state=reader.one("storage_state", str, default=None),
        require_login=reader.one("require_login", bool, default=True),
        require_reset=reader.one("require_reset", bool, default=False),
        geolocation=reader.one("geolocation", Mapping, default=None),
    )


def read_tasks(rows: Any) -> list[WebTask]:
    """All tasks of a file's content; each number once.

    Raises:
      TaskFormatError: it is not a list of tasks, or a number comes twice.
    """
    if not isinstance(rows, list):
        raise TaskFormatError(f"a task file is a list of tasks, not {type(rows).__name__}")
    tasks = [read_task(row) for row in rows]
    numbers: set[int] = set()
    for task in tasks:
        if task.task_id in numbers:
            raise TaskFormatError(f"task {task.task_id} comes twice in the file")
        numbers.add(task.task_id)
    return tasks


def task_row(task: WebTask) -> dict[str, Any]:
    """The task as WebArena's JSON; `read_task` gives the same task back."""
    return {
        "sites": list(task.sites),
        "task_id": task.task_id,
        "require_login": task.require_login,
        "storage_state": task.storage_state,
        "start_url": TABS.join(task.start_urls),
        "geolocation": task.geolocation,
        "intent_template": task.intent_template,
        "instantiation_dict": dict(task.instantiation),
        "intent": task.intent,
        "require_reset": task.require_reset,
        "eval": _evaluation_row(task.evaluation),
        "intent_template_id": task.intent_template_id,
    }


_MISSING = object()
_KIND_NAMES = {str: "a string", int: "a number", bool: "true or false", list: "a list"} | {
    Mapping: "an object"
}


class _Reader:
    """Fields of a JSON object, with errors that say where and what.

    Attributes:
      place: where in the file, for errors.
    """

    def __init__(self, row: Any, place: str):
        if not isinstance(row, Mapping):
            raise TaskFormatError(f"{place} should be an object, found {row!r:.80}")
        self.place = place
        self._row = row

    def value(self, field: str) -> Any:
        """A field as it is; None if it is missing."""
        return self._row.get(field)

    def one(self, field: str, kind: type, default: Any = _MISSING) -> Any:
        """A field of one type; null counts as missing."""
        value = self._row.get(field)
        if value is None and default is not _MISSING:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong(field, _KIND_NAMES[kind])
        return value

    def texts(self, field: str, default: Any = _MISSING) -> Any:
        """A list of strings, not empty; null counts as missing."""
        value = self._row.get(field)
        if value is None and default is not _MISSING:
            return default
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise self.wrong(field, "a list of strings")
        return tuple(value)

    def inner(self, field: str) -> "_Reader":
        """An object within this one."""
        return _Reader(self.one(field, Mapping), f"{self.place}.{field}")

    def only(self, *rules: str) -> None:
        """Wants one of these fields, and no other: a rule that nobody checks makes a task easy."""
        known = ", ".join(rules)
        for field in self._row:
            if field not in rules:
                raise TaskFormatError(f"{self.place}: no rule {field!r}; rules are {known}")
        if all(self._row.get(rule) is None for rule in rules):
            raise TaskFormatError(f"{self.place} should have at least one of {known}")

    def wrong(self, field: str, expected: str) -> TaskFormatError:
        """The error for a field."""
        found = f"{self._row[field]!r:.80}" if field in self._row else "nothing"
        return TaskFormatError(f"{self.place}: {field} should be {expected}, found {found}")


def _evaluation(reader: _Reader, outer_note: str) -> Evaluation:
    """The `eval` object; one task of WebArena has its note beside it and not in it."""
    eval_types = reader.texts("eval_types")
    if not set(eval_types) <= set(EVAL_TYPES):
        raise reader.wrong("eval_types", f"some of {', '.join(EVAL_TYPES)}")
    url_rule = reader.one("url_note", str, default=URL_RULE)
    if url_rule not in (URL_RULE, SAME_URL_RULE):
        raise reader.wrong("url_note", repr(URL_RULE))
    return Evaluation(
        eval_types,
        answers=_answers(reader.inner("reference_answers")) if STRING_MATCH in eval_types else None,
        reference_urls=_reference_urls(reader) if URL_MATCH in eval_types else (),
        targets=_targets(reader) if PROGRAM_HTML in eval_types else (),
        reason=reader.one("string_note", str, default=outer_note),
        same_url=url_rule == SAME_URL_RULE,
        edits=_edits(reader) if STATE in eval_types else (),
    )


def _edits(reader: _Reader) -> tuple[Edit, ...]:
    """The `state` list; an empty one says that nothing may change."""
    rows = reader.one("state", list)
    places = (f"{reader.place}.state[{number}]" for number in range(len(rows)))
    return tuple(_edit(_Reader(row, place)) for row, place in zip(rows, places, strict=True))


def _edit(reader: _Reader) -> Edit:
    kind = reader.one("kind", str)
    if kind not in (ADDED, REMOVED, CHANGED):
        raise reader.wrong("kind", f"{ADDED}, {REMOVED} or {CHANGED}")
    return Edit(
        site=reader.one("site", str),
        table=reader.one("table", str),
        kind=kind,
        row=_values(reader, "row"),
        to=_values(reader, "to") if kind == CHANGED else {},
    )


def _values(reader: _Reader, field: str) -> dict[str, Any]:
    """Columns with values; `{"short_answer": ..}` is a ShortText."""
    return {
        column: ShortText(value[SHORT_ANSWER]) if isinstance(value, Mapping) else value
        for column, value in reader.one(field, Mapping).items()
    }


def _reference_urls(reader: _Reader) -> tuple[str, ...]:
    """The alternatives of url_match; an empty one would be part of every address."""
    urls = tuple(reader.one("reference_url", str).split(ALTERNATIVES))
    if not all(url.strip("/ ") for url in urls):
        raise reader.wrong("reference_url", "one or more addresses")
    return urls


def _answers(reader: _Reader) -> Answers:
    """The `reference_answers` object."""
    reader.only(EXACT_MATCH, MUST_INCLUDE, FUZZY_MATCH, SHORT_ANSWER)
    not_possible = reader.value(FUZZY_MATCH) == NOT_POSSIBLE
    return Answers(
        exact_match=reader.one(EXACT_MATCH, str, default=None),
        must_include=reader.texts(MUST_INCLUDE, default=None),
        fuzzy_match=None if not_possible else reader.texts(FUZZY_MATCH, default=None),
        not_possible=not_possible,
        short_answer=reader.one(SHORT_ANSWER, str, default=None),
    )


def _targets(reader: _Reader) -> tuple[HtmlTarget, ...]:
    """The `program_html` list."""
    rows = reader.one("program_html", list)
    if not rows:
        raise reader.wrong("program_html", "a list of at least one target")
    places = (f"{reader.place}.program_html[{number}]" for number in range(len(rows)))
    return tuple(_target(_Reader(row, place)) for row, place in zip(rows, places, strict=True))


def _target(reader: _Reader) -> HtmlTarget:
    """One target of `program_html`."""
    required = reader.inner("required_contents")
    required.only(EXACT_MATCH, MUST_INCLUDE)
    if required.value(EXACT_MATCH) is not None and required.value(MUST_INCLUDE) is not None:
        raise reader.wrong("required_contents", f"either {EXACT_MATCH} or {MUST_INCLUDE}")
    locator = reader.one("locator", str)
    if locator.strip() and not locator.startswith((*SCRIPT_STARTS, FUNCTION)):
        raise reader.wrong("locator", f"empty or begin with {SCRIPT_STARTS} or {FUNCTION!r}")
    return HtmlTarget(
        url=reader.one("url", str),
        locator=locator,
        exact_match=required.one(EXACT_MATCH, str, default=None),
        must_include=required.texts(MUST_INCLUDE, default=None),
        prep_actions=reader.texts("prep_actions", default=()),
    )


def _evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
    """The `eval` object of a task."""
    row: dict[str, Any] = {
        "eval_types": list(evaluation.eval_types),
        "reference_answers": None,
        "reference_url": ALTERNATIVES.join(evaluation.reference_urls),
        "program_html": [_target_row(target) for target in evaluation.targets],
    }
    if evaluation.answers is not None:
        row["reference_answers"] = _answers_row(evaluation.answers)
    if evaluation.reference_urls:
        row["url_note"] = SAME_URL_RULE if evaluation.same_url else URL_RULE
    if STATE in evaluation.eval_types:
        row[STATE] = [_edit_row(edit) for edit in evaluation.edits]
    if evaluation.reason:
        row["string_note"] = evaluation.reason
    return row


def _answers_row(answers: Answers) -> dict[str, Any]:
    """The `reference_answers` object."""
    row: dict[str, Any] = {}
    if answers.exact_match is not None:
        row[EXACT_MATCH] = answers.exact_match
    if answers.must_include is not None:
        row[MUST_INCLUDE] = list(answers.must_include)
    if answers.not_possible:
        row[FUZZY_MATCH] = NOT_POSSIBLE
    elif answers.fuzzy_match is not None:
        row[FUZZY_MATCH] = list(answers.fuzzy_match)
    if answers.short_answer is not None:
        row[SHORT_ANSWER] = answers.short_answer
    return row


def _edit_row(edit: Edit) -> dict[str, Any]:
    """One edit of `state`."""
    row = {"site": edit.site, "table": edit.table, "kind": edit.kind, "row": _plain(edit.row)}
    return row | ({"to": _plain(edit.to)} if edit.kind == CHANGED else {})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        column: {SHORT_ANSWER: value.text} if isinstance(value, ShortText) else value
        for column, value in values.items()
    }


def _target_row(target: HtmlTarget) -> dict[str, Any]:
    """One target of `program_html`."""
    required: dict[str, Any] = {}
    if target.exact_match is not None:
        required[EXACT_MATCH] = target.exact_match
    if target.must_include is not None:
        required[MUST_INCLUDE] = list(target.must_include)
    row: dict[str, Any] = {
        "url": target.url,
        "locator": target.locator,
        "required_contents": required,
    }
    return row | ({"prep_actions": list(target.prep_actions)} if target.prep_actions else {})
