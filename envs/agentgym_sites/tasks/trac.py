"""Tasks on Trac, made from the site's seed tables: reading, finding a page, creating and changing."""

from collections.abc import Callable, Iterable

from agentgym_sites.chance import Dice
from agentgym_sites.tasks import trac_reading as reading
from agentgym_sites.tasks import trac_writing as writing
from agentgym_sites.tasks.task import EmbeddedTask, Instance, from_template
from agentgym_sites.trac.projects import AGENT, PEOPLE, PROJECTS
from agentgym_sites.trac.tables import Milestone, milestones
from agentgym_sites.trac.tickets import PRIORITIES, Ticket, tickets

_PER_TEMPLATE = 4


def tasks() -> list[EmbeddedTask]:
    """Returns all tasks on Trac."""
    return [*_about_tickets(), *_about_the_rest(), *_finding(), *_changing(), *_adding()]


def _about_tickets() -> Iterable[EmbeddedTask]:
    yield from _template(
        0,
        'Who owns the ticket "{summary}"?',
        [
            *map(reading.owner, _some("owner", _is_owned)),
            *map(reading.no_owner, _some("no owner", lambda ticket: not ticket.owner)[:1]),
        ],
    )
    yield from _template(
        1, 'Who reported the ticket "{summary}"?', map(reading.reporter, _some("reporter"))
    )
    yield from _template(
        2,
        'Which priority does the ticket "{summary}" have? Answer with its name only.',
        map(reading.priority, _some("priority")),
    )
    yield from _template(
        3,
        'To which milestone does the ticket "{summary}" belong? Answer with its name only.',
        map(reading.milestone, _some("milestone", lambda ticket: ticket.milestone != "")),
    )
    yield from _template(
        4,
        'Who made the latest change or comment in the ticket "{summary}"?',
        map(reading.last_comment, _some("last", lambda ticket: len(ticket.changes) > 1)),
    )


def _about_the_rest() -> Iterable[EmbeddedTask]:
    dice = Dice("trac tasks: the rest")
    yield from _template(
        5,
        "When is the milestone {milestone} due? Answer as YYYY-MM-DD.",
        map(reading.due_date, _some_milestones("due")),
    )
    yield from _template(
        6,
        "How many open tickets does the milestone {milestone} have? Answer with the number only.",
        map(reading.open_of_milestone, _some_milestones("open")),
    )
    yield from _template(
        7,
        "How many tickets of the priority {priority} does the milestone {milestone} have, open and "
        "closed together? Answer with the number only.",
        [
            reading.count_priority(stone, dice.pick(_priorities_in(stone)))
            for stone in _some_milestones("priority")
        ],
    )
    yield from _template(
        8,
        "On which port does {project} listen, according to its wiki? Answer with the number only.",
        map(reading.port, dice.sample(PROJECTS, _PER_TEMPLATE)),
    )
    yield from _template(
        9,
        "Who is on call at night for {project}, according to its wiki?",
        map(reading.on_call, dice.sample(PROJECTS, _PER_TEMPLATE)),
    )


def _finding() -> Iterable[EmbeddedTask]:
    dice = Dice("trac tasks: finding")
    yield from _template(10, 'Open the ticket "{summary}".', map(reading.open_it, _some("open")))
    titles = ("Installation", "Operations", "Release process", "Glossary")
    yield from _template(
        11,
        'Open the page "{title}" of the wiki of {project}.',
        map(reading.wiki_page, dice.sample(PROJECTS, _PER_TEMPLATE), dice.sample(titles, 4)),
    )
    yield from _template(
        12,
        'Open the report "{title}".',
        [reading.report(number, _REPORTS[number]) for number in _REPORTS],
    )
    yield from _template(
        13,
        "Show the list of all open tickets of the milestone {milestone}, and no others.",
        map(reading.list_of_milestone, _some_milestones("list")),
    )


def _changing() -> Iterable[EmbeddedTask]:
    dice = Dice("trac tasks: changing")
    yield from _template(
        14,
        'Add the comment "{text}" to the ticket "{summary}".',
        map(writing.comment, _some("comment", _is_open), _COMMENTS),
    )
    yield from _template(
        15,
        'Close the ticket "{summary}" with the resolution {resolution}.',
        map(
            writing.close,
            _some("close", _is_open),
            ("fixed", "invalid", "duplicate", "worksforme"),
        ),
    )
    yield from _template(
        16,
        'Assign the ticket "{summary}" to {person}.',
        [
            writing.assign(
                ticket, dice.pick([each for each in PEOPLE if each not in (ticket.owner, AGENT)])
            )
            for ticket in _some("assign", _is_open)
        ],
    )
    yield from _template(
        17,
        'Set the priority of the ticket "{summary}" to {priority}.',
        [
            writing.priority(ticket, dice.pick([p for p in PRIORITIES if p != ticket.priority]))
            for ticket in _some("set priority", _is_open)
        ],
    )
    yield from _template(
        18,
        'Move the ticket "{summary}" to the milestone {milestone}.',
        [
            writing.milestone(ticket, dice.pick(_milestones_for(ticket)))
            for ticket in _some("move", lambda each: each.is_open and bool(_milestones_for(each)))
        ]
        + [
            writing.no_milestone(ticket, f"{ticket.component} {_NO_VERSION}")
            for ticket in _some("move nowhere", _is_open)
        ],
    )


def _adding() -> Iterable[EmbeddedTask]:
    yield from _template(
        19,
        "Create a new ticket for the component {component}: type {type}, priority {priority}, "
        'summary "{summary}".',
        [writing.create(*new) for new in _NEW_TICKETS],
    )
    yield from _template(
        20,
        'Add the milestone "{name}" without a due date, with the description "{text}".',
        [writing.new_milestone(*new) for new in _NEW_MILESTONES],
    )
    yield from _template(
        21,
        'Replace the whole text of the page "Glossary" in the wiki of {project} by "{text}".',
        map(
            writing.rewrite_page,
            Dice("trac tasks: wiki").sample(PROJECTS, _PER_TEMPLATE),
            _NEW_PAGES,
        ),
    )


_NO_VERSION = "12.7"  # version that no project has as a milestone
_REPORTS = {  # reports that Trac provides by default
    1: "Active Tickets",
    3: "Active Tickets by Milestone",
    7: "My Tickets",
    8: "Active Tickets, Mine first",
}
_COMMENTS = (
    "I will look at it on Monday.",
    "The new build solves this for me.",
    "Please send me the settings of your machine.",
    "Moved to the agenda of our next meeting.",
)
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


def _template(number: int, text: str, instances: Iterable[Instance]) -> list[EmbeddedTask]:
    return from_template("trac", number, text, instances, sites=("gitlab",))


def _some(name: str, is_wanted: Callable[[Ticket], bool] = lambda ticket: True) -> list[Ticket]:
    """Returns tickets for a template, one per instance."""
    return Dice(f"trac tasks: {name}").sample(list(filter(is_wanted, tickets())), _PER_TEMPLATE)


def _some_milestones(name: str) -> list[Milestone]:
    """Returns milestones for a template, one per instance.

    All of them are open, because the roadmap shows only open milestones.
    """
    coming = [each for each in milestones() if not each.is_completed]
    return Dice(f"trac tasks: {name}").sample(coming, _PER_TEMPLATE)


def _is_owned(ticket: Ticket) -> bool:
    return ticket.owner != ""


def _is_open(ticket: Ticket) -> bool:
    return ticket.is_open


def _priorities_in(stone: Milestone) -> list[str]:
    """Returns the priorities listed on a milestone's page."""
    found = {ticket.priority for ticket in tickets() if ticket.milestone == stone.name}
    return [name for name in PRIORITIES if name in found]


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
