"""The OpenAPI description of the server: it lists exactly the existing routes.

Requests generated from the description must not cause server errors.
"""

import warnings

import hypothesis
import pytest

from tests.envs.serving import serving
from tests.examples import fixed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # suppresses the library's warnings about its own dependencies
    import schemathesis

EXAMPLES = 15  # number of examples per route and mode
SERVERS = [("agentgym_envs.textcraft.served", False), ("tests.envs.base.cellar", True)]


@pytest.fixture(scope="module", params=SERVERS, ids=str)
def server(request):
    module, compat = request.param
    with serving(module, compat=compat, capacity=10_000) as client:
        prefix = "/cellar" if module.endswith("cellar") else ""
        for _ in range(3):  # makes some of the generated session ids valid
            session_id = client.post(f"{prefix}/create", json={"id": 0}).json()["id"]
            client.post(f"{prefix}/reset", json={"id": session_id, "data_idx": 0, "game": 0})
        yield client


def operations(server):
    schema = schemathesis.openapi.from_dict(server.get("/openapi.json").json())
    schema.config.update(base_url=str(server.base_url))
    return [result.ok() for result in schema.get_all_operations()]


@pytest.mark.slow
def test_requests_generated_from_the_description_cause_no_server_errors(server):
    for operation in operations(server):
        modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
        for mode in modes:

            @fixed(EXAMPLES, checks=False)
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def ask(case):
                answer = case.call()
                assert answer.status_code < 500, (case, answer.text)
                if answer.status_code == 422 and "error" in answer.json():
                    assert set(answer.json()) == {"error", "type"}

            try:
                ask()
            except hypothesis.errors.Unsatisfiable:
                continue  # a route without parameters has no invalid request
    assert server.get("/health").json()["worker_restarts"] == 0


def test_the_described_routes_are_exactly_the_existing_ones(server):
    paths = server.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method in ("get", "post"):
            status = server.request(method, path).status_code
            assert (status == 405) == (method not in methods), (path, method)
    assert {"/step", "/reset", "/create", "/close"} <= {"/" + p.rsplit("/", 1)[1] for p in paths}
