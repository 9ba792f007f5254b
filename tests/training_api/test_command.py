"""The command `python -m agentgym_jax.tinker`, as a process, and the SDK as its client."""

import pathlib
import signal

import numpy as np
import pytest

from tests.run_python import start_python
from tests.training_api.client import Client, sentence

ROOT = pathlib.Path(__file__).parents[2]
TOKENS = list(range(20, 44))


def start(*flags, **environ):
    """Starts the command with the environment variables `environ`."""
    command = ["-m", "agentgym_jax.tinker", "--context=64", "--rows=2", *flags]
    return start_python(*command, **{"XLA_FLAGS": ""} | environ)


@pytest.mark.slow
def test_the_command_trains_until_it_is_stopped_and_loads_what_it_saved(base, tmp_path):
    path, totals = "", []
    for _ in range(2):
        process = start(f"--model={base}", f"--workdir={tmp_path}", "--port=0", "--dtype=float32")
        try:
            line = process.stdout.readline()
            assert line.startswith(f"training {base} at http://127.0.0.1:")
            client = Client(line.split()[-1])
            client.create(base)
            if path:
                assert client.call("load_weights", path=path, optimizer=True)["path"] == path
            else:
                client.forward_backward([sentence(TOKENS)])
                client.step()
                path = client.call("save_weights", path="state")["path"]
            totals.append(client.forward_backward([sentence(TOKENS)])[0])
            client.web.close()
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in errors
    assert totals[0] == totals[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (["--model=no/such/model"], "no/such/model"),
        (["--model=MODEL", "--host=0.0.0.0"], "set --token_variable"),
        (
            ["--model=no/such/model", "--host=192.0.2.1", "--token_variable=PATH"],
            "--host=192.0.2.1",
        ),
    ],
)
def test_a_wrong_flag_is_one_line_and_writes_nothing(base, tmp_path, flags, found):
    flags = [flag.replace("MODEL", base) for flag in flags]
    process = start(*flags, f"--workdir={tmp_path / 'w'}", "--port=0")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert found in errors.strip().splitlines()[-1]
    assert "Traceback" not in errors
    assert not (tmp_path / "w").exists()


@pytest.mark.slow
def test_the_sdk_trains_samples_saves_and_loads(base, url):
    tinker = pytest.importorskip("tinker", reason="the package tinker is not installed")
    if not tinker.__version__.startswith("0.38."):
        pytest.skip(
            f"tinker {tinker.__version__} is installed; this server speaks the wire of 0.38"
        )
    types = tinker.types
    with tinker.ServiceClient(base_url=url, api_key="tml-local") as sdk:
        model = sdk.create_lora_training_client(base_model=base, rank=4, seed=1).result()
        inputs = {
            "target_tokens": np.array(TOKENS[1:]),
            "weights": np.ones(len(TOKENS) - 1, np.float32),
        }
        prompt = types.ModelInput.from_ints(TOKENS[:-1])
        datum = types.Datum(model_input=prompt, loss_fn_inputs=inputs)
        calls = []
        for _ in range(3):  # all are sent before the first result is read
            calls.append(model.forward_backward([datum, datum], "cross_entropy"))
            model.optim_step(types.AdamParams(learning_rate=0.01))
        sums = [call.result().metrics["loss:sum"] for call in calls]
        assert sums == sorted(sums, reverse=True)
        scored = model.forward([datum], "cross_entropy").result().loss_fn_outputs[0]["logprobs"]
        sampler = model.save_weights_and_get_sampling_client().result()
        read = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()
        assert read[0] is None
        np.testing.assert_allclose(read[1:], scored.data, atol=2e-4)
        answer = sampler.sample(prompt, 2, types.SamplingParams(max_tokens=4, seed=1)).result()
        assert [len(s.tokens) for s in answer.sequences] == [4, 4]
        path = model.save_state("sdk", overwrite=True).result().path
        again = sdk.create_training_client_from_state_with_optimizer(path).result()
        assert again.forward([datum], "cross_entropy").result().metrics["loss:sum"] < sums[-1]
        with pytest.raises(tinker.TinkerError, match="call forward_backward first"):
            again.optim_step(types.AdamParams()).result()
