"""MCP server of a small shop, and its tasks: what `python -m agentgym_envs mcp` serves by default.

It speaks the protocol itself, so it needs no package and starts within milliseconds.
"""

import itertools
import json
import sys
from typing import Any

_ITEMS = {
    "apple": (3, 1.5),
    "pear": (0, 2.0),
    "fig": (7, 0.5),
    "plum": (12, 0.25),
    "melon": (2, 4.0),
    "lemon": (5, 0.75),
}
_ITEM = {
    "type": "object",
    "properties": {"item": {"type": "string", "enum": list(_ITEMS), "description": "Name."}},
    "required": ["item"],
}
_TOOLS = {
    "stock": "Returns how many pieces of an item are in stock.",
    "price": "Returns the price of one piece of an item.",
}


def rows() -> list[dict[str, Any]]:
    """Returns the rows of the tasks."""
    found = []
    for first, second in itertools.permutations(_ITEMS, 2):
        calls = [_call("stock", first), _call("stock", second)]
        total = _ITEMS[first][0] + _ITEMS[second][0]
        text = f"How many pieces of {first} and {second} are in stock together?"
        found.append({"instruction": text, "answer": total, "solution": calls})
    for item, (stock, price) in _ITEMS.items():
        calls = [_call("stock", item), _call("price", item)]
        text = f"What do all pieces of {item} in stock cost together?"
        found.append({"instruction": text, "answer": stock * price, "solution": calls})
    return found


def _call(name: str, item: str) -> dict[str, Any]:
    return {"name": name, "arguments": {"item": item}}


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Returns the result of a request."""
    if method == "initialize":
        server = {"name": "shop", "version": "1"}
        version = params.get("protocolVersion")
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        entries = [{"name": n, "description": d, "inputSchema": _ITEM} for n, d in _TOOLS.items()]
        return {"tools": entries}
    name, item = params.get("name"), params.get("arguments", {}).get("item")
    is_known = method == "tools/call" and name in _TOOLS and item in _ITEMS
    text = str(_ITEMS[item][name == "price"]) if is_known else f"there is no {item!r} in the shop"
    return {"content": [{"type": "text", "text": text}], "isError": not is_known}


def main() -> None:
    """Answers requests on stdin until it ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = _answer(request["method"], request.get("params", {}))
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
