"""Tasks on Trac, made from the site's seed tables: reading, finding a page, creating and changing."""

from collections.abc import Callable

from agentgym_envs.webarena.tasks import Evaluation
from agentgym_sites.chance import Dice
from agentgym_sites.tasks import script
from agentgym_sites.tasks.script import (
    Node,
    Play,
    Reader,
    Way,
    answering,
    choose,
    click,
    doing,
    fill,
    in_order,
    matching,
)
from agentgym_sites.tasks.task import (
    Row,
    Rows,
    Templates,
    added,
    answer_has,
    answer_is,
    changed,
    changes,
    ends_at,
    impossible,
    page_is,
    refusing,
)
from agentgym_sites.tasks.trac_plays import (
    name_of,
    open_form,
    open_menu,
    open_milestone,
    open_ticket,
    open_wiki,
    ticket_address,
    value_of,
)
from agentgym_sites.trac.projects import AGENT, PEOPLE, PROJECTS, Project
from agentgym_sites.trac.tables import Milestone, milestones, wiki_root
from agentgym_sites.trac.tickets import PRIORITIES, Ticket, tickets

_PER_TEMPLATE = 4
_SITE = "gitlab"
_SUBMIT = "Submit changes"
_TEMPLATES = Templates("trac", (_SITE,))
tasks = _TEMPLATES.tasks


def _some(name: str, is_wanted: Callable[[Ticket], bool] = lambda ticket: True) -> list[Ticket]:
    """Returns tickets for a template, one per task."""
    return Dice(f"trac tasks: {name}").sample(list(filter(is_wanted, tickets())), _PER_TEMPLATE)


def _some_milestones(name: str) -> list[Milestone]:
    """Returns milestones for a template, one per task.

    All of them are open, because the roadmap shows only open milestones.
    """
    coming = [each for each in milestones() if not each.is_completed]
    return Dice(f"trac tasks: {name}").sample(coming, _PER_TEMPLATE)


def _is_open(ticket: Ticket) -> bool:
    return ticket.is_open


# Tasks that ask about tickets.


def _ask(ticket: Ticket, evaluation: Evaluation, read: Reader) -> Row:
    return {"summary": ticket.summary}, evaluation, answering(open_ticket(ticket), read)


@_TEMPLATES(0, 'Who owns the ticket "{summary}"?')
def _owner() -> Rows:
    for ticket in _some("owner", lambda ticket: ticket.owner != ""):
        yield _ask(ticket, answer_has(name_of(ticket.owner)), value_of("Owned by:"))
    ticket = _some("no owner", lambda ticket: not ticket.owner)[0]
    yield {"summary": ticket.summary}, impossible(), refusing(open_ticket(ticket))


@_TEMPLATES(1, 'Who reported the ticket "{summary}"?')
def _reporter() -> Rows:
    for ticket in _some("reporter"):
        yield _ask(ticket, answer_has(name_of(ticket.reporter)), value_of("Reported by:"))


@_TEMPLATES(2, 'Which priority does the ticket "{summary}" have? Answer with its name only.')
def _priority() -> Rows:
    for ticket in _some("priority"):
        yield _ask(ticket, answer_is(ticket.priority), value_of("Priority:"))


@_TEMPLATES(3, 'To which milestone does the ticket "{summary}" belong? Answer with its name only.')
def _milestone() -> Rows:
    for ticket in _some("milestone", lambda ticket: ticket.milestone != ""):
        yield _ask(ticket, answer_is(ticket.milestone), value_of("Milestone:"))


@_TEMPLATES(4, 'Who made the latest change or comment in the ticket "{summary}"?')
def _last_comment() -> Rows:
    def read(page: list[Node]) -> str:
        changes = [node.name for node in page if node.name.startswith("comment:")]
        heads = [name for name in changes if " by " in name]
        return heads[-1].split(" by ", 1)[1].split(",")[0]

    for ticket in _some("last", lambda ticket: len(ticket.changes) > 1):
        yield _ask(ticket, answer_has(name_of(ticket.changes[-1].author)), read)


# Tasks that ask about milestones and the wiki.


def _ask_milestone(stone: Milestone, answer: str, read: Reader) -> Row:
    return {"milestone": stone.name}, answer_is(answer), answering(open_milestone(stone), read)


@_TEMPLATES(5, "When is the milestone {milestone} due? Answer as YYYY-MM-DD.")
def _due_date() -> Rows:
    for stone in _some_milestones("due"):
        yield _ask_milestone(stone, stone.due, matching(r"\((\d{4}-\d\d-\d\d)T"))


@_TEMPLATES(
    6, "How many open tickets does the milestone {milestone} have? Answer with the number only."
)
def _open_of_milestone() -> Rows:
    for stone in _some_milestones("open"):
        count = sum(each.is_open for each in tickets() if each.milestone == stone.name)
        yield _ask_milestone(stone, str(count), matching(r"^active: (\d+)$"))


def _read_count(wanted: str) -> Reader:
    """Returns a reader that finds the number of tickets of a priority on a milestone's page."""

    def read(page: list[Node]) -> str:
        place = script.first(
            (n for n, node in enumerate(page) if (node.role, node.name) == ("rowheader", wanted)),
            f"row {wanted!r}",
        )
        return matching(r"^\d+ / (\d+)$")([n for n in page[place:] if n.role == "StaticText"])

    return read


@_TEMPLATES(
    7,
    "How many tickets of the priority {priority} does the milestone {milestone} have, open and "
    "closed together? Answer with the number only.",
)
def _count_priority() -> Rows:
    dice = Dice("trac tasks: the rest")
    for stone in _some_milestones("priority"):
        found = [ticket.priority for ticket in tickets() if ticket.milestone == stone.name]
        wanted = dice.pick([name for name in PRIORITIES if name in found])
        play = answering(open_milestone(stone), _read_count(wanted))
        values = {"milestone": stone.name, "priority": wanted}
        yield values, answer_is(str(found.count(wanted))), play


def _ask_wiki(thrown: int, answer: Callable[[Project], Evaluation], pattern: str) -> Rows:
    """Yields questions about projects; `thrown` is the number of earlier choices of the dice."""
    projects = Dice("trac tasks: the rest", thrown=thrown).sample(PROJECTS, _PER_TEMPLATE)
    for project in projects:
        play = answering(open_wiki(project, "Operations"), matching(pattern))
        yield {"project": project.name}, answer(project), play


@_TEMPLATES(
    8, "On which port does {project} listen, according to its wiki? Answer with the number only."
)
def _port() -> Rows:
    return _ask_wiki(4, lambda each: answer_is(str(each.port)), r"listens on port (\d+)\.")


@_TEMPLATES(9, "Who is on call at night for {project}, according to its wiki?")
def _on_call() -> Rows:
    pattern = r"person on call is ([\w ]+)\."
    return _ask_wiki(8, lambda each: answer_has(name_of(each.on_call)), pattern)


# Tasks that ask to find a page.


@_TEMPLATES(10, 'Open the ticket "{summary}".')
def _open_ticket() -> Rows:
    for ticket in _some("open"):
        check = ends_at(ticket_address(ticket))
        yield {"summary": ticket.summary}, check, doing(open_ticket(ticket))


@_TEMPLATES(11, 'Open the page "{title}" of the wiki of {project}.')
def _open_page() -> Rows:
    dice = Dice("trac tasks: finding")
    titles = ("Installation", "Operations", "Release process", "Glossary")
    projects = dice.sample(PROJECTS, _PER_TEMPLATE)
    for project, title in zip(projects, dice.sample(titles, 4), strict=True):
        address = f"__GITLAB__/wiki/{wiki_root(project)}/{title.replace(' ', '_')}"
        values = {"project": project.name, "title": title}
        yield values, ends_at(address), doing(open_wiki(project, title))


_REPORTS = {  # reports that Trac provides by default
    1: "Active Tickets",
    3: "Active Tickets by Milestone",
    7: "My Tickets",
    8: "Active Tickets, Mine first",
}


@_TEMPLATES(12, 'Open the report "{title}".')
def _open_report() -> Rows:
    for number, title in _REPORTS.items():
        play = doing(open_menu("VIEW TICKETS", f"{{{number}}} {title}"))
        yield {"title": title}, ends_at(f"__GITLAB__/report/{number}"), play


# JavaScript that returns the numbers of the listed tickets, smallest first.
_LISTED = (
    "[...document.querySelectorAll('table.tickets td.id')]"
    ".map(cell => Number(cell.innerText.replace('#', ''))).sort((a, b) => a - b).join(' ')"
)


@_TEMPLATES(13, "Show the list of all open tickets of the milestone {milestone}, and no others.")
def _list_of_milestone() -> Rows:
    for stone in _some_milestones("list"):
        wanted = [
            str(each.number) for each in tickets() if each.milestone == stone.name and each.is_open
        ]
        play = doing(open_milestone(stone), click("link", f"active: {len(wanted)}"))
        yield {"milestone": stone.name}, page_is("last", _LISTED, " ".join(wanted)), play


# Tasks that change tickets.

_COMMENTS = (
    "I will look at it on Monday.",
    "The new build solves this for me.",
    "Please send me the settings of your machine.",
    "Moved to the agenda of our next meeting.",
)


@_TEMPLATES(14, 'Add the comment "{text}" to the ticket "{summary}".')
def _comment() -> Rows:
    for ticket, text in zip(_some("comment", _is_open), _COMMENTS, strict=True):
        edit = added(_SITE, "ticket_change", ticket=ticket.summary, author=AGENT, newvalue=text)
        play = doing(open_ticket(ticket), fill("You may use", text), click("button", _SUBMIT))
        yield {"summary": ticket.summary, "text": text}, changes(edit), play


def _set(ticket: Ticket, **to: str) -> Evaluation:
    """Returns an evaluation that requires new values of a ticket's fields."""
    return changes(changed(_SITE, "ticket", to, summary=ticket.summary))


def _deciding(ticket: Ticket, deed: str, box: str, option: str) -> Way:
    """Performs one of the actions below the fields of a ticket, such as closing it."""
    return in_order(
        open_form(ticket),
        click("radio", deed),
        choose(box, option, after=deed),
        click("button", _SUBMIT),
    )


@_TEMPLATES(15, 'Close the ticket "{summary}" with the resolution {resolution}.')
def _close() -> Rows:
    resolutions = ("fixed", "invalid", "duplicate", "worksforme")
    for ticket, resolution in zip(_some("close", _is_open), resolutions, strict=True):
        check = _set(ticket, status="closed", resolution=resolution)
        play = doing(_deciding(ticket, "resolve", "", resolution))
        yield {"summary": ticket.summary, "resolution": resolution}, check, play


@_TEMPLATES(16, 'Assign the ticket "{summary}" to {person}.')
def _assign() -> Rows:
    dice = Dice("trac tasks: changing")
    for ticket in _some("assign", _is_open):
        person = dice.pick([each for each in PEOPLE if each not in (ticket.owner, AGENT)])
        check = _set(ticket, owner=person, status="assigned")
        play = doing(_deciding(ticket, "assign", "", name_of(person)))
        yield {"summary": ticket.summary, "person": name_of(person)}, check, play


def _choosing(ticket: Ticket, field: str, option: str) -> Play:
    return doing(open_form(ticket), choose(field, option), click("button", _SUBMIT))


@_TEMPLATES(17, 'Set the priority of the ticket "{summary}" to {priority}.')
def _set_priority() -> Rows:
    dice = Dice("trac tasks: changing", thrown=4)
    for ticket in _some("set priority", _is_open):
        name = dice.pick([p for p in PRIORITIES if p != ticket.priority])
        values = {"summary": ticket.summary, "priority": name}
        yield values, _set(ticket, priority=name), _choosing(ticket, "Priority:", name)


def _milestones_for(ticket: Ticket) -> list[str]:
    """Returns the names of the milestones to which a ticket can be moved: the other open milestones
    of its project.
    """
    return [
        stone.name
        for stone in milestones()
        if not stone.is_completed
        and stone.name.startswith(f"{ticket.component} ")
        and stone.name != ticket.milestone
    ]


@_TEMPLATES(18, 'Move the ticket "{summary}" to the milestone {milestone}.')
def _set_milestone() -> Rows:
    dice = Dice("trac tasks: changing", thrown=8)
    for ticket in _some("move", lambda each: each.is_open and bool(_milestones_for(each))):
        name = dice.pick(_milestones_for(ticket))
        values = {"summary": ticket.summary, "milestone": name}
        yield values, _set(ticket, milestone=name), _choosing(ticket, "Milestone:", name)
    for ticket in _some("move nowhere", _is_open):
        values = {"summary": ticket.summary, "milestone": f"{ticket.component} 12.7"}
        yield values, impossible(), refusing(open_form(ticket))  # no project has this version


# Tasks that add or replace something.

_NEW_TICKETS = (
    ("Tidewatch", "defect", "major", "Legend covers the harbour map"),
    ("Orchard Ledger", "enhancement", "trivial", "Delivery notes in large print"),
    ("Kiln", "defect", "critical", "Build queue stops at noon"),
    ("Papertrail", "task", "major", "Scanner of the new town hall"),
)
_NEW_MILESTONES = (
    ("Tidewatch 3.1", "Maps for the southern coast"),
    ("Kiln 5.1", "Fewer moving parts"),
    ("Railmap 6.0", "A new route planner"),
    ("Papertrail 3.9", "Scans in colour"),
)
_NEW_PAGES = (
    "The glossary has moved to the handbook.",
    "Words are explained where they are used.",
    "See the handbook of the build team.",
    "This page is being written anew.",
)


@_TEMPLATES(
    19,
    "Create a new ticket for the component {component}: type {type}, priority {priority}, "
    'summary "{summary}".',
)
def _create() -> Rows:
    for component, kind, priority, summary in _NEW_TICKETS:
        play = doing(
            open_menu("NEW TICKET"),
            fill("Summary:", summary),
            choose("Type:", kind),
            choose("Priority:", priority),
            choose("Component:", component),
            click("button", "Create ticket"),
        )
        values = {"component": component, "type": kind, "priority": priority, "summary": summary}
        yield values, changes(added(_SITE, "ticket", **values, reporter=AGENT, status="new")), play


@_TEMPLATES(20, 'Add the milestone "{name}" without a due date, with the description "{text}".')
def _new_milestone() -> Rows:
    for name, text in _NEW_MILESTONES:
        play = doing(
            open_menu("ROADMAP"),
            click("button", "Add new milestone"),
            fill("Name:", name),
            fill("Description:", text),
            click("button", "Add milestone"),
        )
        check = changes(added(_SITE, "milestone", name=name, description=text))
        yield {"name": name, "text": text}, check, play


@_TEMPLATES(
    21, 'Replace the whole text of the page "Glossary" in the wiki of {project} by "{text}".'
)
def _rewrite_page() -> Rows:
    projects = Dice("trac tasks: wiki").sample(PROJECTS, _PER_TEMPLATE)
    for project, text in zip(projects, _NEW_PAGES, strict=True):
        play = doing(
            open_wiki(project, "Glossary"),
            click("button", "Edit this page"),
            fill("", text, after="side-by-side", is_empty=False),
            click("button", _SUBMIT),
        )
        edit = changed(_SITE, "wiki", {"text": text}, name=f"{wiki_root(project)}/Glossary")
        yield {"project": project.name, "text": text}, changes(edit), play
