"""Rules for comparing Trac's database (format: `agentgym_sites/content.py`)."""

from agentgym_sites.content import Content, Table

CONTENT: Content = {
    # Ignored: sessions and caches.
    "auth_cookie": None,
    "cache": None,
    "session": None,
    # all other session attributes store the last ticket query
    "session_attribute": Table(where="name IN ('name', 'email')"),
    "ticket": Table(free=("changetime", "time")),
    # The ticket's row contains the last value of each field. In this table, only comments are
    # compared.
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
