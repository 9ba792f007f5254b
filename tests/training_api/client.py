"""Plain HTTP client of Tinker's API, which numbers its calls like the SDK."""

import httpx
import numpy as np

from agentgym_jax.training_api import messages
from tests.waiting import PATIENCE_S

PROTOBUF = {"Content-Type": "application/x-protobuf"}


class Client:
    """Client with one session and, after `create`, one model.

    Attributes:
      web: HTTP client.
      session, model: Names that the server has given.
    """

    def __init__(self, url):
        self.web = httpx.Client(base_url=f"{url}/api/v1/", timeout=PATIENCE_S)
        self.session = self.post("create_session", sdk_version="0.38.0").json()["session_id"]
        self.model, self.number, self.models, self.samples = "", 0, 0, 0

    def post(self, route, **body):
        """Sends JSON."""
        return self.web.post(route, json=body)

    def result(self, answer):
        """Returns the result of a call: JSON, or the bytes of a protobuf message."""
        assert answer.status_code == 200, answer.text
        body = {"request_id": answer.json()["request_id"]}
        while True:
            answer = self.web.post(
                "retrieve_future", json=body, headers={"Accept": PROTOBUF["Content-Type"]}
            )
            assert answer.status_code == 200, answer.text
            if answer.headers["content-type"] == PROTOBUF["Content-Type"]:
                return answer.content
            if answer.json().get("type") != "try_again":
                return answer.json()

    def create(self, base, rank=4, seed=1, **config):
        """Creates a model; returns the answer of the route."""
        answer = self.post(
            "create_model",
            session_id=self.session,
            model_seq_id=self.models,
            base_model=base,
            lora_config={"rank": rank, "seed": seed, **config},
        )
        self.models += 1
        if answer.status_code == 200:
            self.model, self.number = self.result(answer)["model_id"], 0
        return answer

    def call(self, route, **body):
        """Makes the next call of the model; returns its result."""
        self.number += 1
        return self.result(self.post(route, model_id=self.model, seq_id=self.number, **body))

    def request(self, data, loss_fn="cross_entropy", number=None, **fields):
        """Returns the body of a forward_backward call."""
        message = messages.ForwardBackwardRequest(
            model_id=self.model, seq_id=number or self.number, loss_fn=loss_fn, **fields
        )
        for tokens, inputs in data:
            datum = message.data.add()
            datum.model_input.add().encoded_text.tokens = np.asarray(tokens, "<i4").tobytes()
            for name, values in inputs.items():
                is_ids = name == "target_tokens"
                array = np.asarray(values, "<i8" if is_ids else "<f4")
                tensor = datum.loss_fn_inputs[name]
                tensor.dense, tensor.dtype = array.tobytes(), 2 if is_ids else 1
                tensor.shape.append(len(array))
        return message.SerializeToString()

    def send(self, body):
        """Sends the body of a forward_backward call."""
        return self.web.post("forward_backward", content=body, headers=PROTOBUF)

    def forward_backward(self, data, loss_fn="cross_entropy", **fields):
        """Returns the sum of the loss and the log-probabilities of each datum, or the error."""
        self.number += 1
        result = self.result(self.send(self.request(data, loss_fn, **fields)))
        if isinstance(result, dict):
            return result
        message = messages.ForwardBackwardOutput.FromString(result)
        field = message.loss_fn_outputs[0].fields["logprobs"]
        values = np.frombuffer(field.data, "<f4")
        ends = np.frombuffer(field.offsets, "<i8")[1:-1] // 4
        return message.metrics["loss:sum"], np.split(values, ends)

    def step(self, **params):
        """Takes an optimiser step."""
        return self.call("optim_step", adam_params={"learning_rate": 1e-2, **params})

    def sampler(self):
        """Returns a sampling session with the present weights."""
        self.samples += 1
        result = self.call("save_weights_for_sampler", sampling_session_seq_id=self.samples)
        return result["sampling_session_id"]

    def base_sampler(self, base):
        """Returns a sampling session with the weights of the base."""
        self.samples += 1
        answer = self.post(
            "create_sampling_session",
            session_id=self.session,
            sampling_session_seq_id=self.samples,
            base_model=base,
        )
        return answer.json()["sampling_session_id"]

    def ask(self, session, tokens, number, n=1, prompt_logprobs=False, **params):
        """Calls asample; returns its answer."""
        return self.post(
            "asample",
            sampling_session_id=session,
            seq_id=number,
            num_samples=n,
            prompt={"chunks": [{"tokens": list(tokens), "type": "encoded_text"}]},
            sampling_params=params,
            prompt_logprobs=prompt_logprobs,
        )

    def sample(self, *args, **kwargs):
        """Returns the result of `ask`."""
        result = self.result(self.ask(*args, **kwargs))
        return result if isinstance(result, dict) else messages.SampleResponse.FromString(result)


def sentence(tokens, **inputs):
    """Returns a datum that trains the next token of each token."""
    return tokens[:-1], {"target_tokens": tokens[1:], **inputs}
