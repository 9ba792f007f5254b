"""The conformance checks of all environments, applied to web navigation.

The tiny site is used because the full sites take minutes to build.
"""

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.conformance import suite
from agentgym_envs.webarena.browser.launch import require_browser

pytestmark = pytest.mark.slow

try:
    require_browser()
except SetupError as error:
    pytest.skip(str(error), allow_module_level=True)


def test_web_navigation_has_every_property():
    report = []
    status = suite.run(
        "tests.envs.webarena.browser_pages", compat=False, tasks=1, actions=3, write=report.append
    )
    assert status == 0, "".join(report)
    assert "".join(report).count(" ok") == len(suite.PROPERTIES)
