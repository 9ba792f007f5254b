"""Web navigation keeps what all environments promise; tried on a tiny site, as real ones take minutes."""

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.conformance import suite
from agentgym_envs.webarena.browser.launch import require_browser

try:
    require_browser()
except SetupError as error:
    pytest.skip(str(error), allow_module_level=True)


def test_every_promise_is_kept():
    report = []
    status = suite.run("browser_pages", compat=False, tasks=1, actions=3, write=report.append)
    assert status == 0, "".join(report)
    assert "".join(report).count(" ok") == len(suite.PROPERTIES)
