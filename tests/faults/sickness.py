"""Permanent server failures."""

from tests.faults import runs
from tests.faults.proxy import Fault

SICK = {
    "500 to everything": lambda route: Fault.STATUS_500,
    "hangs up on everything": lambda route: Fault.DROP,
    "garbage to everything": lambda route: Fault.NO_JSON,
    "no answer in time": lambda route: Fault.STALL,
    "every step an error": lambda route: Fault.ERROR_200 if route == "/step" else None,
}
# Timeouts of client and pool that are short enough for a test that reaches them.
SICK_OPTIONS = {
    "client": {"step_timeout_s": 5.0},  # reached
    "pool": {"breaker_patience_s": 2.0, "close_timeout_s": 1.0},  # reached
}


def after_the_first_step(workdir, sickness):
    """Returns a proxy schedule whose faults begin after the line of step 1 is written.

    Requests for the spec have no faults, so that a new start of the run can connect.
    """

    def schedule(route):
        is_later = (workdir / "metrics.jsonl").exists() and len(runs.lines(workdir)) == 1
        return sickness(route) if is_later and route != "/spec" else None

    return schedule
