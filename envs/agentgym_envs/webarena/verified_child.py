"""Scoring of episodes with webarena-verified; `verified.py` runs this file in another interpreter.

The file imports nothing of this project, because that interpreter may not have the project
installed. It reads one JSON object from standard input and writes one JSON list to standard output.
"""

import json
import logging
import pathlib
import sys
from typing import Any

# placeholder trace for a task that is scored by its answer alone, because the library rejects an
# empty trace
NO_REQUESTS = [
    {
        "request": {"url": "http://nowhere.test/", "method": "GET", "headers": []},
        "response": {"status": 200, "redirectURL": "", "headers": []},
    }
]


def main() -> None:
    """Scores all cases of standard input."""
    logging.disable(logging.CRITICAL)  # the library would log its result
    from webarena_verified import WebArenaVerified
    from webarena_verified.types.config import WebArenaVerifiedConfig

    work = json.load(sys.stdin)
    environments = {name: {"urls": [url]} for name, url in work["urls"].items()}
    library = WebArenaVerified(config=WebArenaVerifiedConfig(environments=environments))
    json.dump([_score(library, case) for case in work["cases"]], sys.stdout)


def _score(library: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Returns the score (or None), the status and the message of one case."""
    trace = pathlib.Path(case["trace"]) if case["trace"] else NO_REQUESTS
    result = library.evaluate_task(
        task_id=case["task_id"], agent_response=case["answer"], network_trace=trace
    )
    status = str(result.status)
    score = None if status == "error" else float(result.score)
    return {"score": score, "status": status, "message": result.error_msg or ""}


if __name__ == "__main__":
    main()
