"""The content of Trac's database: see `sites/content.py`."""

from agentgym_envs.webarena.sites.content import Content, Table

CONTENT: Content = {
    # Sessions and what Trac keeps to be quick.
    "auth_cookie": None,
    "cache": None,
    "session": None,
    "session_attribute": Table(where="name IN ('name', 'email')"),  # the rest is the last query
    "ticket": Table(free=("changetime", "time")),
    # The history of a ticket's fields ends in its row; what people wrote does not.
    "ticket_change": Table(
        free=("field", "oldvalue", "time"),
        named={"ticket": "(SELECT summary FROM ticket AS t WHERE t.id = ticket)"},
        where="field = 'comment' AND newvalue <> ''",
    ),
    "wiki": Table(
        free=("author", "comment", "time", "version"),
        where="version = (SELECT max(version) FROM wiki AS w WHERE w.name = wiki.name)",
    ),
}
