"""Networks that the benchmarks compare on, and the least work that they ask of a machine.

Pure Python: the workers of other libraries read it too, in environments of their own.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """A Qwen2.5 network by its sizes; the output head is the embedding."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    mlp: int
    vocab: int

    @property
    def layer_weights(self) -> int:
        """Weights of the matrix products of one layer."""
        projections = self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        return projections + 3 * self.hidden * self.mlp

    @property
    def matmul_weights(self) -> int:
        """Weights that every token is multiplied by, those of the output head included."""
        return self.layers * self.layer_weights + self.hidden * self.vocab

    @property
    def parameters(self) -> int:
        """All weights: the biases of queries, keys and values, and the norms too."""
        biases = self.head * (self.heads + 2 * self.kv_heads)
        return self.matmul_weights + self.layers * (biases + 2 * self.hidden) + self.hidden

    def attention_flops(self, queries: int, keys: float) -> float:
        """Scores and values of `queries` tokens that see `keys` tokens each."""
        return 4.0 * self.layers * self.heads * self.head * queries * keys


SHAPES = {
    "tiny": Shape(hidden=64, layers=2, heads=4, kv_heads=2, head=16, mlp=128, vocab=512),
    "30m": Shape(hidden=384, layers=6, heads=6, kv_heads=2, head=64, mlp=1024, vocab=32000),
    "0.5b": Shape(hidden=896, layers=24, heads=14, kv_heads=2, head=64, mlp=4864, vocab=151936),
    "1.5b": Shape(hidden=1536, layers=28, heads=12, kv_heads=2, head=128, mlp=8960, vocab=151936),
}


TURN = 128  # tokens of an agent's turn, observation and action


def shape_of(options: dict) -> Shape:
    """The shape of a worker's options: `shape`, and `vocab` words if that is there and not 0."""
    shape = SHAPES[options["shape"]]
    return dataclasses.replace(shape, vocab=options.get("vocab") or shape.vocab)


def is_action(options: dict) -> list[bool]:
    """Which tokens of a row have a loss: `action_share` of them, at the end of every turn of 128."""
    observed = round(TURN * (1 - options["action_share"]))
    return [t % TURN >= observed for t in range(options["tokens"])]


ITEM_BYTES = {"float32": 4, "bfloat16": 2}


def decode_limit_s(shape: Shape, rows: int, context: float, dtype: str, machine: dict) -> float:
    """Least seconds of one decode step: reading weights and caches, or computing, whichever binds.

    Args:
      shape: of the network.
      rows: that decode together.
      context: tokens that a row sees, on the average.
      dtype: of weights, caches and products.
      machine: from roofline.py: `read_gbs` and `matmul_gflops` by dtype.
    """
    cache = 2 * shape.layers * shape.kv_heads * shape.head * context
    read = (shape.matmul_weights + rows * cache) * ITEM_BYTES[dtype]
    flops = rows * (2 * shape.matmul_weights + shape.attention_flops(1, context))
    return max(read / machine["read_gbs"], flops / machine["matmul_gflops"][dtype]) / 1e9


def prefill_limit_s(shape: Shape, rows: int, tokens: int, dtype: str, machine: dict) -> float:
    """Least seconds for the prompts: no logits but those of the last token of a row."""
    products = 2 * shape.layers * shape.layer_weights * tokens + 2 * shape.hidden * shape.vocab
    flops = rows * (products + shape.attention_flops(tokens, tokens / 2))
    return flops / machine["matmul_gflops"][dtype] / 1e9


def train_flops(shape: Shape, rows: int, tokens: int) -> float:
    """Forward and backward pass: three times the forward one, attention causal."""
    forward = 2 * shape.matmul_weights * tokens + shape.attention_flops(tokens, tokens / 2)
    return 3.0 * rows * forward
