"""The seed data as one JSON document, which the Ruby part reads."""

import dataclasses
from typing import Any

from agentgym_envs.webarena.sites.redmine import issues, pages, projects, repositories


def tables() -> dict[str, Any]:
    """Everything that is seeded, as JSON types; see seed.rb."""
    return {
        "agent": projects.AGENT,
        "password": projects.PASSWORD,
        "admin_password": projects.ADMIN_PASSWORD,
        "people": [
            {"login": login, "first": first, "last": last}
            for login, (first, last) in projects.PEOPLE.items()
        ],
        "projects": [dataclasses.asdict(project) for project in projects.PROJECTS],
        "issues": [
            dataclasses.asdict(issue) | {"updated": issue.updated, "closed_on": issue.closed_on}
            for issue in issues.issues()
        ],
        "wiki": [dataclasses.asdict(page) for page in pages.wiki_pages()],
        "news": [dataclasses.asdict(item) for item in pages.news()],
        "repositories": list(repositories.COMMITS),
    }
