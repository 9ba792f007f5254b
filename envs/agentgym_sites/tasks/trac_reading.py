"""Tasks that read Trac or open one of its pages, with one function per template."""

import functools
from collections.abc import Callable, Mapping

from agentgym_envs.webarena.tasks import Evaluation
from agentgym_sites.tasks import script
from agentgym_sites.tasks.script import Node, Reader, matching
from agentgym_sites.tasks.task import (
    Instance,
    answer_has,
    answer_is,
    ends_at,
    impossible,
    page_is,
    refusing,
)
from agentgym_sites.tasks.trac_plays import (
    name_of,
    open_menu,
    open_milestone,
    open_ticket,
    open_wiki,
    ticket_address,
    value_of,
)
from agentgym_sites.trac.projects import Project
from agentgym_sites.trac.tables import Milestone, wiki_root
from agentgym_sites.trac.tickets import Ticket, tickets


def _about_ticket(ticket: Ticket, evaluation: Evaluation, read: Reader) -> Instance:
    way = functools.partial(open_ticket, ticket=ticket)
    return Instance({"summary": ticket.summary}, evaluation, script.answering(way, read))


def owner(ticket: Ticket) -> Instance:
    """Returns a task that asks for the owner of a ticket."""
    return _about_ticket(ticket, answer_has(name_of(ticket.owner)), value_of("Owned by:"))


def no_owner(ticket: Ticket) -> Instance:
    """Returns an impossible task, which asks for the owner of a ticket without an owner."""
    way = functools.partial(open_ticket, ticket=ticket)
    return Instance({"summary": ticket.summary}, impossible(), refusing(way))


def reporter(ticket: Ticket) -> Instance:
    """Returns a task that asks for the reporter of a ticket."""
    return _about_ticket(ticket, answer_has(name_of(ticket.reporter)), value_of("Reported by:"))


def priority(ticket: Ticket) -> Instance:
    """Returns a task that asks for the priority of a ticket."""
    return _about_ticket(ticket, answer_is(ticket.priority), value_of("Priority:"))


def milestone(ticket: Ticket) -> Instance:
    """Returns a task that asks for the milestone of a ticket."""
    return _about_ticket(ticket, answer_is(ticket.milestone), value_of("Milestone:"))


def last_comment(ticket: Ticket) -> Instance:
    """Returns a task that asks for the author of a ticket's last change."""

    def read(page: list[Node]) -> str:
        changes = [node.name for node in page if node.name.startswith("comment:")]
        heads = [name for name in changes if " by " in name]
        return heads[-1].split(" by ", 1)[1].split(",")[0]

    return _about_ticket(ticket, answer_has(name_of(ticket.changes[-1].author)), read)


def due_date(stone: Milestone) -> Instance:
    """Returns a task that asks for the due date of a milestone."""
    way = functools.partial(open_milestone, milestone=stone)
    read = matching(r"\((\d{4}-\d\d-\d\d)T")
    return Instance({"milestone": stone.name}, answer_is(stone.due), script.answering(way, read))


def open_of_milestone(stone: Milestone) -> Instance:
    """Returns a task that asks for the number of open tickets of a milestone."""
    count = sum(each.is_open for each in tickets() if each.milestone == stone.name)
    way = functools.partial(open_milestone, milestone=stone)
    return Instance(
        {"milestone": stone.name},
        answer_is(str(count)),
        script.answering(way, matching(r"^active: (\d+)$")),
    )


def count_priority(stone: Milestone, wanted: str) -> Instance:
    """Returns a task that asks for the number of tickets with a given priority in a milestone."""
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
    """Returns a task that asks for the port of a service, which is in the wiki."""
    return _in_operations(project, answer_is(str(project.port)), r"listens on port (\d+)\.")


def on_call(project: Project) -> Instance:
    """Returns a task that asks for the person on call, who is named in the wiki."""
    answer = answer_has(name_of(project.on_call))
    return _in_operations(project, answer, r"person on call is ([\w ]+)\.")


def _ending(values: Mapping[str, object], evaluation: Evaluation, way: script.Way) -> Instance:
    return Instance(values, evaluation, script.doing(way))


def open_it(ticket: Ticket) -> Instance:
    """Returns a task to open a ticket."""
    way = functools.partial(open_ticket, ticket=ticket)
    return _ending({"summary": ticket.summary}, ends_at(ticket_address(ticket)), way)


def wiki_page(project: Project, title: str) -> Instance:
    """Returns a task to open a page of the wiki."""
    address = f"__GITLAB__/wiki/{wiki_root(project)}/{title.replace(' ', '_')}"
    way: script.Way = lambda seen: open_wiki(seen, project, title)
    return _ending({"project": project.name, "title": title}, ends_at(address), way)


def report(number: int, title: str) -> Instance:
    """Returns a task to open one of the saved reports."""
    way: script.Way = lambda seen: open_menu(seen, "VIEW TICKETS", f"{{{number}}} {title}")
    return _ending({"title": title}, ends_at(f"__GITLAB__/report/{number}"), way)


# JavaScript that returns the numbers of the listed tickets, smallest first.
_LISTED = (
    "[...document.querySelectorAll('table.tickets td.id')]"
    ".map(cell => Number(cell.innerText.replace('#', ''))).sort((a, b) => a - b).join(' ')"
)


def list_of_milestone(stone: Milestone) -> Instance:
    """Returns a task to list the open tickets of a milestone; every way to the list is accepted."""
    wanted = [
        str(each.number) for each in tickets() if each.milestone == stone.name and each.is_open
    ]

    def way(observation: str) -> script.Script:
        observation = yield from open_milestone(observation, stone)
        return (yield from script.click(observation, "link", f"active: {len(wanted)}"))

    return _ending({"milestone": stone.name}, page_is("last", _LISTED, " ".join(wanted)), way)
