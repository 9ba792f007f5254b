"""Trees of requests: every prompt begins with the sampled tokens of its history."""

import concurrent.futures
import dataclasses

import hypothesis
from hypothesis import strategies as st

from tests.examples import fixed
from tests.serving.parts import MODEL, user


@dataclasses.dataclass
class Node:
    """An answer: its whole conversation as messages and as token ids."""

    messages: list
    tokens: list


# Each request: (index of the answer that it continues, number of choices, number of copies that are
# sent at the same time, True if the client strips the answers that it sends back).
requests = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 3), st.integers(1, 2), st.booleans()),
    min_size=1,
    max_size=5,
)


def ask(server, messages, n, seed):
    """Returns the prompt ids, and text and ids of each choice."""
    body = {"model": MODEL, "messages": messages, "n": n, "max_tokens": 4, "return_token_ids": True}
    answer = server.web.post("/v1/chat/completions", json=body | {"seed": seed})
    assert answer.status_code == 200, answer.text
    answer = answer.json()
    assert answer["usage"]["prompt_tokens"] == len(answer["prompt_token_ids"])
    assert all(c["prompt_token_ids"] == answer["prompt_token_ids"] for c in answer["choices"])
    return answer["prompt_token_ids"], answer["choices"]


@fixed(25)
@hypothesis.given(requests)
def grow(server, threads, tree):
    root = Node([], [])
    nodes = [root]
    for number, (parent, n, copies, strips) in enumerate(tree):
        known = nodes[parent % len(nodes)]
        before = known.messages
        if strips and before:
            before = [*before[:-1], before[-1] | {"content": before[-1]["content"].strip()}]
        messages = [*before, user(f"{number}" if before else f"root {id(tree)}")]
        # Other nodes may have the same texts; the client cannot say which of them it continues.
        stripped = [m["content"].strip() for m in messages[:-1]]
        same = [o.tokens for o in nodes if [m["content"].strip() for m in o.messages] == stripped]
        if not strips:
            same = [o.tokens for o in nodes if o.messages == before]
        sent = [(server, messages, n, 10 * number + 3 * i) for i in range(copies)]
        for prompt, choices in threads.map(ask, *zip(*sent, strict=True)):
            assert any(prompt[: len(tokens)] == tokens for tokens in same)
            for choice in choices:
                answer = {"role": "assistant", "content": choice["message"]["content"]}
                nodes.append(Node([*messages, answer], prompt + choice["token_ids"]))


def test_each_prompt_begins_with_the_sampled_tokens_of_its_history(served):
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        grow(served, threads)
