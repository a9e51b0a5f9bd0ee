"""Groups as vendors want them whole: attention with a mask that layers share, softmax and layer norms of bf16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.extensions import AnchorPattern, ArrayFunction, Kernel, KernelGroup, SubgraphPattern, hookimpl, using
from hlojit.ir.graph import Instruction

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def attention_of(instruction: Instruction) -> list[Instruction] | None:
    """A product, and what its left operand is computed from up to another product."""
    found, stack, products = [instruction], [instruction.operands[0]], 0
    while stack:
        producer = stack.pop().producer
        if producer is None or producer in found:
            continue
        found.append(producer)
        if producer.op.name == "stablehlo.dot_general":
            products += 1
        else:
            stack.extend(producer.operands)
    exponentials = sum(each.op.name == "stablehlo.exponential" for each in found)
    return found if products == exponentials == 1 else None


def attention(q: Array, k: Array, v: Array, mask: Array) -> Array:
    scores = np.where(mask, (q @ k.transpose(0, 2, 1)) * 0.25, -1e9)
    numbers = np.exp(scores - scores.max(-1, keepdims=True))
    found: Array = (numbers / numbers.sum(-1, keepdims=True)) @ v
    return found


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    found: Array = (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    return found


def run(function: Callable[..., Any], pattern: Any, *arguments: Any, count: int = 1) -> list[list[str]]:
    """Compute groups by the reference interpreter; compare with the whole program by it; return what was in the groups."""
    groups: list[list[str]] = []

    def build(group: KernelGroup) -> ArrayFunction:
        groups.append([each.op.name.split(".")[1] for each in group.instructions])
        assert len(group.result_types) == 1
        return ArrayFunction(lambda *operands: group.evaluate(*operands)[0], trust="python")

    class Nova:
        @hookimpl
        def hlojit_kernels(self) -> list[Kernel]:
            return [Kernel("nova.whole", backend="cpu", pattern=pattern, build=build)]

    found = np.asarray(hlojit.jit(function, plugins=[Nova()])(*arguments), "f8")
    expected = np.asarray(hlojit.jit(function, backend="reference")(*arguments), "f8")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    asked = list(groups)
    with using(Nova()):
        taken = hlojit.kernel_report(str(hlojit.jit(function).lower(*arguments))).taken
    assert len(taken) == count
    return asked


@pytest.mark.parametrize("dtype", ["f4", ml_dtypes.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_attention_of_layers_that_share_a_mask(layers: int, dtype: Any) -> None:
    """What spreads the mask belongs to each layer's group, and ties none to the others."""
    q, k, v = (RNG.standard_normal((2, 6, 8)).astype(dtype) for _ in range(3))
    mask = np.tril(np.ones((6, 6), np.bool_))

    def model(q: Array, k: Array, v: Array, mask: Array) -> Array:
        for _ in range(layers):
            q = attention(q, k, v, mask)
        return q

    groups = run(model, SubgraphPattern(attention_of, root="stablehlo.dot_general"), q, k, v, mask, count=layers)
    assert all(each.count("dot_general") == 2 and "select" in each for each in groups)


def test_layer_norm_of_bf16() -> None:
    x, gamma, beta = (RNG.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((5, 48), (48,), (48,)))
    (group,) = run(layer_norm, AnchorPattern("stablehlo.reduce"), x, gamma, beta)
    assert group.count("reduce") == 2 and group[-1] == "add"


def test_softmax_with_a_mask() -> None:
    def softmax(x: Array, mask: Array) -> Array:
        numbers = np.where(mask, x, np.float32(-1e9))
        numbers = np.exp(numbers - numbers.max(-1, keepdims=True))
        found: Array = numbers / numbers.sum(-1, keepdims=True)
        return found

    x, mask = RNG.standard_normal((5, 7)).astype("f4"), RNG.random((5, 7)) > 0.3
    (group,) = run(softmax, AnchorPattern("stablehlo.reduce"), x, mask)
    assert "select" in group and group.count("reduce") == 2
