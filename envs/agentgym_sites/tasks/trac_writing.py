"""Tasks that create and change items in Trac, with one function per template."""

from agentgym_envs.webarena.tasks import Edit, Evaluation
from agentgym_sites.tasks.script import Play, Way, choose, click, doing, fill, in_order
from agentgym_sites.tasks.task import Instance, added, changed, changes, impossible, refusing
from agentgym_sites.tasks.trac_plays import name_of, open_form, open_menu, open_ticket, open_wiki
from agentgym_sites.trac.projects import AGENT, Project
from agentgym_sites.trac.tables import wiki_root
from agentgym_sites.trac.tickets import Ticket

SITE = "gitlab"
_SUBMIT = "Submit changes"


def _ticket(ticket: Ticket, **to: str) -> Evaluation:
    """Returns an evaluation that requires new values of a ticket's fields."""
    return changes(changed(SITE, "ticket", to, summary=ticket.summary))


def create(component: str, kind: str, priority: str, summary: str) -> Instance:
    """Returns a task to create a ticket."""
    play = doing(
        open_menu("NEW TICKET"),
        fill("Summary:", summary),
        choose("Type:", kind),
        choose("Priority:", priority),
        choose("Component:", component),
        click("button", "Create ticket"),
    )
    values = {"component": component, "type": kind, "priority": priority, "summary": summary}
    ticket: Edit = added(SITE, "ticket", **values, reporter=AGENT, status="new")
    return Instance(values, changes(ticket), play)


def comment(ticket: Ticket, text: str) -> Instance:
    """Returns a task to write a comment on a ticket."""
    play = doing(open_ticket(ticket), fill("You may use", text), click("button", _SUBMIT))
    return Instance(
        {"summary": ticket.summary, "text": text},
        changes(added(SITE, "ticket_change", ticket=ticket.summary, author=AGENT, newvalue=text)),
        play,
    )


def _choosing(ticket: Ticket, field: str, option: str) -> Play:
    return doing(open_form(ticket), choose(field, option), click("button", _SUBMIT))


def priority(ticket: Ticket, name: str) -> Instance:
    """Returns a task to change the priority of a ticket."""
    return Instance(
        {"summary": ticket.summary, "priority": name},
        _ticket(ticket, priority=name),
        _choosing(ticket, "Priority:", name),
    )


def milestone(ticket: Ticket, name: str) -> Instance:
    """Returns a task to change the milestone of a ticket."""
    return Instance(
        {"summary": ticket.summary, "milestone": name},
        _ticket(ticket, milestone=name),
        _choosing(ticket, "Milestone:", name),
    )


def no_milestone(ticket: Ticket, name: str) -> Instance:
    """Returns an impossible task: to move a ticket to a milestone that does not exist."""
    values = {"summary": ticket.summary, "milestone": name}
    return Instance(values, impossible(), refusing(open_form(ticket)))


def _deciding(ticket: Ticket, deed: str, box: str, option: str) -> Way:
    """Performs one of the actions below the fields of a ticket, such as closing it."""
    return in_order(
        open_form(ticket),
        click("radio", deed),
        choose(box, option, after=deed),
        click("button", _SUBMIT),
    )


def close(ticket: Ticket, resolution: str) -> Instance:
    """Returns a task to close a ticket with a resolution."""
    way = _deciding(ticket, "resolve", "", resolution)
    return Instance(
        {"summary": ticket.summary, "resolution": resolution},
        _ticket(ticket, status="closed", resolution=resolution),
        doing(way),
    )


def assign(ticket: Ticket, person: str) -> Instance:
    """Returns a task to change the owner of a ticket."""
    name = name_of(person)
    way = _deciding(ticket, "assign", "", name)
    return Instance(
        {"summary": ticket.summary, "person": name},
        _ticket(ticket, owner=person, status="assigned"),
        doing(way),
    )


def new_milestone(name: str, text: str) -> Instance:
    """Returns a task to create a milestone without a date."""
    play = doing(
        open_menu("ROADMAP"),
        click("button", "Add new milestone"),
        fill("Name:", name),
        fill("Description:", text),
        click("button", "Add milestone"),
    )
    check = changes(added(SITE, "milestone", name=name, description=text))
    return Instance({"name": name, "text": text}, check, play)


def rewrite_page(project: Project, text: str) -> Instance:
    """Returns a task to replace the text of a project's glossary."""
    play = doing(
        open_wiki(project, "Glossary"),
        click("button", "Edit this page"),
        fill("", text, after="side-by-side", is_empty=False),
        click("button", _SUBMIT),
    )
    return Instance(
        {"project": project.name, "text": text},
        changes(changed(SITE, "wiki", {"text": text}, name=f"{wiki_root(project)}/Glossary")),
        play,
    )
