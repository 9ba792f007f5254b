"""Tasks that read Trac or open one of its pages, with one function per template."""

from agentgym_envs.webarena.tasks import Evaluation
from agentgym_sites.tasks import script
from agentgym_sites.tasks.script import Node, Reader, answering, click, doing, matching
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
    return Instance({"summary": ticket.summary}, evaluation, answering(open_ticket(ticket), read))


def owner(ticket: Ticket) -> Instance:
    """Returns a task that asks for the owner of a ticket."""
    return _about_ticket(ticket, answer_has(name_of(ticket.owner)), value_of("Owned by:"))


def no_owner(ticket: Ticket) -> Instance:
    """Returns an impossible task, which asks for the owner of a ticket without an owner."""
    return Instance({"summary": ticket.summary}, impossible(), refusing(open_ticket(ticket)))


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
    read = matching(r"\((\d{4}-\d\d-\d\d)T")
    return Instance(
        {"milestone": stone.name},
        answer_is(stone.due),
        answering(open_milestone(stone), read),
    )


def open_of_milestone(stone: Milestone) -> Instance:
    """Returns a task that asks for the number of open tickets of a milestone."""
    count = sum(each.is_open for each in tickets() if each.milestone == stone.name)
    return Instance(
        {"milestone": stone.name},
        answer_is(str(count)),
        answering(open_milestone(stone), matching(r"^active: (\d+)$")),
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

    return Instance(
        {"milestone": stone.name, "priority": wanted},
        answer_is(str(count)),
        answering(open_milestone(stone), read),
    )


def _in_operations(project: Project, evaluation: Evaluation, pattern: str) -> Instance:
    play = answering(open_wiki(project, "Operations"), matching(pattern))
    return Instance({"project": project.name}, evaluation, play)


def port(project: Project) -> Instance:
    """Returns a task that asks for the port of a service, which is in the wiki."""
    return _in_operations(project, answer_is(str(project.port)), r"listens on port (\d+)\.")


def on_call(project: Project) -> Instance:
    """Returns a task that asks for the person on call, who is named in the wiki."""
    answer = answer_has(name_of(project.on_call))
    return _in_operations(project, answer, r"person on call is ([\w ]+)\.")


def open_it(ticket: Ticket) -> Instance:
    """Returns a task to open a ticket."""
    check = ends_at(ticket_address(ticket))
    return Instance({"summary": ticket.summary}, check, doing(open_ticket(ticket)))


def wiki_page(project: Project, title: str) -> Instance:
    """Returns a task to open a page of the wiki."""
    address = f"__GITLAB__/wiki/{wiki_root(project)}/{title.replace(' ', '_')}"
    values = {"project": project.name, "title": title}
    return Instance(values, ends_at(address), doing(open_wiki(project, title)))


def report(number: int, title: str) -> Instance:
    """Returns a task to open one of the saved reports."""
    play = doing(open_menu("VIEW TICKETS", f"{{{number}}} {title}"))
    return Instance({"title": title}, ends_at(f"__GITLAB__/report/{number}"), play)


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
    play = doing(open_milestone(stone), click("link", f"active: {len(wanted)}"))
    check = page_is("last", _LISTED, " ".join(wanted))
    return Instance({"milestone": stone.name}, check, play)
