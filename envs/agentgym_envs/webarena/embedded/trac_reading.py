"""Tasks that read Trac or look for a page of it: one function for each template."""

import functools
from collections.abc import Callable, Mapping

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.script import Node, Reader, matching
from agentgym_envs.webarena.embedded.task import (
    Instance,
    answer_has,
    answer_is,
    ends_at,
    impossible,
    page_is,
    refusing,
)
from agentgym_envs.webarena.embedded.trac_plays import (
    name_of,
    open_menu,
    open_milestone,
    open_ticket,
    open_wiki,
    ticket_address,
    value_of,
)
from agentgym_envs.webarena.sites.trac.projects import Project
from agentgym_envs.webarena.sites.trac.tables import Milestone, wiki_root
from agentgym_envs.webarena.sites.trac.tickets import Ticket, tickets
from agentgym_envs.webarena.tasks import Evaluation


def _about_ticket(ticket: Ticket, evaluation: Evaluation, read: Reader) -> Instance:
    way = functools.partial(open_ticket, ticket=ticket)
    return Instance({"summary": ticket.summary}, evaluation, script.answering(way, read))


def owner(ticket: Ticket) -> Instance:
    """Who owns a ticket."""
    return _about_ticket(ticket, answer_has(name_of(ticket.owner)), value_of("Owned by:"))


def no_owner(ticket: Ticket) -> Instance:
    """Who owns a ticket that has no owner."""
    way = functools.partial(open_ticket, ticket=ticket)
    return Instance({"summary": ticket.summary}, impossible(), refusing(way))


def reporter(ticket: Ticket) -> Instance:
    """Who reported a ticket."""
    return _about_ticket(ticket, answer_has(name_of(ticket.reporter)), value_of("Reported by:"))


def priority(ticket: Ticket) -> Instance:
    """The priority of a ticket."""
    return _about_ticket(ticket, answer_is(ticket.priority), value_of("Priority:"))


def milestone(ticket: Ticket) -> Instance:
    """The milestone of a ticket."""
    return _about_ticket(ticket, answer_is(ticket.milestone), value_of("Milestone:"))


def last_comment(ticket: Ticket) -> Instance:
    """Who made the last change of a ticket."""

    def read(page: list[Node]) -> str:
        changes = [node.name for node in page if node.name.startswith("comment:")]
        heads = [name for name in changes if " by " in name]
        return heads[-1].split(" by ", 1)[1].split(",")[0]

    return _about_ticket(ticket, answer_has(name_of(ticket.changes[-1].author)), read)


def due_date(stone: Milestone) -> Instance:
    """When a milestone is due."""
    way = functools.partial(open_milestone, milestone=stone)
    read = matching(r"\((\d{4}-\d\d-\d\d)T")
    return Instance({"milestone": stone.name}, answer_is(stone.due), script.answering(way, read))


def open_of_milestone(stone: Milestone) -> Instance:
    """How many tickets of a milestone are open."""
    count = sum(each.is_open for each in tickets() if each.milestone == stone.name)
    way = functools.partial(open_milestone, milestone=stone)
    return Instance(
        {"milestone": stone.name},
        answer_is(str(count)),
        script.answering(way, matching(r"^active: (\d+)$")),
    )


def of_priority(stone: Milestone, wanted: str) -> Instance:
    """How many tickets of a milestone have a priority, which a table of its page shows."""
    count = sum(each.milestone == stone.name and each.priority == wanted for each in tickets())

    def read(page: list[Node]) -> str:
        place = script.first(
            (n for n, node in enumerate(page) if (node.role, node.name) == ("rowheader", wanted)),
            f"row {wanted!r}",
        )
        return matching(r"^\d+ / (\d+)$")([n for n in page[place:] if n.role == "StaticText"])

    way = functools.partial(open_milestone, milestone=stone)
    return Instance(
        {"milestone": stone.name, "priority": wanted},
        answer_is(str(count)),
        script.answering(way, read),
    )


def _in_operations(project: Project, evaluation: Evaluation, pattern: str) -> Instance:
    way: Callable = lambda seen: open_wiki(seen, project, "Operations")
    play = script.answering(way, matching(pattern))
    return Instance({"project": project.name}, evaluation, play)


def port(project: Project) -> Instance:
    """The port that the wiki tells."""
    return _in_operations(project, answer_is(str(project.port)), r"listens on port (\d+)\.")


def on_call(project: Project) -> Instance:
    """The person on call that the wiki tells."""
    answer = answer_has(name_of(project.on_call))
    return _in_operations(project, answer, r"person on call is ([\w ]+)\.")


def _ending(values: Mapping[str, object], evaluation: Evaluation, way: script.Way) -> Instance:
    return Instance(values, evaluation, script.doing(way))


def open_it(ticket: Ticket) -> Instance:
    """Ends at a ticket."""
    way = functools.partial(open_ticket, ticket=ticket)
    return _ending({"summary": ticket.summary}, ends_at(ticket_address(ticket)), way)


def wiki_page(project: Project, title: str) -> Instance:
    """Ends at a page of the wiki."""
    address = f"__GITLAB__/wiki/{wiki_root(project)}/{title.replace(' ', '_')}"
    way: script.Way = lambda seen: open_wiki(seen, project, title)
    return _ending({"project": project.name, "title": title}, ends_at(address), way)


def report(number: int, title: str) -> Instance:
    """Ends at one of the saved reports."""
    way: script.Way = lambda seen: open_menu(seen, "VIEW TICKETS", f"{{{number}}} {title}")
    return _ending({"title": title}, ends_at(f"__GITLAB__/report/{number}"), way)


# The numbers of the listed tickets, smallest first.
_LISTED = (
    "[...document.querySelectorAll('table.tickets td.id')]"
    ".map(cell => Number(cell.innerText.replace('#', ''))).sort((a, b) => a - b).join(' ')"
)


def list_of_milestone(stone: Milestone) -> Instance:
    """Ends at the list of the open tickets of a milestone, however it was found."""
    wanted = [
        str(each.number) for each in tickets() if each.milestone == stone.name and each.is_open
    ]

    def way(observation: str) -> script.Script:
        observation = yield from open_milestone(observation, stone)
        return (yield from script.click(observation, "link", f"active: {len(wanted)}"))

    return _ending({"milestone": stone.name}, page_is("last", _LISTED, " ".join(wanted)), way)
