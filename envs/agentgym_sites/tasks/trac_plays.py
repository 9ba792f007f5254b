"""Navigation and reading steps that several solutions on Trac use."""

from agentgym_sites.tasks import script
from agentgym_sites.tasks.script import Node, Reader, Way, click, fill, in_order
from agentgym_sites.trac.projects import Project, full_name
from agentgym_sites.trac.tables import Milestone
from agentgym_sites.trac.tickets import Ticket

_MENU = ("WIKI", "TIMELINE", "ROADMAP", "VIEW TICKETS", "NEW TICKET", "SEARCH")


def ticket_address(ticket: Ticket) -> str:
    """Returns the address of a ticket's page, with a placeholder for the site."""
    return f"__GITLAB__/ticket/{ticket.number}"


def open_menu(entry: str, *links: str) -> Way:
    """Opens an entry of the menu, one of _MENU, and follows the links, one after another."""
    assert entry in _MENU
    return in_order(*(click("link", name) for name in (entry, *links)))


def open_ticket(ticket: Ticket) -> Way:
    """Searches for a ticket and opens it."""
    # The search field has no name, but it is the first field of a page.
    return in_order(fill("", ticket.summary, enter=True), click("link", ticket.summary))


def open_milestone(milestone: Milestone) -> Way:
    """Opens the page of an open milestone from the roadmap."""
    return open_menu("ROADMAP", f"Milestone: {milestone.name}")


def open_wiki(project: Project, *titles: str) -> Way:
    """Opens the wiki of a project and follows the links with the given titles."""
    return open_menu("WIKI", project.name, *titles)


def open_form(ticket: Ticket) -> Way:
    """Opens the collapsed form below a ticket."""
    return in_order(open_ticket(ticket), click("link", "Modify Ticket"))


def value_of(field: str) -> Reader:
    """Returns a reader that finds the value of a field in the table at the top of a ticket."""

    def read(page: list[Node]) -> str:
        places = [n for n, node in enumerate(page) if node.role == "rowheader"]
        place = script.first((n for n in places if page[n].name == field), f"field {field!r}")
        return page[place + 1].name

    return read


def name_of(login: str) -> str:
    """Returns the full name of a person as shown on pages; "" if the login is ""."""
    return full_name(login) if login else ""
