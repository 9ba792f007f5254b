"""What can go wrong between an action and the page."""


class ActionRefused(Exception):
    """The action cannot be done; the message is for the agent, whose episode goes on."""


class PageLost(Exception):
    """The page or its site broke down through no fault of the agent: the episode is lost."""


class PageHung(Exception):
    """The page's scripts keep it from answering: the episode ends and has failed."""


class BrowserLost(Exception):
    """The browser process is gone, and all episodes in it."""
