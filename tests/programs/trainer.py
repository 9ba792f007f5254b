"""A trainer for one agent program: scripted answers of a policy, and a real environment."""

import contextlib
import dataclasses
import http.server
import json
import threading

from agentgym_jax.programs.task import AgentTask, StepResult


@contextlib.contextmanager
def trainer(environment, data_idx, answers):
    """Yields the task of a program, the steps it made in the environment, and its requests."""
    steps, requests = [], []
    script = iter(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path.endswith("/environment/reset"):
                answer = {"observation": environment.reset(data_idx).observation}
            elif self.path.endswith("/environment/act"):
                result = environment.step(body["answer"])
                steps.append(result)
                found = StepResult(
                    result.observation, result.reward, result.done, result.score == 1
                )
                answer = dataclasses.asdict(found)
            else:
                requests.append(body["messages"])
                message = {"role": "assistant", "content": next(script)}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                answer = {"id": "a", "object": "chat.completion", "created": 0, "model": "m"}
                answer["choices"] = [choice]
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield AgentTask(url, "any", "policy", "terminals", data_idx, 0, 5, ""), steps, requests
    finally:
        server.shutdown()
        server.server_close()
