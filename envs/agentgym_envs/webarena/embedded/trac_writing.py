"""Tasks that create and change things in Trac: one function for each template."""

import functools

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.script import Script
from agentgym_envs.webarena.embedded.task import (
    Instance,
    added,
    changed,
    changes,
    impossible,
    refusing,
)
from agentgym_envs.webarena.embedded.trac_plays import (
    name_of,
    open_form,
    open_menu,
    open_ticket,
    open_wiki,
)
from agentgym_envs.webarena.sites.trac.projects import AGENT, Project
from agentgym_envs.webarena.sites.trac.tables import wiki_root
from agentgym_envs.webarena.sites.trac.tickets import Ticket
from agentgym_envs.webarena.tasks import Edit, Evaluation

SITE = "gitlab"
_SUBMIT = "Submit changes"


def _ticket(ticket: Ticket, **to: str) -> Evaluation:
    """New values of a ticket's fields."""
    return changes(changed(SITE, "ticket", to, summary=ticket.summary))


def create(component: str, kind: str, priority: str, summary: str) -> Instance:
    """A new ticket."""

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
    """A new comment."""

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
    """Another priority."""
    return Instance(
        {"summary": ticket.summary, "priority": name},
        _ticket(ticket, priority=name),
        _choosing(ticket, "Priority:", name),
    )


def milestone(ticket: Ticket, name: str) -> Instance:
    """Another milestone."""
    return Instance(
        {"summary": ticket.summary, "milestone": name},
        _ticket(ticket, milestone=name),
        _choosing(ticket, "Milestone:", name),
    )


def no_milestone(ticket: Ticket, name: str) -> Instance:
    """A milestone that is not there."""
    way = functools.partial(open_form, ticket=ticket)
    values = {"summary": ticket.summary, "milestone": name}
    return Instance(values, impossible(), refusing(way))


def _deciding(observation: str, ticket: Ticket, deed: str, box: str, option: str) -> Script:
    """Takes one of the deeds below the fields of a ticket, with what it asks for."""
    observation = yield from open_form(observation, ticket)
    observation = yield from script.click(observation, "radio", deed)
    observation = yield from script.choose(observation, box, option, after=deed)
    return (yield from script.click(observation, "button", _SUBMIT))


def close(ticket: Ticket, resolution: str) -> Instance:
    """A ticket is closed."""
    way = functools.partial(_deciding, ticket=ticket, deed="resolve", box="", option=resolution)
    return Instance(
        {"summary": ticket.summary, "resolution": resolution},
        _ticket(ticket, status="closed", resolution=resolution),
        script.doing(way),
    )


def assign(ticket: Ticket, person: str) -> Instance:
    """Another owner."""
    name = name_of(person)
    way = functools.partial(_deciding, ticket=ticket, deed="assign", box="", option=name)
    return Instance(
        {"summary": ticket.summary, "person": name},
        _ticket(ticket, owner=person, status="assigned"),
        script.doing(way),
    )


def new_milestone(name: str, text: str) -> Instance:
    """A new milestone without a date."""

    def way(observation: str) -> Script:
        observation = yield from open_menu(observation, "ROADMAP")
        observation = yield from script.click(observation, "button", "Add new milestone")
        observation = yield from script.fill(observation, "Name:", name)
        observation = yield from script.fill(observation, "Description:", text)
        return (yield from script.click(observation, "button", "Add milestone"))

    check = changes(added(SITE, "milestone", name=name, description=text))
    return Instance({"name": name, "text": text}, check, script.doing(way))


def rewrite_page(project: Project, text: str) -> Instance:
    """The glossary of a project becomes another text."""

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
