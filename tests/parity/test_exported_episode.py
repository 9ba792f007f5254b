"""A greedy episode with an exported model, compared token by token with transformers.

The export is loaded as users load it, with `AutoTokenizer` and `AutoModelForCausalLM`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers

from agentgym_envs.babyai.environment import BabyAIEnvironment
from agentgym_jax.export import export
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.policy import Policy
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.template import COMPACT
from agentgym_jax.text.tokenizer import load_tokenizer
from agentgym_jax.text.train_tokenizer import train_tokenizer
from configs import quickstart
from tests.model_files import save_run

TURNS = 6
TURN_TOKENS = 12
LENGTH = 1024


def observations(data_idx):
    """Returns the observations of an expert's episode."""
    world = BabyAIEnvironment()
    result = world.reset(data_idx)
    texts = [result.observation]
    while not result.done and len(texts) < TURNS:
        result = world.step(world.expert_action())
        texts.append(result.observation)
    return texts


def make_run(path):
    """Writes a run folder like the quickstart's.

    The run has the quickstart's tokenizer and model shape, but random weights.
    """
    c = quickstart.get_config()
    texts = [text for data_idx in range(40) for text in observations(data_idx)]
    tokenizer = train_tokenizer(
        texts,
        vocab_size=500,
        pretokenizer_pattern=c.tokenizer.pretokenizer_pattern,
        out=path / "tokenizer",
        template=COMPACT,
    )
    policy = Policy(DecoderConfig(tokenizer.vocab_size, **c.model.architecture.to_dict()))
    rng = np.random.default_rng(1)
    params = jax.tree.map(
        lambda x: jnp.asarray(0.2 * rng.normal(size=x.shape), x.dtype), policy.abstract_params()
    )
    save_run(path, policy, {1: params})
    return policy, params


def test_a_greedy_episode_of_an_export_has_equal_tokens_in_transformers(tmp_path):
    policy, params = make_run(tmp_path / "run")
    out = export(str(tmp_path / "run"), str(tmp_path / "out"), dtype="float32", overwrite=False)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    tokenizer = load_tokenizer(tmp_path / "run" / "tokenizer")
    renderer = ChatRenderer(tokenizer)
    stop = tokenizer.special_tokens["<|im_end|>"]
    assert model.config.eos_token_id == stop

    @jax.jit
    def last_logits(tokens_BT, length):
        positions_BT = jnp.arange(LENGTH)[None]
        hidden_BTD = policy.hidden(params, tokens_BT, positions_BT, positions_BT < length)
        return policy.logits(params, hidden_BTD)[0, length - 1]

    def our_turn(ids):
        said = []
        while len(said) < TURN_TOKENS and stop not in said:
            row = np.zeros((1, LENGTH), np.int32)
            row[0, : len(ids) + len(said)] = ids + said
            said.append(int(last_logits(row, len(ids) + len(said)).argmax()))
        return said

    def their_turn(ids):
        with torch.no_grad():
            made = model.generate(
                torch.tensor([ids]), max_new_tokens=TURN_TOKENS, do_sample=False, temperature=None
            )
        return made[0, len(ids) :].tolist()

    texts = max((observations(data_idx) for data_idx in range(40)), key=len)
    assert len(texts) == TURNS
    first = [{"role": "user", "content": texts[0]}]
    ours = sum(renderer.opening(first), [])
    theirs = their_tokenizer.apply_chat_template(first, tokenize=True, add_generation_prompt=True)
    theirs = theirs["input_ids"]
    for observation in texts[1:]:
        said, their_said = our_turn(ours), their_turn(theirs)
        assert said == their_said
        ours += said + renderer.close_turn(said[-1] == stop) + renderer.observation(observation)
        talk = [
            *first,
            {"role": "assistant", "content": "@"},
            {"role": "user", "content": observation},
        ]
        text = their_tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
        after = text.split("@", 1)[1].removeprefix("<|im_end|>" if said[-1] == stop else "")
        theirs += their_said + their_tokenizer(after, add_special_tokens=False)["input_ids"]
        assert ours == theirs
    assert len(ours) < LENGTH
