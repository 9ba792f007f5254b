"""WebArena's task format (arXiv:2307.13854): the objective and the scoring of a task.

The user's file has the 812 tasks of WebArena, and `task_file.py` finds it. This module has only the
format, which the tasks of our embedded sites share. Our tasks have three stricter rules that
WebArena lacks: `short_answer`, an address that must equal the reference, and `state`.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from agentgym_envs.webarena.task_fields import Fields, TaskFormatError
from agentgym_envs.webarena.urls import SITES, SiteUrls

STRING_MATCH = "string_match"
URL_MATCH = "url_match"
PROGRAM_HTML = "program_html"
STATE = "state"  # added to WebArena's rules: checks the databases of embedded sites
EVAL_TYPES = (STRING_MATCH, URL_MATCH, PROGRAM_HTML, STATE)

EXACT_MATCH = "exact_match"
MUST_INCLUDE = "must_include"
FUZZY_MATCH = "fuzzy_match"
SHORT_ANSWER = "short_answer"  # added to WebArena's rules: the answer with hardly any other words
NOT_POSSIBLE = "N/A"  # answer to an impossible task

LAST_PAGE = "last"  # as a target's url: the agent's last page
FUNCTION = "func:"  # start of a url or a locator that a named function computes
SCRIPT_STARTS = ("document.", "[...document.")
ALTERNATIVES = " |OR| "
TABS = " |AND| "
URL_RULE = "GOLD in PRED"  # the only rule in WebArena
SAME_URL_RULE = "GOLD is PRED"  # added to WebArena's rules: the whole address must be equal
ADDED, REMOVED, CHANGED = "added", "removed", "changed"  # values of `Edit.kind`


@dataclasses.dataclass(frozen=True)
class HtmlTarget:
    """One check of a page, for `program_html`.

    Attributes:
      url: Address to open; "last" for the agent's last page; "func:.." for a computed address.
      locator: "" for the whole document, a script that begins with `document.` or `[...document.`,
        or "func:..".
      exact_match: Required text of the located element, or None.
      must_include: Required parts, each with alternatives separated by " |OR| ", or None.
      prep_actions: Scripts that run in the page before the locator; their errors are ignored.
    """

    url: str
    locator: str
    exact_match: str | None = None
    must_include: tuple[str, ...] | None = None
    prep_actions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ShortText:
    """Text of a row that is compared as a `short_answer`."""

    text: str


@dataclasses.dataclass(frozen=True)
class Edit:
    """One row that a task adds, removes or changes in the database of an embedded site.

    Attributes:
      site: WebArena's name of the site; the shop and its dashboard are both `shopping`.
      table: Name of the table; `agentgym_sites/*/content.py` has the rules for comparing its rows.
      kind: Type of the edit: ADDED, REMOVED or CHANGED.
      row: Value or ShortText by column. All other columns of an added row are empty. For a removed
        or changed row, the values only need to identify it.
      to: New values of a changed row.
    """

    site: str
    table: str
    kind: str
    row: Mapping[str, Any]
    to: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Answers:
    """References of `string_match`; None skips a check.

    Attributes:
      exact_match: Required answer.
      fuzzy_match: References; a judge must find that the answer has the meaning of each.
      not_possible: True if the task is impossible; the answer is "N/A" or, with a judge, the
        reason.
      short_answer: Required answer, which can be part of a short sentence.
    """

    exact_match: str | None = None
    must_include: tuple[str, ...] | None = None
    fuzzy_match: tuple[str, ...] | None = None
    not_possible: bool = False
    short_answer: str | None = None


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scoring of a task: the score is 1 if all checks of all `eval_types` hold, else 0.

    Attributes:
      eval_types: Evaluators of the task, a subset of EVAL_TYPES, in the order of their checks.
      reference_urls: Alternative addresses for url_match.
      reason: Reason why the task is impossible, for a judge.
      same_url: True if the address of the last page must equal a reference, not only contain it.
      edits: Complete list of the task's changes, for `state`.
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
        """Returns True if a verdict is impossible without a judge.

        An impossible task needs no judge, because the answer "N/A" is right by itself.
        """
        return self.answers is not None and self.answers.fuzzy_match is not None


@dataclasses.dataclass(frozen=True)
class WebTask:
    """One task in WebArena's format.

    Attributes:
      sites: Keys of `urls.SITES` for the task's sites.
      intent_template_id: Number of the template; tasks of one template differ only in values.
      intent_template: Intent with names in place of values.
      storage_state: WebArena's name of the file with the cookies of the accounts, or None.
      require_login: True if an account must be logged in; always true in WebArena.
      require_reset: True if the sites must be reset first; always false in WebArena.
      geolocation: Field of WebArena; always null.
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
        """Returns the sites with a logged-in account, read from the name of the file of cookies.

        WebArena's files are named `<site>[.<site>]_state.json`. The names can be fewer than
        `sites`, because two sites on one host would overwrite each other's cookies.
        """
        if self.storage_state is None:
            return ()
        return tuple(pathlib.PurePosixPath(self.storage_state).name.split("_state")[0].split("."))

    def at(self, urls: SiteUrls) -> "WebTask":
        """Returns this task with addresses in place of placeholders.

        Raises:
          ValueError: The task uses a site that `urls` does not have.
        """
        return read_task(urls.fill(task_row(self)))


def read_task(row: Mapping[str, Any]) -> WebTask:
    """Reads a task from WebArena's JSON.

    Raises:
      TaskFormatError: A field is missing, has the wrong type, or has a value that WebArena does not
        define.
    """
    reader = Fields(row, f"task {row.get('task_id', '?')}" if isinstance(row, Mapping) else "task")
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
    """Reads all tasks of a file's content and checks that their numbers are unique.

    Raises:
      TaskFormatError: The content is not a list of tasks, or a number is repeated.
    """
    if not isinstance(rows, list):
        raise TaskFormatError(f"a task file is a list of tasks, not {type(rows).__name__}")
    tasks = [read_task(row) for row in rows]
    numbers: set[int] = set()
    for task in tasks:
        if task.task_id in numbers:
            raise TaskFormatError(f"task {task.task_id} is in the file twice")
        numbers.add(task.task_id)
    return tasks


def task_row(task: WebTask) -> dict[str, Any]:
    """Converts the task to WebArena's JSON, which `read_task` converts back to the same task."""
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


def _evaluation(reader: Fields, outer_note: str) -> Evaluation:
    """Reads the `eval` object. One task of WebArena has its note outside the object."""
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
        edits=tuple(map(_edit, reader.rows("state"))) if STATE in eval_types else (),
    )


def _edit(reader: Fields) -> Edit:
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


def _values(reader: Fields, field: str) -> dict[str, Any]:
    """Reads columns with values; `{"short_answer": ..}` becomes a ShortText."""
    return {
        column: ShortText(value[SHORT_ANSWER]) if isinstance(value, Mapping) else value
        for column, value in reader.one(field, Mapping).items()
    }


def _reference_urls(reader: Fields) -> tuple[str, ...]:
    """Reads the alternatives of url_match; rejects empty ones, which match every address."""
    urls = tuple(reader.one("reference_url", str).split(ALTERNATIVES))
    if not all(url.strip("/ ") for url in urls):
        raise reader.wrong("reference_url", "one or more addresses")
    return urls


def _answers(reader: Fields) -> Answers:
    """Reads the `reference_answers` object."""
    reader.only(EXACT_MATCH, MUST_INCLUDE, FUZZY_MATCH, SHORT_ANSWER)
    not_possible = reader.value(FUZZY_MATCH) == NOT_POSSIBLE
    return Answers(
        exact_match=reader.one(EXACT_MATCH, str, default=None),
        must_include=reader.texts(MUST_INCLUDE, default=None),
        fuzzy_match=None if not_possible else reader.texts(FUZZY_MATCH, default=None),
        not_possible=not_possible,
        short_answer=reader.one(SHORT_ANSWER, str, default=None),
    )


def _targets(reader: Fields) -> tuple[HtmlTarget, ...]:
    """Reads the `program_html` list."""
    rows = reader.rows("program_html")
    if not rows:
        raise reader.wrong("program_html", "a list of at least one target")
    return tuple(_target(row) for row in rows)


def _target(reader: Fields) -> HtmlTarget:
    """Reads one target of `program_html`."""
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
    """Converts the evaluation to the `eval` object of a task."""
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
    """Converts the answers to the `reference_answers` object."""
    return _present(
        {
            EXACT_MATCH: answers.exact_match,
            MUST_INCLUDE: answers.must_include,
            FUZZY_MATCH: NOT_POSSIBLE if answers.not_possible else answers.fuzzy_match,
            SHORT_ANSWER: answers.short_answer,
        }
    )


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that are not None, with lists in place of tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }


def _edit_row(edit: Edit) -> dict[str, Any]:
    """Converts one edit to a row of `state`."""
    row = {"site": edit.site, "table": edit.table, "kind": edit.kind, "row": _plain(edit.row)}
    return row | ({"to": _plain(edit.to)} if edit.kind == CHANGED else {})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        column: {SHORT_ANSWER: value.text} if isinstance(value, ShortText) else value
        for column, value in values.items()
    }


def _target_row(target: HtmlTarget) -> dict[str, Any]:
    """Converts one target to a row of `program_html`."""
    required = {EXACT_MATCH: target.exact_match, MUST_INCLUDE: target.must_include}
    return _present(
        {
            "url": target.url,
            "locator": target.locator,
            "required_contents": _present(required),
            "prep_actions": target.prep_actions or None,
        }
    )
