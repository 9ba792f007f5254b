"""Calls of Tinker's API over HTTP."""

import gc
import re

import numpy as np
import pytest

from agentgym_jax.jobs.serving import load_model
from agentgym_jax.jobs.training_server import LocalBackend
from agentgym_jax.models.lora import Adapters
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.serving import bodies
from agentgym_jax.serving.requests import RequestError
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.training_api import futures, messages, training_app
from agentgym_jax.training_api import training_service as service_module
from agentgym_jax.training_api.saved import SavedModels, SavedPath
from tests.builders import tiny_policy
from tests.model_files import zeros
from tests.training_api.client import PROTOBUF, Client, sentence

TOKENS = list(range(20, 44))


def error(answer, status, code):
    """Returns the message of an error answer."""
    assert answer.status_code == status, answer.text
    body = answer.json()["error"]
    assert body["code"] == code, body
    return body["message"]


@pytest.mark.slow
def test_a_model_learns_a_sentence(trained):
    sums = []
    for _ in range(4):
        total, (logprobs,) = trained.forward_backward([sentence(TOKENS)])
        assert total == pytest.approx(-logprobs.sum(), rel=1e-4)
        assert trained.step()["metrics"]["step:max"] == len(sums) + 1
        sums.append(total)
    assert sums == sorted(sums, reverse=True)


@pytest.mark.slow
def test_sampled_log_probabilities_are_those_of_forward(trained):
    trained.forward_backward([sentence(TOKENS)])
    trained.step()
    result = trained.sample(
        trained.sampler(), TOKENS[:5], 0, n=3, seed=7, max_tokens=6, prompt_logprobs=True
    )
    assert len(result.sequences) == 3
    prompt = np.frombuffer(result.prompt_logprobs, "<f4")
    assert np.isnan(prompt[0])
    assert len(prompt) == 5
    for answer in result.sequences:
        tokens = np.frombuffer(answer.tokens, "<i4").tolist()
        sampled = np.frombuffer(answer.logprobs, "<f4")
        _, (scored,) = trained.forward_backward([sentence(TOKENS[:5] + tokens)], forward_only=True)
        np.testing.assert_allclose(np.concatenate([prompt[1:], sampled]), scored, atol=2e-4)
    answers = [answer.tokens for answer in result.sequences]
    assert len(set(answers)) > 1
    repeated = trained.sample(trained.sampler(), TOKENS[:5], 0, n=3, seed=7, max_tokens=6)
    assert [answer.tokens for answer in repeated.sequences] == answers


@pytest.mark.slow
def test_a_sampling_session_keeps_its_weights(trained):
    def draw(session, number):
        result = trained.sample(session, TOKENS[:5], number, temperature=0.0, max_tokens=4)
        return result.sequences[0].logprobs

    first = trained.sampler()
    before = draw(first, 0)
    trained.forward_backward([sentence(TOKENS)])
    trained.step(learning_rate=0.1)
    assert draw(trained.sampler(), 0) != before
    assert draw(first, 1) == before


def test_a_sampling_session_is_never_that_of_other_weights(client, base):
    names = {"session_id": client.session, "sampling_session_seq_id": 7}
    assert client.post("create_sampling_session", **names, base_model=base).status_code == 200
    repeated = client.post("create_sampling_session", **names, base_model=base)
    assert repeated.status_code == 200
    assert client.create(base).status_code == 200
    call = {"model_id": client.model, "seq_id": 1}
    unnamed = client.post("save_weights_for_sampler", **call)
    assert "sampling_session_seq_id" in error(unnamed, 400, "invalid_value")
    taken = client.post("save_weights_for_sampler", **call, sampling_session_seq_id=7)
    assert "earlier sampling session" in client.result(taken)["error"]


@pytest.mark.slow
def test_a_stop_ends_an_answer_and_is_part_of_it(trained):
    session = trained.sampler()
    whole = trained.sample(session, TOKENS, 0, temperature=0.0, max_tokens=5).sequences[0]
    third = np.frombuffer(whole.tokens, "<i4").tolist()[2]
    cut = trained.sample(session, TOKENS, 1, temperature=0.0, max_tokens=5, stop=[third])
    tokens = np.frombuffer(cut.sequences[0].tokens, "<i4").tolist()
    assert tokens[-1] == third
    assert len(tokens) <= 3
    assert cut.sequences[0].stop_reason == messages.STOP
    assert whole.stop_reason == messages.LENGTH


@pytest.mark.slow
def test_a_loaded_model_continues_bit_for_bit(trained, base):
    trained.forward_backward([sentence(TOKENS)])
    trained.step()
    path = trained.call("save_weights", path="half")["path"]

    def continue_():
        total, _ = trained.forward_backward([sentence(TOKENS)])
        return total, trained.step()["metrics"], trained.forward_backward([sentence(TOKENS)])[0]

    wanted = continue_()
    assert trained.call("load_weights", path=path, optimizer=True)["path"] == path
    assert continue_() == wanted
    trained.call("load_weights", path=path, optimizer=False)
    restarted = continue_()
    assert restarted[0] == wanted[0]
    assert restarted[1]["step:max"] == 1
    # as a new model, of a new client
    trained.post(f"sessions/{trained.session}/finish")
    other = Client(str(trained.web.base_url).removesuffix("/api/v1/"))
    answer = other.post(
        "load_weights", session_id=other.session, model_seq_id=0, path=path, optimizer=True
    )
    trained.model, trained.number = other.result(answer)["model_id"], 0
    trained.session = other.session
    assert trained.post("get_info", model_id=trained.model).json()["lora_rank"] == 4
    assert continue_() == wanted


@pytest.mark.slow
def test_named_weights_for_sampling_are_those_of_the_model(trained, workdir):
    trained.forward_backward([sentence(TOKENS)])
    trained.step()
    wanted = trained.sample(trained.sampler(), TOKENS, 0, temperature=0.0, max_tokens=4)
    path = trained.call("save_weights_for_sampler", path="final")["path"]
    found = list(workdir.glob("*/sampler_weights/final/adapter_model.safetensors"))
    assert len(found) == 1
    answer = trained.post(
        "create_sampling_session",
        session_id=trained.session,
        sampling_session_seq_id=99,
        model_path=path,
    )
    session = answer.json()["sampling_session_id"]
    assert trained.web.get(f"samplers/{session}").json()["model_path"] == path
    assert trained.sample(session, TOKENS, 0, temperature=0.0, max_tokens=4) == wanted


def test_calls_that_arrive_early_wait_for_those_before_them(trained):
    step = {"model_id": trained.model, "seq_id": 3, "adam_params": {}}
    last = trained.post("optim_step", **step)
    second = trained.send(trained.request([sentence(TOKENS)], number=2))
    first = trained.send(trained.request([sentence(TOKENS[:9])], number=1))
    assert trained.result(last)["metrics"]["step:max"] == 1  # with a gradient, so not at once
    assert isinstance(trained.result(first), bytes)
    assert isinstance(trained.result(second), bytes)


@pytest.mark.slow
def test_a_repeated_call_runs_once(trained):
    trained.number = 1
    body = trained.request([sentence(TOKENS)])
    assert trained.result(trained.send(body)) == trained.result(trained.send(body))
    trained.number = 2
    step = {"model_id": trained.model, "seq_id": 2, "adam_params": {}}
    for _ in range(2):
        assert trained.result(trained.post("optim_step", **step))["metrics"]["step:max"] == 1


def test_calls_out_of_order_name_the_remedy(trained):
    message = trained.step()["error"]
    assert message == "optim_step without a gradient: call forward_backward first"
    answer = trained.send(trained.request([sentence(TOKENS)], number=1))
    assert "number the calls of a client 1, 2, 3" in error(answer, 400, "out_of_order")
    answer = trained.post("optim_step", model_id=trained.model, adam_params={})
    assert "seq_id is missing" in error(answer, 400, "out_of_order")
    answer = trained.post("asample", prompt={"chunks": []}, sampling_params={})
    assert "create a sampling client first" in error(answer, 400, "out_of_order")
    answer = trained.post("retrieve_future", request_id="no")
    assert "repeat the call" in error(answer, 404, "not_found")


def test_a_call_whose_predecessor_never_comes_fails(trained, service, monkeypatch):
    waiting = trained.send(trained.request([sentence(TOKENS)], number=5))
    monkeypatch.setattr(futures, "GAP_S", -1.0)
    late = trained.send(trained.request([sentence(TOKENS)], number=6))
    service.check()
    result = trained.result(late)
    assert result["code"] == "out_of_order"
    assert "call 6" in result["error"]
    assert "call 1, which did not come" in result["error"]
    assert trained.forward_backward([sentence(TOKENS)])[0] > 0
    trained.post("unload_model", model_id=trained.model)
    assert trained.result(waiting)["code"] == "unloaded"


def test_calls_do_not_wait_for_refused_ones(trained):
    """The SDK counts on after a refusal."""
    call = {"model_id": trained.model, "adam_params": {}}
    short = (TOKENS, {"target_tokens": TOKENS, "weights": [1.0]})
    error(trained.send(trained.request([short], number=1)), 400, "invalid_value")
    error(
        trained.post("save_weights", model_id=trained.model, seq_id=2, path="../up"),
        400,
        "invalid_value",
    )
    error(
        trained.post("optim_step", seq_id=3, **call | {"adam_params": {"beta3": 1}}),
        400,
        "unknown_field",
    )
    trained.number = 3
    assert trained.forward_backward([sentence(TOKENS)])[0] > 0
    answer = trained.post("optim_step", seq_id=3, **call)
    assert "comes after call 4" in error(answer, 400, "out_of_order")
    assert trained.step()["metrics"]["step:max"] == 1


def test_an_error_after_a_poll_in_vain_is_not_logged(trained, monkeypatch, caplog):
    late = trained.send(trained.request([sentence(TOKENS)], number=2)).json()
    monkeypatch.setattr(training_app, "POLL_S", 0.01)
    answer = trained.post("retrieve_future", request_id=late["request_id"])
    assert answer.json()["type"] == "try_again"
    trained.post("unload_model", model_id=trained.model)
    error_of = trained.post("retrieve_future", request_id=late["request_id"]).json()
    assert error_of["code"] == "unloaded"
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_call_before_create_model_names_it(client):
    client.model = f"{client.session}:train:0"
    answer = client.send(client.request([sentence(TOKENS)], number=1))
    message = error(answer, 400, "out_of_order")
    assert "call create_model first" in message
    assert "or the server has restarted; make a new client" in message
    answer = client.post("get_info", model_id="no")
    assert answer.status_code == 400


def test_the_wire_of_other_sdks_is_refused_with_the_one_to_install(trained):
    body = {"model_id": trained.model, "seq_id": 1, "forward_backward_input": {}}
    message = error(trained.post("forward_backward", **body), 400, "wrong_wire")
    assert "pip install 'tinker==0.38.*'" in message
    newer = trained.request([sentence(TOKENS)], number=1) + b"\x92\x06\x01a"  # field 98
    answer = trained.send(newer)
    assert re.search(r"unknown field 98; .*pip install", error(answer, 400, "unknown_field"))
    answer = trained.post("optim_step", model_id=trained.model, seq_id=1, adam_params={"beta3": 1})
    assert re.search(r"adam_params.beta3: .*pip install", error(answer, 400, "unknown_field"))
    assert "pip install" in error(trained.post("forward_sideways"), 404, "unknown_url")
    broken = trained.web.post("forward_backward", content=b"\xff\xff", headers=PROTOBUF)
    assert "no ForwardBackwardRequest" in error(broken, 400, "invalid_request")
    answer = trained.post("create_session", sdk_version="0.99.0").json()
    assert "pip install" in answer["warning_message"]
    assert trained.forward_backward([sentence(TOKENS)])[0] > 0  # nothing has changed


def test_one_client_trains_at_a_time(trained, url, base, monkeypatch):
    other = Client(url)
    assert "one model at a time" in error(other.create(base), 400, "busy")
    monkeypatch.setattr(service_module, "SESSION_S", 0.0)
    assert other.create(base).status_code == 200  # the first client is silent for too long
    monkeypatch.undo()
    other.post(f"sessions/{other.session}/finish")
    answer = trained.send(trained.request([sentence(TOKENS)], number=1))
    assert error(answer, 404, "not_found")


@pytest.mark.parametrize("way", ["closed", "silent", "cancelled"])
def test_samples_that_nobody_waits_for_end(client, service, url, base, monkeypatch, way):
    session = client.base_sampler(base)
    calls = [client.ask(session, TOKENS, number, n=1024).json() for number in range(4)]
    calls = [{"request_id": call["request_id"]} for call in calls]  # they take minutes
    if way == "closed":
        client.post(f"sessions/{client.session}/finish")
        service.check()
    elif way == "silent":
        monkeypatch.setattr(service_module, "SESSION_S", 0.0)
        service.check()
        monkeypatch.undo()
    else:
        for call in calls:
            assert client.post("cancel_future", **call).status_code == 200
    for call in calls:
        error(client.post("retrieve_future", **call), 410, "cancelled")
    other = Client(url)
    assert other.post("cancel_future", request_id="unknown").status_code == 200
    assert len(other.sample(other.base_sampler(base), TOKENS, 0, max_tokens=1).sequences) == 1
    if way == "closed":  # 410 again would make the SDK sample for ever
        answer = client.ask(session, TOKENS, 4)
        assert "make a new ServiceClient" in error(answer, 404, "not_found")


def test_a_client_that_waits_for_a_result_is_alive(trained, service, url, base):
    service._sessions[trained.session] = float("-inf")
    trained.post("retrieve_future", request_id=f"{trained.model}:1")
    assert error(Client(url).create(base), 400, "busy")


@pytest.mark.parametrize("name", ["../up", "a/b", "/etc/x", ".hidden", "", "x" * 300, "a\n"])
def test_names_that_leave_the_folder_are_refused(trained, workdir, name):
    before = sorted(workdir.rglob("*"))
    for route in ("save_weights", "save_weights_for_sampler"):
        answer = trained.post(route, model_id=trained.model, seq_id=1, path=name)
        assert "is no name" in error(answer, 400, "invalid_value")
    for path in (f"tinker://../weights/{name}", f"tinker://{trained.model}/weights/{name}", name):
        answer = trained.post(
            "load_weights", model_id=trained.model, seq_id=1, path=path, optimizer=True
        )
        assert answer.status_code == 400
    assert sorted(workdir.rglob("*")) == before


@pytest.mark.slow
def test_saved_names_are_not_overwritten_unless_asked(trained):
    trained.call("save_weights", path="once")
    assert "choose another name" in trained.call("save_weights", path="once")["error"]
    assert "path" in trained.call("save_weights", path="once", overwrite=True)


def test_saved_weights_for_sampling_are_never_replaced(trained, workdir):
    saved = trained.call("save_weights_for_sampler", path="once")["path"]
    folder = workdir / trained.model.replace(":", "_") / "sampler_weights" / "once"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    error = trained.call("save_weights_for_sampler", path="once")["error"]
    assert error == f"{saved} exists: choose another name"
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_save_that_fails_leaves_nothing(trained, workdir):
    blocked = workdir / trained.model.replace(":", "_")
    blocked.write_text("a file in the way")
    message = trained.call("save_weights", path="x")["error"]
    assert "choose another --workdir" in message
    assert blocked.read_text() == "a file in the way"
    blocked.unlink()
    assert "path" in trained.call("save_weights", path="x")


def test_a_folder_has_one_server_and_no_rests_of_interrupted_saves(tmp_path):
    left = tmp_path / "x_train_0" / "weights" / ".tmp-half"
    left.mkdir(parents=True)
    first = SavedModels(tmp_path, {}, "base")
    first.start()
    assert not left.exists()
    with pytest.raises(RunFolderError, match="choose another --workdir"):
        SavedModels(tmp_path, {}, "base").start()


def test_the_folder_of_a_training_run_is_refused_and_left_alone(base, tmp_path):
    (tmp_path / "config.json").write_text('{"job": "sft"}')
    model = load_model(base, dtype="float32")
    with pytest.raises(RunFolderError, match="holds a training run, not saved weights of Tinker"):
        LocalBackend(model, base, str(tmp_path), rows=1, context=16, micro_tokens=64)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_save_that_ended_between_its_two_renames_leaves_the_old_weights(tmp_path):
    weights = tmp_path / "x_train_0" / "weights"
    for name in (".tmp-old:kept", ".tmp-kept", ".tmp-old:replaced", "replaced"):
        (weights / name).mkdir(parents=True)
        (weights / name / "of").write_text(name)
    SavedModels(tmp_path, {}, "base").start()
    assert {p.name: (p / "of").read_text() for p in weights.iterdir()} == {
        "kept": ".tmp-old:kept",
        "replaced": "replaced",
    }


def test_weights_for_sampling_belong_to_one_base(tmp_path):
    policy = tiny_policy(byte_tokenizer())
    adapters = Adapters(policy.abstract_params(), policy.logical_axes(), 2, 4.0, ("q",))
    path = SavedPath("x:train:0", "sampler_weights", "a")
    SavedModels(tmp_path, {"weights": "1"}, "base").save_adapters(path, adapters, zeros(adapters))
    assert SavedModels(tmp_path, {"weights": "1"}, "b").load_adapters(path, policy).params
    with pytest.raises(RequestError, match="belongs to the base {'weights': '1'}"):
        SavedModels(tmp_path, {"weights": "2"}, "base").load_adapters(path, policy)


def test_missing_weights_and_other_kinds_are_named(trained):
    path = str(SavedPath(trained.model, "weights", "no"))
    result = trained.call("load_weights", path=path, optimizer=True)
    assert "save it first" in result["error"]
    answer = trained.post("weights_info", tinker_path=path.replace("weights", "sampler_weights"))
    assert "which save_state returns" in error(answer, 400, "invalid_value")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"sampling_params": {"stop": []}}, "stop must not be empty"),
        ({"sampling_params": {"stop": [10**6]}}, "stop has the token id 1000000"),
        ({"sampling_params": {"temperature": -1}}, "temperature"),
        ({"topk_prompt_logprobs": 3}, "topk_prompt_logprobs"),
        ({"num_samples": 10**6}, "num_samples"),
        ({"prompt": {"chunks": []}}, "the prompt is empty"),
        ({"prompt": {"chunks": [{"tokens": [10**6]}]}}, "the id 1000000"),
        ({"prompt": {"chunks": [{"tokens": [1] * 64}]}}, "must leave room"),
        ({"prompt_logprobs_last_n": 1}, "needs prompt_logprobs"),
    ],
)
def test_wrong_sampling_requests_are_refused_by_name(client, base, changes, found):
    answer = client.post(
        "create_sampling_session",
        session_id=client.session,
        sampling_session_seq_id=0,
        base_model=base,
    )
    body = {"sampling_params": {}, "prompt": {"chunks": [{"tokens": [1, 2]}]}, **changes}
    answer = client.post(
        "asample", sampling_session_id=answer.json()["sampling_session_id"], seq_id=1, **body
    )
    assert answer.status_code == 400
    assert found in answer.json()["error"]["message"]


def test_bodies_are_bounded(client, monkeypatch):
    monkeypatch.setattr(bodies, "MAX_BODY", 1000)
    answer = client.web.post("forward_backward", content=b"x" * 2000, headers=PROTOBUF)
    assert "exceeds 1000 bytes" in error(answer, 413, "too_large")
