"""Scores episodes with webarena-verified; run by `verified.py` in an interpreter that has it.

It imports nothing of this project, because that interpreter need not have it. Reads one JSON object from
standard input and writes one JSON list to standard output.
"""

import json
import logging
import pathlib
import sys
from typing import Any

# What the library wants where a task is scored by its answer alone: it takes no empty trace.
NO_REQUESTS = [
    {
        "request": {"url": "http://nowhere.test/", "method": "GET", "headers": []},
        "response": {"status": 200, "redirectURL": "", "headers": []},
    }
]


def main() -> None:
    """Scores all cases of standard input."""
    logging.disable(logging.CRITICAL)  # the library logs what it returns
    from webarena_verified import WebArenaVerified
    from webarena_verified.types.config import WebArenaVerifiedConfig

    work = json.load(sys.stdin)
    environments = {name: {"urls": [url]} for name, url in work["urls"].items()}
    library = WebArenaVerified(config=WebArenaVerifiedConfig(environments=environments))
    json.dump([_score(library, case) for case in work["cases"]], sys.stdout)


def _score(library: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Score, status and message of one case; no score where the library has none."""
    trace = pathlib.Path(case["trace"]) if case["trace"] else NO_REQUESTS
    result = library.evaluate_task(
        task_id=case["task_id"], agent_response=case["answer"], network_trace=trace
    )
    status = str(result.status)
    score = None if status == "error" else float(result.score)
    return {"score": score, "status": status, "message": result.error_msg or ""}


if __name__ == "__main__":
    main()
