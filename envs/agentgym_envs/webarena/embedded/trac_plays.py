"""Ways through Trac that its solutions share."""

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.script import Node, Reader, Script
from agentgym_envs.webarena.sites.trac.pages import full_name
from agentgym_envs.webarena.sites.trac.projects import Project
from agentgym_envs.webarena.sites.trac.tables import Milestone
from agentgym_envs.webarena.sites.trac.tickets import Ticket

_MENU = ("WIKI", "TIMELINE", "ROADMAP", "VIEW TICKETS", "NEW TICKET", "SEARCH")


def ticket_address(ticket: Ticket) -> str:
    """Of a ticket's page."""
    return f"__GITLAB__/ticket/{ticket.number}"


def open_menu(observation: str, entry: str, *links: str) -> Script:
    """Follows an entry of the menu, one of _MENU, and links from there."""
    assert entry in _MENU
    observation = yield from script.click(observation, "link", entry)
    for name in links:
        observation = yield from script.click(observation, "link", name)
    return observation


def open_ticket(observation: str, ticket: Ticket) -> Script:
    """Searches for a ticket and opens it."""
    # The field of the search has no name and is the first one of a page.
    observation = yield from script.fill(observation, "", ticket.summary, enter=True)
    return (yield from script.click(observation, "link", ticket.summary))


def open_milestone(observation: str, milestone: Milestone) -> Script:
    """Opens a milestone that is not completed by the roadmap."""
    name = f"Milestone: {milestone.name}"
    return (yield from open_menu(observation, "ROADMAP", name))


def open_wiki(observation: str, project: Project, *titles: str) -> Script:
    """Opens the wiki of a project and follows links from there."""
    return (yield from open_menu(observation, "WIKI", project.name, *titles))


def open_form(observation: str, ticket: Ticket) -> Script:
    """Opens the form below a ticket, which is folded, for the fields and the deeds."""
    observation = yield from open_ticket(observation, ticket)
    return (yield from script.click(observation, "link", "Modify Ticket"))


def value_of(field: str) -> Reader:
    """Reads a field in the table on top of a ticket.

    Args:
      field: its name with a colon.
    """

    def read(page: list[Node]) -> str:
        places = [n for n, node in enumerate(page) if node.role == "rowheader"]
        place = script.first((n for n in places if page[n].name == field), f"field {field!r}")
        return page[place + 1].name

    return read


def name_of(login: str) -> str:
    """How a person is called on the pages; nobody has no name."""
    return full_name(login) if login else ""
