"""Defines the networks of the benchmarks and the minimum work that they require.

Pure Python, because the workers of other libraries read this file too, in their virtual
environments.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen2.5 network; the output head shares the weights of the embedding."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    mlp: int
    vocab: int

    @property
    def layer_weights(self) -> int:
        """Returns the number of weights in the matrix products of one layer."""
        projections = self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        return projections + 3 * self.hidden * self.mlp

    @property
    def matmul_weights(self) -> int:
        """Returns the number of weights that every token is multiplied by, including the output
        head.
        """
        return self.layers * self.layer_weights + self.hidden * self.vocab

    @property
    def parameters(self) -> int:
        """Returns the number of all weights, including the norms and the biases of queries, keys
        and values.
        """
        biases = self.head * (self.heads + 2 * self.kv_heads)
        return self.matmul_weights + self.layers * (biases + 2 * self.hidden) + self.hidden

    def attention_flops(self, queries: int, keys: float) -> float:
        """Returns the operations for attention scores and values of `queries` tokens that see
        `keys` tokens each.
        """
        return 4.0 * self.layers * self.heads * self.head * queries * keys


SHAPES = {
    "tiny": Shape(hidden=64, layers=2, heads=4, kv_heads=2, head=16, mlp=128, vocab=512),
    "30m": Shape(hidden=384, layers=6, heads=6, kv_heads=2, head=64, mlp=1024, vocab=32000),
    "0.5b": Shape(hidden=896, layers=24, heads=14, kv_heads=2, head=64, mlp=4864, vocab=151936),
    "1.5b": Shape(hidden=1536, layers=28, heads=12, kv_heads=2, head=128, mlp=8960, vocab=151936),
    "7b": Shape(hidden=3584, layers=28, heads=28, kv_heads=4, head=128, mlp=18944, vocab=152064),
}


TURN = 128  # tokens of an agent's turn: observation and action


def shape_of(options: dict) -> Shape:
    """Returns the shape named by `shape`; if `vocab` is not 0, the shape gets a vocabulary of that
    size.
    """
    shape = SHAPES[options["shape"]]
    return dataclasses.replace(shape, vocab=options.get("vocab") or shape.vocab)


def is_action(options: dict) -> list[bool]:
    """Returns True for each token of a row that has a loss: a share `action_share` at the end of
    every turn of 128 tokens.
    """
    observed = round(TURN * (1 - options["action_share"]))
    return [t % TURN >= observed for t in range(options["tokens"])]


ITEM_BYTES = {"float32": 4, "bfloat16": 2}


def decode_limit_s(shape: Shape, rows: int, context: float, dtype: str, machine: dict) -> float:
    """Returns the minimum seconds of one decode step: the larger of the time to read weights and
    caches and the time to compute.

    Args:
      shape: Shape of the network.
      rows: Number of rows that decode together.
      context: Mean number of tokens that a row sees.
      dtype: Data type of weights, caches and products.
      machine: Measurements of roofline.py: `read_gbs` and `matmul_gflops` by dtype.
    """
    cache = 2 * shape.layers * shape.kv_heads * shape.head * context
    read = (shape.matmul_weights + rows * cache) * ITEM_BYTES[dtype]
    flops = rows * (2 * shape.matmul_weights + shape.attention_flops(1, context))
    return max(read / machine["read_gbs"], flops / machine["matmul_gflops"][dtype]) / 1e9


def prefill_limit_s(shape: Shape, rows: int, tokens: int, dtype: str, machine: dict) -> float:
    """Returns the minimum seconds for the prompts, with logits only for the last token of a row."""
    products = 2 * shape.layers * shape.layer_weights * tokens + 2 * shape.hidden * shape.vocab
    flops = rows * (products + shape.attention_flops(tokens, tokens / 2))
    return flops / machine["matmul_gflops"][dtype] / 1e9


def train_flops(shape: Shape, rows: int, tokens: int) -> float:
    """Returns the operations of forward and backward pass, which equal three forward passes with
    causal attention.
    """
    forward = 2 * shape.matmul_weights * tokens + shape.attention_flops(tokens, tokens / 2)
    return 3.0 * rows * forward
