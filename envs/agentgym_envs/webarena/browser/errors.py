"""Errors of actions and pages."""


class ActionRefused(Exception):
    """Error for an impossible action; its message is for the agent, whose episode continues."""


class PageLost(Exception):
    """Error for a page or site that broke down without the agent's fault; the episode is lost."""


class PageHung(Exception):
    """Error for a page that does not respond because of its scripts; the episode ends as failed."""


class BrowserLost(Exception):
    """Error for a browser process that is gone, together with all its episodes."""
