"""The first elements of sorted lines, top_k among them, on the simulator: against NumPy, JAX and the CPU, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.extensions import CompileOptions, registry
from hlojit.lowering.body import Body
from hlojit.lowering.selection import Selection
from hlojit.lowering.selection_plan import SelectionPlan

from ..cpu.test_sort import sort_text
from .sorting import STORAGE, Array, bits_of, check, compared, numbers, on_gpu, run, sorted_by, total_keys

Runner = Callable[..., list[Array]]
__all__ = ["on_gpu"]


def top_k(shape: tuple[int, ...], element: str, k: int) -> str:
    extents = "".join(f"{extent}x" for extent in shape[:-1])
    operand = f"tensor<{extents}{shape[-1]}x{element}>"
    values, indices = f"tensor<{extents}{k}x{element}>", f"tensor<{extents}{k}xi32>"
    return f"""
    func.func @main(%x: {operand}) -> ({values}, {indices}) {{
      %0:2 = chlo.top_k(%x, k = {k}) : {operand} -> ({values}, {indices})
      return %0#0, %0#1 : {values}, {indices}
    }}"""


def expected(x: Array, k: int) -> list[Array]:
    places = np.broadcast_to(np.arange(x.shape[-1], dtype="i4"), x.shape)
    return [each[..., :k] for each in sorted_by(total_keys(x), [x, places], -1, descending=True)]


def kinds(text: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    module = lower(hlojit.parse(text), registry().backend("cuda"), CompileOptions())
    return [each.attributes["kind"] for each in module.walk() if each.name == "hlojit.fusion"] + [
        each.name for each in module.walk() if each.name == "stablehlo.sort" and each.block is module.main.body
    ]


def plan_of(text: str, monkeypatch: pytest.MonkeyPatch) -> SelectionPlan:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    backend: Any = registry().backend("cuda")
    module = lower(hlojit.parse(text), backend, CompileOptions())
    (fusion,) = [each for each in module.walk() if each.name == "hlojit.fusion"]
    selection = Selection.of(Body.of(fusion))
    assert selection is not None
    return SelectionPlan.of(selection, backend.platform().target.grid)


LONG = ("i1", "i4", "ui8", "f8E4M3FN", "bf16", "f32")
"""Types whose keys have all widths up to 32 bits."""


@pytest.mark.parametrize(
    ("element", "length"),
    [*((element, 300) for element in STORAGE), *((element, 9000) for element in LONG)]
    + [pytest.param(element, 9000, marks=pytest.mark.slow) for element in STORAGE if element not in LONG],
)
def test_element_types(element: str, length: int, on_gpu: Runner) -> None:
    x = numbers(element, (2, length), seed=length)
    check(top_k(x.shape, element, 17), [x], expected(x, 17), on_gpu)


@pytest.mark.parametrize(("shape", "k"), [((2,), 1), ((31,), 30), ((33,), 1), ((5, 1000), 64), ((3, 4097), 4000),
                                          ((700, 33), 5), ((2, 8300), 1),
                                          pytest.param((3, 2, 9001), 2048, marks=pytest.mark.slow), ((1000,), 1000)])  # fmt: skip
def test_shapes(shape: tuple[int, ...], k: int, on_gpu: Runner) -> None:
    x = numbers("f32", shape, seed=k)
    check(top_k(shape, "f32", k), [x], expected(x, k), on_gpu)


@pytest.mark.parametrize("length", [1000, 20000, pytest.param(100000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("content", ["few", "constant", "sorted", "reversed"])
def test_equal_elements_come_in_their_order(length: int, content: str, on_gpu: Runner) -> None:
    """Ties: the lower index first, also where more elements equal the last one than are wanted."""
    x = numbers("i32", (length,), seed=1, few=True) if content == "few" else np.arange(length, dtype="i4")
    x = {"constant": np.zeros_like(x), "reversed": x[::-1].copy()}.get(content, x)
    check(top_k(x.shape, "i32", 100), [x], expected(x, 100), on_gpu)


def first(shape: tuple[int, ...], elements: tuple[str, ...], axis: int, count: int, body: str, results: str) -> str:
    """A sort of which the first elements of some results are returned."""
    text = sort_text(shape, elements, axis, body)
    types = [f"tensor<{''.join(f'{extent}x' for extent in shape)}{element}>" for element in elements]
    cut = [count if d == axis else extent for d, extent in enumerate(shape)]
    wanted = [int(number) for number in results]
    short = [f"tensor<{''.join(f'{extent}x' for extent in cut)}{elements[n]}>" for n in wanted]
    ranges = ", ".join(f"0:{extent}" for extent in cut)
    lines = [f"%p{n} = stablehlo.slice %s#{n} [{ranges}] : ({types[n]}) -> {short[k]}" for k, n in enumerate(wanted)]
    lines.append(f"return {', '.join(f'%p{n}' for n in wanted)} : {', '.join(short)}")
    head, _, _ = text.rpartition("return %s#0")
    head = head.replace(f"-> ({', '.join(types)}) {{", f"-> ({', '.join(short)}) {{", 1)
    return head + "\n".join(lines) + "\n}"


@pytest.mark.parametrize(("shape", "axis"), [((9000,), 0), ((300, 7), 0), ((2, 9000, 2), 1), ((7, 300), 1)])
@pytest.mark.parametrize("results", ["012", "1", "20"])
def test_a_sort_that_is_cut_off(
    shape: tuple[int, ...], axis: int, results: str, on_gpu: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [numbers("ui16", shape, seed=1), numbers("f64", shape, seed=2), numbers("i1", shape, seed=3)]
    text = first(shape, ("ui16", "f64", "i1"), axis, 20, compared("LT", "ui16"), results)
    assert kinds(text, monkeypatch) == ["selection"]
    wanted = [np.take(each, range(20), axis) for each in sorted_by(arrays[0], arrays, axis)]
    check(text, arrays, [wanted[int(number)] for number in results], on_gpu)


@pytest.mark.parametrize("length", [500, 20000])
def test_several_keys(length: int, on_gpu: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "\n".join((
        compared("LT", "i8", result="%less"), compared("EQ", "i8", result="%same"),
        compared("GT", "f32", "%x1", "%y1", "%second"),
        "%both = stablehlo.and %second, %same : tensor<i1>", "%r = stablehlo.or %both, %less : tensor<i1>",
    ))  # fmt: skip
    arrays = [numbers("i8", (length,), few=True), numbers("f32", (length,), seed=3, few=True)]
    text = first((length,), ("i8", "f32"), 0, 37, body, "01")
    assert kinds(text, monkeypatch) == ["selection"]
    order = np.lexsort((~total_keys(arrays[1]), arrays[0]))[:37]
    check(text, arrays, [each[order] for each in arrays], on_gpu)


def test_only_sorts_by_keys_that_are_read_in_part_are_selections(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(length: int, count: int, body: str) -> list[str]:
        return kinds(first((length,), ("f32",), 0, count, body, "0"), monkeypatch)

    assert of(5000, 20, compared("LT", "f32")) == ["selection"]
    assert "selection" not in of(5000, 20, compared("LT", "f32", order="FLOAT")), "NaN has no place in this order"
    assert "selection" not in of(5000, 3000, compared("LT", "f32")), "more than a block sorts at the end"
    text = first((5000,), ("f32",), 0, 20, compared("LT", "f32"), "0")
    assert kinds(text.replace("[0:20]", "[20:40]"), monkeypatch) == ["selection", "loop"]
    assert "selection" not in kinds(text.replace("[0:20]", "[4980:5000]"), monkeypatch), "the last elements"


def test_numbers_are_no_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan_of(top_k((64, 50000), "f32", 50), monkeypatch)
    assert not made.radix.rows and made.workspace_bytes < 2 << 20, "nothing as large as the operand is written"
    short = plan_of(top_k((640, 500), "f32", 50), monkeypatch)
    assert short.radix.rows == 4 and short.workspace_bytes == 0


JAX_PROGRAMS: dict[str, Callable[..., Any]] = {
    "top_k": lambda x: jax.lax.top_k(x, 7),
    "first_axis": lambda x: jax.lax.top_k(x, 3, axis=0),
    "smallest": lambda x: jnp.sort(x, axis=1)[:, :9],
    "places_of_the_smallest": lambda x: jnp.argsort(x, axis=0)[:4],
    "masked_logits": lambda x: jnp.where(x < jax.lax.top_k(x, 5)[0][:, -1:], -jnp.inf, x),
}


@pytest.mark.parametrize("name", JAX_PROGRAMS)
@pytest.mark.parametrize("element", ["f32", "i32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_as_jax(name: str, element: str, on_gpu: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers(element, (6, 400), seed=2, few=True)
    if element != "i32":
        x[:, 3], x[:, 9], x[0, 4] = np.inf, -np.inf, 0.5
    function = jax.jit(JAX_PROGRAMS[name])
    text = function.lower(x).as_text()
    assert "selection" in kinds(text, monkeypatch)
    for ours, cpu, theirs in zip(on_gpu(text, x), run(text, "cpu", x), jax.tree.leaves(function(x)), strict=True):
        np.testing.assert_array_equal(bits_of(ours), bits_of(cpu))
        np.testing.assert_array_equal(ours.astype("f8"), np.asarray(theirs).astype("f8"))
