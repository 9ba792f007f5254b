"""An MCP server that misbehaves as its arguments say; started by test_mcp.py."""

import json
import os
import subprocess
import sys
import time

TOOL = {
    "name": "do",
    "description": "Does a thing.",
    "inputSchema": {"type": "object", "properties": {"thing": {"type": "string"}}},
}
STATE = {"count": 0}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        return {"result": {"protocolVersion": params["protocolVersion"], "capabilities": {}}}
    if method == "tools/list":
        names = sys.argv[1].split(",") if len(sys.argv) > 1 else ["do"]
        at = int(params.get("cursor", "0"))
        page = {"tools": [TOOL | {"name": names[at]}]}
        return {"result": page | ({"nextCursor": str(at + 1)} if at + 1 < len(names) else {})}
    return call(params.get("arguments", {}).get("thing", ""))


def call(thing):
    if thing == "die":
        sys.stderr.write("out of luck\n")
        sys.exit(3)
    if thing == "hang":
        time.sleep(1000)  # reached
    if thing == "flood":
        while True:
            sys.stdout.write("x" * 65536)
    if thing == "chatter":
        while True:
            sys.stdout.write("{}\n")
            sys.stdout.flush()
    if thing == "refuse":
        return {"error": {"code": -32602, "message": "no such thing"}}
    if thing == "chat":
        sys.stdout.write("a greeting\n[1]\n")
        send({"id": "p", "method": "ping"})
        STATE["pong"] = json.loads(sys.stdin.readline())["result"]
    if thing == "orphan":
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True, **quiet)
        STATE["orphan"] = str(child.pid)
    if thing == "unended":
        sys.stdout.write("no line end")
    if thing == "garbage":
        return {"result": 7}
    STATE["count"] += 1
    texts = {"long": "y" * 1000, "pid": str(os.getpid()), "count": str(STATE["count"]), "": ""}
    texts["orphan"] = STATE.get("orphan")
    blocks = [{"type": "text", "text": texts.get(thing, f"did {thing}")}]
    if thing == "image":
        blocks.append({"type": "image", "data": "", "mimeType": "image/png"})
    return {"result": {"content": blocks, "isError": thing == "error"}}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        send({"id": request["id"], **answer(request)})
