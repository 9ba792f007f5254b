"""Worker for transformers on torch with the tasks `roofline`, `decode` and `train` (worker.py).

Needs torch and transformers; of this project it needs only shapes.py and worker.py.
"""

import time

import torch
import transformers
import worker
from shapes import is_action, shape_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def wait() -> None:
    """Waits until the device has finished."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def roofline(options: dict) -> worker.Run:
    """Measures the rate of large products."""
    del options
    n = 1024 if DEVICE == "cpu" else 8192

    def run() -> dict:
        rates = {}
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(n, n, device=DEVICE).to(dtype)

            def product(x=x):
                x @ x
                wait()

            rates[str(dtype).split(".")[1]] = 2 * n**3 / worker.fastest(product) / 1e9
        return dict(device=DEVICE, matmul_gflops=rates)

    return run


def network(options: dict):
    """Returns a network of the requested shape with random weights in the requested dtype."""
    shape = shape_of(options)
    config = transformers.Qwen2Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )
    config._attn_implementation = "sdpa"
    config.bos_token_id = config.eos_token_id = None
    torch.manual_seed(0)
    model = transformers.Qwen2ForCausalLM(config)
    model = model.to(device=DEVICE, dtype=getattr(torch, options["dtype"]))
    found = sum(p.numel() for p in model.parameters())
    if found != shape.parameters:
        raise ValueError(f"the network has {found} weights, the shape {shape.parameters}")
    return model, shape


def decode(options: dict) -> worker.Run:
    """Generates tokens after prompts of equal length at temperature 1, with transformers' generate."""
    model, shape = network(options)
    model.eval()
    size = (options["rows"], options["prompt"])
    prompts = torch.randint(0, shape.vocab, size, device=DEVICE)

    def generate(count: int) -> float:
        started = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=count,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                eos_token_id=None,
                pad_token_id=0,
            )
        wait()
        if out.shape[1] != options["prompt"] + count:
            raise ValueError(f"{out.shape[1]} tokens for {count} new ones")
        return time.perf_counter() - started

    def run() -> dict:
        whole, first = generate(options["new"]), generate(1)
        return dict(whole_s=whole, first_s=first)

    return run


def train(options: dict) -> worker.Run:
    """Measures one AdamW step on full rows."""
    model, shape = network(options)
    model.train()
    if options["remat"] != "none":
        model.gradient_checkpointing_enable()
    if options["lora_rank"]:
        import peft

        rank = options["lora_rank"]
        adapters = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
        model.enable_input_require_grads()
        model = peft.get_peft_model(model, adapters)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True
    )
    size = (options["rows"], options["tokens"])
    ids = torch.randint(0, shape.vocab, size, device=DEVICE)
    has_loss = torch.tensor(is_action(options), device=DEVICE)
    labels = torch.where(has_loss, ids, -100)  # transformers' label for "no loss"

    def run() -> dict:
        model(input_ids=ids, labels=labels, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        return {}

    return run


if __name__ == "__main__":
    worker.serve(
        dict(roofline=roofline, decode=decode, train=train),
        {"torch": torch.__version__, "transformers": transformers.__version__},
    )
