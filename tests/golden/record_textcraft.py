"""Records `textcraft_traffic.json`: requests to this project's TextCraft server, and the answers.

Default mode and compat mode are recorded.

    python tests/golden/record_textcraft.py

Run the script again only after intended changes of texts or tasks, and read the resulting diff. The
answers in compat mode were checked against traffic of the original server.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "envs"))
from serving import serving  # noqa: E402

OUT = pathlib.Path(__file__).with_name("textcraft_traffic.json")

ACTIONS = {
    125: [  # goal: acacia boat
        "inventory",
        "get 2 acacia logs",
        "get 1 acacia planks",
        "get 1 planks",
        "get 1 unicorn",
        "dance",
        "craft 1 acacia boat using 5 acacia planks",
        "craft 4 acacia planks using acacia logs",
        "craft 4 acacia planks using 2 acacia logs",
        "craft 4 acacia planks using 1 acacia logs",
        "craft acacia planks using 1 acacia logs",
        "inventory",
        "craft 1 acacia boat using 5 acacia planks",
        "inventory",
    ],
    543: ["craft 1 planks using 1 oak logs", "get 0 string", "get 99999999 string", "inventory"],
    400: [
        "get 1 oak logs",
        "craft 9 oak planks using 1 oak logs",
        "inventory please",
        "  inventory",
    ],
}


def requests() -> list[tuple[str, str, dict]]:
    """Returns the requests as (method, path, arguments).

    The arguments are the body of a POST or the query of a GET.
    """
    made = [("GET", "/", {}), ("POST", "/create", {}), ("POST", "/create", {"goal": "ignored"})]
    for data_idx, actions in ACTIONS.items():
        made.append(("POST", "/reset", {"id": 1, "data_idx": data_idx}))
        made.append(("GET", "/commands", {"id": 1}))
        made.append(("GET", "/goal", {"id": 1}))
        made += [("POST", "/step", {"id": 1, "action": action}) for action in actions]
        made.append(("GET", "/observation", {"id": 1}))
        made.append(("GET", "/detail", {"id": 1}))
    made += [("POST", "/reset", {"id": 0, "data_idx": data_idx}) for data_idx in (544, -1)]
    made += [("POST", "/reset", {"id": 0}), ("POST", "/reset", {"id": 0, "data_idx": None})]
    made += [("POST", "/step", {"id": "x", "action": "inventory"}), ("POST", "/step", {"id": 0})]
    made += [("POST", "/close", {"id": 1}), ("POST", "/close", {"id": 1})]
    made += [("POST", "/step", {"id": 1, "action": "inventory"}), ("GET", "/spec", {})]
    return made


def record(compat: bool) -> list[dict]:
    """Returns every request with the answer of a fresh server."""
    rows = []
    with serving("agentgym_envs.textcraft.served", compat=compat, max_body_bytes=10_000) as client:
        for method, path, arguments in requests():
            given = {"json": arguments} if method == "POST" else {"params": arguments}
            answer = client.request(method, path, **given)
            rows.append(
                {
                    "request": [method, path, arguments],
                    "status": answer.status_code,
                    "answer": answer.json(),
                }
            )
    return rows


def main() -> None:
    """Writes the recorded traffic."""
    traffic = {"default": record(compat=False), "compat": record(compat=True)}
    OUT.write_text(json.dumps(traffic, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
