"""The tables of `experiments/benchmarks/report.py`."""

import json

from experiments.benchmarks import report

MACHINE = {"by_library": {"jax": {"device": "NVIDIA H100"}}}
SPEED = {"tokens_per_s": 2000.0, "step_ms": 1.5, "share_of_decode_limit": 0.5}
SPEED |= {"share_of_limit": 0.4, "peak_gib": 2.0}
LINES = (
    {
        "benchmark": "rl_step",
        "variant": "drafts",
        "model": "qwen2.5-0.5b",
        **dict(step_s=5.0, rollout_s=4.0, prefill_s=1.0, decode_s=2.5, update_s=0.75),
        **dict(tokens_per_s=12000.0, tokens_per_step=2.0, mfu=0.31, gap_mean=0.002, gap_max=0.1),
    },
    {
        "benchmark": "train_step",
        "options": dict(
            shape="0.5b", rows=8, tokens=2048, lora_rank=16, dtype="bfloat16", attention="cudnn"
        ),
        "machine": MACHINE,
        "commit": "abc1234",
        "table": {"ours": SPEED, "transformers": SPEED | {"ours_over_it": "1.19 (1.18 to 1.20)"}},
    },
    {
        "benchmark": "decode",
        **dict(shape="0.5b", rows=64, prompt=128, new=128, dtype="bfloat16", machine=MACHINE),
        "commit": "abc1234",
        "table": {
            "ours": SPEED | {"ours_over_it": "1.00 (1.00 to 1.00)"},
            "transformers float32": SPEED | {"ours_over_it": "20.0 (20.0 to 20.0)"},
            "transformers bfloat16": SPEED | {"ours_over_it": "13.0 (13.0 to 13.0)"},
        },
    },
    {
        "benchmark": "attention_kernels",
        "kernel": "packed",
        "shape": "0.5b",
        "options": [8, 2048, 512],
        "table": {"cudnn": {"forward_ms": 0.2, "both_ms": 0.9, "error": None}},
    },
    {"benchmark": "attention_kernels", "kernel": "slots", "table": {}},
)


def test_each_benchmark_has_a_table_and_a_cut_line_is_left_out(tmp_path, capsys):
    path = tmp_path / "gpu.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)) + '\n{"benchmark": "dec')
    report.main(str(path))
    rows = capsys.readouterr().out.splitlines()
    for row in (
        "| drafts | qwen2.5-0.5b | 5.00 | 4.00 | 1.00 | 2.50 | 12,000 | 0.50 | 0.75 | 31.0 % | 0.0020, 0.100 |",
        "| train step, 0.5b shape, 8 x 2048 tokens, LoRA 16 | bfloat16 | NVIDIA H100, abc1234 |  | 1.19 (1.18 to 1.20) |",
        "| decode, 0.5b shape, 64 x 128 + 128 tokens | bfloat16 | NVIDIA H100, abc1234 |  | 13.0 (13.0 to 13.0) |",
        "| 0.5b | 8 x 2048 | LoRA 16, cudnn | ours | 2,000 | 40 % | 2.0 GiB |",
        "| 0.5b | 8 x 2048, segments of 512 | cudnn | 0.20 | 0.90 |  |",
    ):
        assert row in rows


def test_a_later_result_of_the_same_measurement_replaces_an_earlier_one(tmp_path, capsys):
    path = tmp_path / "gpu.jsonl"
    cut_off, again = LINES[2], LINES[2] | {"table": {"ours": SPEED | {"tokens_per_s": 3000.0}}}
    other = LINES[2] | {"rows": 256}
    path.write_text("\n".join(map(json.dumps, (cut_off, other, again))))
    report.main(str(path))
    rows = [row for row in capsys.readouterr().out.splitlines() if "| ours |" in row]
    assert rows == [
        "| 0.5b | 64 | ours | 3,000 | 1.50 | 50 % |",
        "| 0.5b | 256 | ours | 2,000 | 1.50 | 50 % |",
    ]
