"""Tasks that create and change items in Trac, with one function per template."""

import functools

from agentgym_envs.webarena.tasks import Edit, Evaluation
from agentgym_sites.tasks import script
from agentgym_sites.tasks.script import Script
from agentgym_sites.tasks.task import (
    Instance,
    added,
    changed,
    changes,
    impossible,
    refusing,
)
from agentgym_sites.tasks.trac_plays import (
    name_of,
    open_form,
    open_menu,
    open_ticket,
    open_wiki,
)
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

    def way(observation: str) -> Script:
        observation = yield from open_menu(observation, "NEW TICKET")
        observation = yield from script.fill(observation, "Summary:", summary)
        observation = yield from script.choose(observation, "Type:", kind)
        observation = yield from script.choose(observation, "Priority:", priority)
        observation = yield from script.choose(observation, "Component:", component)
        return (yield from script.click(observation, "button", "Create ticket"))

    values = {"component": component, "type": kind, "priority": priority, "summary": summary}
    ticket: Edit = added(SITE, "ticket", **values, reporter=AGENT, status="new")
    return Instance(values, changes(ticket), script.doing(way))


def comment(ticket: Ticket, text: str) -> Instance:
    """Returns a task to write a comment on a ticket."""

    def way(observation: str) -> Script:
        observation = yield from open_ticket(observation, ticket)
        observation = yield from script.fill(observation, "You may use", text)
        return (yield from script.click(observation, "button", _SUBMIT))

    return Instance(
        {"summary": ticket.summary, "text": text},
        changes(added(SITE, "ticket_change", ticket=ticket.summary, author=AGENT, newvalue=text)),
        script.doing(way),
    )


def _choosing(ticket: Ticket, field: str, option: str):
    def way(observation: str) -> Script:
        observation = yield from open_form(observation, ticket)
        observation = yield from script.choose(observation, field, option)
        return (yield from script.click(observation, "button", _SUBMIT))

    return script.doing(way)


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
    way = functools.partial(open_form, ticket=ticket)
    values = {"summary": ticket.summary, "milestone": name}
    return Instance(values, impossible(), refusing(way))


def _deciding(observation: str, ticket: Ticket, deed: str, box: str, option: str) -> Script:
    """Performs one of the actions below the fields of a ticket, such as closing it."""
    observation = yield from open_form(observation, ticket)
    observation = yield from script.click(observation, "radio", deed)
    observation = yield from script.choose(observation, box, option, after=deed)
    return (yield from script.click(observation, "button", _SUBMIT))


def close(ticket: Ticket, resolution: str) -> Instance:
    """Returns a task to close a ticket with a resolution."""
    way = functools.partial(_deciding, ticket=ticket, deed="resolve", box="", option=resolution)
    return Instance(
        {"summary": ticket.summary, "resolution": resolution},
        _ticket(ticket, status="closed", resolution=resolution),
        script.doing(way),
    )


def assign(ticket: Ticket, person: str) -> Instance:
    """Returns a task to change the owner of a ticket."""
    name = name_of(person)
    way = functools.partial(_deciding, ticket=ticket, deed="assign", box="", option=name)
    return Instance(
        {"summary": ticket.summary, "person": name},
        _ticket(ticket, owner=person, status="assigned"),
        script.doing(way),
    )


def new_milestone(name: str, text: str) -> Instance:
    """Returns a task to create a milestone without a date."""

    def way(observation: str) -> Script:
        observation = yield from open_menu(observation, "ROADMAP")
        observation = yield from script.click(observation, "button", "Add new milestone")
        observation = yield from script.fill(observation, "Name:", name)
        observation = yield from script.fill(observation, "Description:", text)
        return (yield from script.click(observation, "button", "Add milestone"))

    check = changes(added(SITE, "milestone", name=name, description=text))
    return Instance({"name": name, "text": text}, check, script.doing(way))


def rewrite_page(project: Project, text: str) -> Instance:
    """Returns a task to replace the text of a project's glossary."""

    def way(observation: str) -> Script:
        observation = yield from open_wiki(observation, project, "Glossary")
        observation = yield from script.click(observation, "button", "Edit this page")
        observation = yield from script.fill(
            observation, "", text, after="side-by-side", is_empty=False
        )
        return (yield from script.click(observation, "button", _SUBMIT))

    return Instance(
        {"project": project.name, "text": text},
        changes(changed(SITE, "wiki", {"text": text}, name=f"{wiki_root(project)}/Glossary")),
        script.doing(way),
    )
