"""Tasks that create and change things in Trac: one function for each template."""

import functools

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.script import Script
from agentgym_envs.webarena.embedded.task import Instance, all_of, page_has, page_is
from agentgym_envs.webarena.embedded.trac_plays import (
    name_of,
    open_form,
    open_menu,
    open_ticket,
    open_wiki,
    ticket_address,
)
from agentgym_envs.webarena.sites.trac.projects import Project
from agentgym_envs.webarena.sites.trac.tables import wiki_root
from agentgym_envs.webarena.sites.trac.tickets import Ticket, tickets

NEXT_TICKET = len(tickets()) + 1  # number of the next ticket
_SUBMIT = "Submit changes"


def _text(selector: str) -> str:
    return f"document.querySelector({selector!r}).innerText.trim()"


def _field(name: str) -> str:
    """The value of a field in the table on top of a ticket."""
    return _text(f'td[headers="h_{name}"]')


def create(component: str, kind: str, priority: str, summary: str) -> Instance:
    """A new ticket."""

    def way(observation: str) -> Script:
        observation = yield from open_menu(observation, "NEW TICKET")
        observation = yield from script.fill(observation, "Summary:", summary)
        observation = yield from script.choose(observation, "Type:", kind)
        observation = yield from script.choose(observation, "Priority:", priority)
        observation = yield from script.choose(observation, "Component:", component)
        return (yield from script.click(observation, "button", "Create ticket"))

    url = f"__GITLAB__/ticket/{NEXT_TICKET}"
    return Instance(
        {"component": component, "type": kind, "priority": priority, "summary": summary},
        all_of(
            page_is(url, _text("#ticket .summary"), summary),
            page_is(url, _text(".trac-type"), kind),
            page_is(url, _field("priority"), priority),
            page_is(url, _field("component"), component),
        ),
        script.doing(way),
    )


def comment(ticket: Ticket, text: str) -> Instance:
    """A new comment."""

    def way(observation: str) -> Script:
        observation = yield from open_ticket(observation, ticket)
        observation = yield from script.fill(observation, "You may use", text)
        return (yield from script.click(observation, "button", _SUBMIT))

    return Instance(
        {"summary": ticket.summary, "text": text},
        page_has(ticket_address(ticket), text, locator=_text("#changelog")),
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
        page_is(ticket_address(ticket), _field("priority"), name),
        _choosing(ticket, "Priority:", name),
    )


def milestone(ticket: Ticket, name: str) -> Instance:
    """Another milestone."""
    return Instance(
        {"summary": ticket.summary, "milestone": name},
        page_is(ticket_address(ticket), _field("milestone"), name),
        _choosing(ticket, "Milestone:", name),
    )


def _deciding(observation: str, ticket: Ticket, deed: str, box: str, option: str) -> Script:
    """Takes one of the deeds below the fields of a ticket, with what it asks for."""
    observation = yield from open_form(observation, ticket)
    observation = yield from script.click(observation, "radio", deed)
    observation = yield from script.choose(observation, box, option, after=deed)
    return (yield from script.click(observation, "button", _SUBMIT))


def close(ticket: Ticket, resolution: str) -> Instance:
    """A ticket is closed."""
    way = functools.partial(_deciding, ticket=ticket, deed="resolve", box="", option=resolution)
    url = ticket_address(ticket)
    return Instance(
        {"summary": ticket.summary, "resolution": resolution},
        all_of(
            page_is(url, _text(".trac-status"), "closed"),
            page_is(url, _text(".trac-resolution"), f"({resolution})"),
        ),
        script.doing(way),
    )


def assign(ticket: Ticket, person: str) -> Instance:
    """Another owner."""
    name = name_of(person)
    way = functools.partial(_deciding, ticket=ticket, deed="assign", box="", option=name)
    return Instance(
        {"summary": ticket.summary, "person": name},
        page_is(ticket_address(ticket), _field("owner"), name),
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

    url = f"__GITLAB__/milestone/{name.replace(' ', '%20')}"
    return Instance(
        {"name": name, "text": text},
        all_of(
            page_has(url, name, locator=_text("#content h1")),
            page_is(url, _text("#content .description"), text),
        ),
        script.doing(way),
    )


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
        page_is(f"__GITLAB__/wiki/{wiki_root(project)}/Glossary", _text("#wikipage"), text),
        script.doing(way),
    )
