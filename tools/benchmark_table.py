"""Write the README's benchmark table from a result file of ``python -m benchmarks --output FILE``.

python tools/benchmark_table.py benchmarks/results/cpu-2026-11-21.json
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- benchmark table: begin -->", "<!-- benchmark table: end -->"
SHOWN = {
    "gpt2_forward": "GPT-2-small-shaped forward pass, 128 tokens",
    "gpt2_decode": "the same, one token with its cache",
    "resnet50": "ResNet-50, one image of 224x224",
    "mlp_adam": "MLP training step with Adam, batch 128",
    "scan_rnn": "recurrent network, 64 steps",
    "heat_equation": "heat equation, 512x512, 200 steps",
    "n_body": "N-body, 512 bodies, f64, 4 steps",
    "matmul_1024": "matrix product 1024x1024, f32",
    "conv_3x3": "convolution 3x3, 56x56x64",
    "softmax_256x1024": "softmax 256x1024",
    "layer_norm_256x1024": "layer norm 256x1024",
    "exp_256k": "exp of 256k f32",
    "add_one_64mb": "x + 1, 64 MB",
    "sort_64k": "sort 64k f32",
    "call_one_small_array": "one call, 8 elements",
}


def table(path: Path) -> str:
    """Markdown of the results in ``path``."""
    stored = json.loads(path.read_text())
    rows = {row["name"]: row for row in stored["rows"]}
    machine = stored["machine"]
    lines = ["| program | hlojit | JAX (XLA:CPU) | JAX / hlojit | compile, s: hlojit, JAX |", "|---|---|---|---|---|"]
    for name, title in SHOWN.items():
        row = rows[name]
        lines.append(
            f"| {title} | {_time(row['hlojit'])} | {_time(row['jax'])} | {row['ratio']:.2f} "
            f"| {row['hlojit_compile']:.2f}, {row['jax_compile']:.2f} |"
        )
    ratios = [row["ratio"] for row in rows.values()]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lines += [
        "",
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, jaxlib {machine['jaxlib']}, llvmlite "
        f"{machine['llvmlite']}; turn by turn, one process each, least of the medians (`make bench`). All {len(rows)} programs "
        f"of the benchmark: geometric mean {mean:.2f}, lowest {min(ratios):.2f}. Figures: `{path.as_posix()}`.",
    ]
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def main() -> None:
    """Replace what stands between the markers."""
    text = README.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n\n{table(Path(sys.argv[1]))}\n\n{END}{after}")


if __name__ == "__main__":
    main()
