"""What a program that is compiled once for all sizes takes and refuses: what it does when it is compiled for each, op by op.

Arguments end where a page begins that may not be read: what is read beyond them ends the process.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.ops import BUILT_IN

from .cpu.conftest import Guarded

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A program of one op: ``arguments`` are types, some with the arrays that are tried."""

    body: str
    arguments: Sequence[str | tuple[str, Sequence[Any]]]
    result: str
    sizes: Sequence[int] = (0, 1, 3)
    before: str = ""
    symbolic: bool = True

    @property
    def text(self) -> str:
        types = {
            "xyzw"[number]: each if isinstance(each, str) else each[0] for number, each in enumerate(self.arguments)
        }
        arguments = ", ".join(f"%{name}: {type}" for name, type in types.items())
        body = f"{self.before}\n%0 = {self.body} -> {self.result}\nreturn %0 : {self.result}"
        for name, type in types.items():
            body = body.replace(f"${name}", type)
        return f"func.func @main({arguments}) -> {self.result} {{\n{body}\n}}"

    def calls(self) -> list[tuple[Array, ...]]:
        """Arguments of all shapes of these sizes, in guarded memory."""
        choices = [
            [np.asarray(value, storage(each[0])) for value in each[1]]
            if isinstance(each, tuple)
            else self._arrays(each)
            for each in self.arguments
        ]
        return [tuple(map(guarded, call)) for call in itertools.product(*choices)]

    def _arrays(self, type: str) -> list[Array]:
        *extents, _ = type.removeprefix("tensor<").removesuffix(">").split("x")
        shapes = itertools.product(*(self.sizes if extent == "?" else (int(extent),) for extent in extents))
        return [(np.arange(math.prod(shape)) % 5 + 1).reshape(shape).astype(storage(type)) for shape in shapes]


def storage(type: str) -> Any:
    element = type.removesuffix(">").split("x")[-1].removeprefix("tensor<")
    return {"f32": np.float32, "i1": np.bool_, "i32": np.int32, "i64": np.int64}[element]


def guarded(array: Array) -> Array:
    buffer = Guarded(array.tobytes())
    flat = np.frombuffer(buffer.memory, array.dtype, array.size, buffer.length - buffer.size)
    return flat.reshape(array.shape)


def gather(operand: str, indices: str, result: str, numbers: str, part: str, **options: Any) -> Case:
    attributes = f"dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = array<i64: {part}>"
    values = [np.resize(np.array([0, 100, -5, 2], np.int32), shape) for shape in options.pop("at", [(0, 1), (3, 1)])]
    body = f'"stablehlo.gather"(%x, %y) <{{{attributes}}}> : ($x, $y)'
    return Case(body, [operand, (indices, values)], result, **options)


def dynamic_gather(operand: str, indices: str, result: str, numbers: str, sizes: Sequence[Any]) -> Case:
    body = (
        f'"stablehlo.dynamic_gather"(%x, %y, %z) <{{dimension_numbers = #stablehlo.gather<{numbers}>}}> : ($x, $y, $z)'
    )
    values = [np.resize(np.array([0, 100, -5, 2], np.int32), shape) for shape in [(3, 1), (0, 1), (3, 0), (3, 2)]]
    return Case(body, [operand, (indices, values), (f"tensor<{len(sizes[0])}xi64>", sizes)], result)


def shapes(*values: Sequence[int]) -> tuple[str, Sequence[Any]]:
    """Arguments that are shapes."""
    return f"tensor<{len(values[0])}xi64>", values


def convolution(lhs: str, rhs: str, window: str = "", feature_groups: int = 1, batch_groups: int = 1) -> Case:
    groups = f"{{feature_group_count = {feature_groups} : i64, batch_group_count = {batch_groups} : i64}}"
    numbers = f"dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {{{window}}} {groups}"
    return Case(f"stablehlo.convolution(%x, %y) {numbers} : ($x, $y)", [lhs, rhs], "tensor<?x?x?xf32>")


ROWS = "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
BATCHED = (
    "offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], "
    "index_vector_dim = 1"
)
M, N = "tensor<?x4xf32>", "tensor<?x?xf32>"
V = "tensor<?xf32>"
WINDOW = """"stablehlo.reduce_window"(%x, %y) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
}) {"""
ZERO = "%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
SUMS = """%r:2 = "stablehlo.reduce"(%x, %y, %c, %c) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %d: tensor<f32>, %e: tensor<f32>):
    %s = stablehlo.add %a, %d : tensor<f32>
    %t = stablehlo.add %b, %e : tensor<f32>
    stablehlo.return %s, %t : tensor<f32>, tensor<f32>
}) {dimensions = array<i64: 0>} : ($x, $y, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)"""

CASES = {
    "gather of batches": gather(M, "tensor<?x1xi32>", "tensor<?x1xf32>", BATCHED, "1, 1"),
    "gather of rows": gather(M, "tensor<?x1xi32>", "tensor<?x4xf32>", ROWS, "1, 4"),
    "gather of parts": gather(N, "tensor<?x1xi32>", "tensor<?x2xf32>", ROWS, "1, 2", sizes=(0, 1, 2, 5)),
    "gather of nothing": gather(M, "tensor<?x1xi32>", "tensor<?x4xf32>", ROWS, "0, 4", symbolic=False),
    "gather by vectors": gather(
        M, "tensor<?x?xi32>", "tensor<?x4xf32>", ROWS, "1, 4", at=[(3, 1), (3, 2), (3, 0), (0, 0)]
    ),
    "gather to known rows": gather(M, "tensor<?x1xi32>", "tensor<3x4xf32>", ROWS, "1, 4"),
    "dynamic_gather": dynamic_gather(
        N, "tensor<?x?xi32>", N, ROWS, [(1, 1), (1, 3), (0, 3), (2, 3), (1, -1), (-1, 1), (1, 0)]
    ),
    "dynamic_gather of batches": dynamic_gather(
        N, "tensor<?x?xi32>", N, BATCHED, [(1, 1), (0, 1), (2, 1), (1, 2), (1, 0)]
    ),
    "broadcast_in_dim": Case("stablehlo.broadcast_in_dim %x, dims = [1] : ($x)", [V], "tensor<2x3xf32>"),
    "dynamic_broadcast_in_dim": Case(
        "stablehlo.dynamic_broadcast_in_dim %x, %y, dims = [1] : ($x, $y)",
        [V, shapes((2, 1), (2, 3), (0, 3), (-1, 3), (2, -3))],
        N,
    ),
    "dynamic_broadcast_in_dim to a bound": Case(
        "stablehlo.dynamic_broadcast_in_dim %x, %y, dims = [1] : ($x, $y)",
        [V, shapes((2, 3), (4, 3), (5, 3))],
        "tensor<?x?xf32, #stablehlo.bounds<4, ?>>",
    ),
    "dynamic_broadcast_in_dim to known rows": Case(
        "stablehlo.dynamic_broadcast_in_dim %x, %y, dims = [1] : ($x, $y)",
        [V, shapes((2, 3), (3, 3))],
        "tensor<2x?xf32>",
    ),
    "transpose": Case("stablehlo.transpose %x, dims = [1, 0] : ($x)", [M], "tensor<4x3xf32>"),
    "reverse": Case("stablehlo.reverse %x, dims = [0] : ($x)", [M], "tensor<3x4xf32>"),
    "reshape": Case("stablehlo.reshape %x : ($x)", [N], "tensor<3x2xf32>", sizes=(0, 1, 2, 3)),
    "dynamic_reshape": Case(
        "stablehlo.dynamic_reshape %x, %y : ($x, $y)", [N, shapes((3, 1), (0, 3), (3, 3), (-3, -1), (0, -1), (9, 1))], N
    ),
    "dynamic_reshape to known rows": Case(
        "stablehlo.dynamic_reshape %x, %y : ($x, $y)", [N, shapes((3, 1), (0, 3), (3, 3))], "tensor<3x?xf32>"
    ),
    "slice": Case("stablehlo.slice %x [1:3, 0:4:2] : ($x)", [M], "tensor<2x2xf32>", sizes=(0, 2, 3)),
    "real_dynamic_slice": Case(
        "stablehlo.real_dynamic_slice %x, %y, %z, %w : ($x, $y, $z, $w)",
        [V, shapes((0,), (1,), (-1,)), shapes((0,), (1,), (3,), (4,)), shapes((1,))],
        V,
        symbolic=False,
    ),
    "real_dynamic_slice by known steps": Case(
        "stablehlo.real_dynamic_slice %x, %y, %z, %c : ($x, $y, $z, tensor<1xi64>)",
        [V, shapes((0,), (1,), (-1,)), shapes((0,), (1,), (3,), (4,))],
        V,
        before="%c = stablehlo.constant dense<2> : tensor<1xi64>",
    ),
    "dynamic_slice": Case(
        "stablehlo.dynamic_slice %x, %y, %c, sizes = [2, 4] : ($x, $y, tensor<i32>)",
        [M, ("tensor<i32>", (0, 1, -100, 100))],
        "tensor<2x4xf32>",
        before="%c = stablehlo.constant dense<0> : tensor<i32>",
    ),
    "dynamic_update_slice": Case(
        "stablehlo.dynamic_update_slice %x, %y, %z, %c : ($x, $y, $z, tensor<i32>)",
        [M, "tensor<?x4xf32>", ("tensor<i32>", (0, 1, -100, 100))],
        M,
        before="%c = stablehlo.constant dense<0> : tensor<i32>",
    ),
    "dynamic_update_slice of columns": Case(
        "stablehlo.dynamic_update_slice %x, %y, %z, %z : ($x, $y, $z, $z)",
        ["tensor<3x?xf32>", "tensor<2x1xf32>", ("tensor<i64>", (0, 1))],
        "tensor<3x?xf32>",
    ),
    "sort": Case(
        '"stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): %p = '
        "stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %p : tensor<i1> }) : ($x)",
        [M],
        M,
    ),
    "scatter": Case(
        '"stablehlo.scatter"(%x, %y, %z) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], '
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({ ^bb0(%a: tensor<f32>, "
        "%b: tensor<f32>): %p = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %p : tensor<f32> }) : ($x, $y, $z)",
        [M, ("tensor<?x1xi32>", ([[0], [1]], [[2]], np.zeros((0, 1)))), "tensor<?x?xf32>"],
        M,
    ),
    "concatenate": Case("stablehlo.concatenate %x, %y, dim = 0 : ($x, $y)", [N, M], N, sizes=(0, 1, 4)),
    "concatenate to known rows": Case("stablehlo.concatenate %x, %y, dim = 0 : ($x, $y)", [M, M], "tensor<4x4xf32>"),
    "pad": Case("stablehlo.pad %x, %y, low = [-1], high = [0], interior = [1] : ($x, $y)", [V, "tensor<f32>"], V),
    "pad to a known size": Case(
        "stablehlo.pad %x, %y, low = [1], high = [0], interior = [1] : ($x, $y)", [V, "tensor<f32>"], "tensor<6xf32>"
    ),
    "dynamic_pad": Case(
        "stablehlo.dynamic_pad %x, %y, %z, %w, %c : ($x, $y, $z, $w, tensor<1xi64>)",
        [V, "tensor<f32>", shapes((0,), (1,), (-1,)), shapes((0,), (2,), (-2,))],
        V,
        before="%c = stablehlo.constant dense<0> : tensor<1xi64>",
    ),
    "iota": Case(
        "stablehlo.add %r, %x : (tensor<3xf32>, $x)",
        [V],
        "tensor<3xf32>",
        before="%r = stablehlo.iota dim = 0 : tensor<3xf32>",
    ),
    "dynamic_iota": Case(
        "stablehlo.dynamic_iota %y, dim = 1 : ($y)", [V, shapes((2, 3), (0, 3), (-1, 3), (-1, 0), (-(2**63), 3))], N
    ),
    "dynamic_iota of integers": Case(
        "stablehlo.dynamic_iota %y, dim = 0 : ($y)",
        [V, shapes((2, 3), (-1, 3), (-(2**63), 3), (2**62, 0), (0, 2**62))],
        "tensor<?x?xi32>",
    ),
    "dynamic_broadcast_in_dim of a size": Case(
        "stablehlo.dynamic_broadcast_in_dim %r, %y, dims = [] : (tensor<i64>, $y)",
        [V, shapes((2,), (-1,), (-(2**63),), (2**62,))],
        "tensor<?xi64>",
        before="%r = stablehlo.reshape %y : ($y) -> tensor<i64>",
    ),
    "dynamic_iota of known rows": Case(
        "stablehlo.dynamic_iota %y, dim = 1 : ($y)", [V, shapes((2, 3), (3, 3), (3, -1))], "tensor<3x?xf32>"
    ),
    "bitcast_convert": Case("stablehlo.bitcast_convert %x : ($x)", [V], "tensor<3xi32>"),
    "reduce": Case(
        "stablehlo.reduce(%x init: %y) applies stablehlo.add across dimensions = [1] : ($x, $y)",
        [M, "tensor<f32>"],
        "tensor<3xf32>",
    ),
    "reduce of two": Case(
        "stablehlo.add %r#0, %r#1 : (tensor<f32>, tensor<f32>)", [V, V], "tensor<f32>", before=ZERO + SUMS
    ),
    "reduce of two that is read of one": Case(
        "stablehlo.negate %r#0 : (tensor<f32>)", [V, V], "tensor<f32>", before=ZERO + SUMS
    ),
    "add that nothing reads": Case("stablehlo.negate %x : ($x)", [V, V], V, before=f"%r = stablehlo.add %x, %y : {V}"),
    "dot_general": Case(
        "stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ($x, $y)", [M, N], N, sizes=(0, 1, 4)
    ),
    "dot_general of batches": Case(
        "stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [1] x [1] : ($x, $y)",
        [M, N],
        "tensor<?xf32>",
        sizes=(0, 1, 4),
    ),
    "dot_general to known rows": Case(
        "stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ($x, $y)",
        [M, "tensor<4x?xf32>"],
        "tensor<3x3xf32>",
    ),
    "reduce_window": Case(
        WINDOW + "window_dimensions = array<i64: 2>, padding = dense<[[-1, 2]]> : tensor<1x2xi64>} : ($x, $y)",
        [V, "tensor<f32>"],
        V,
    ),
    "reduce_window to a known size": Case(
        WINDOW + "window_dimensions = array<i64: 2>} : ($x, $y)", [V, "tensor<f32>"], "tensor<2xf32>"
    ),
    "convolution": convolution(
        "tensor<1x1x?xf32>", "tensor<1x1x?xf32>", "stride = [2], lhs_dilate = [2], rhs_dilate = [3]"
    ),
    "convolution of features": convolution("tensor<1x?x3xf32>", "tensor<2x?x2xf32>"),
    "convolution of groups of features": convolution("tensor<1x?x3xf32>", "tensor<?x1x2xf32>", feature_groups=3),
    "convolution of groups of batches": convolution("tensor<?x1x3xf32>", "tensor<?x1x2xf32>", batch_groups=3),
    "add": Case("stablehlo.add %x, %y : ($x, $y)", [V, V], V),
    "add to a known size": Case("stablehlo.add %x, %y : ($x, $y)", [V, V], "tensor<3xf32>"),
    "select": Case("stablehlo.select %x, %y, %z : ($x, $y, $z)", ["tensor<?xi1>", V, V], V),
    "clamp": Case("stablehlo.clamp %x, %y, %z : ($x, $y, $z)", [V, V, "tensor<f32>"], V),
    "convert to a known size": Case("stablehlo.convert %x : ($x)", [V], "tensor<3xi32>"),
}


def outcome(executable: Any, call: Sequence[Array]) -> Array | None:
    """The result; None where the call is refused."""
    try:
        result: Array = executable(*call)
    except hlojit.ArgumentError:
        return None
    return result


@pytest.mark.parametrize("name", CASES)
def test_the_same_calls_are_refused_and_the_others_give_the_same(name: str) -> None:
    case = CASES[name]
    options = {"dynamic_shapes": "symbolic", "specializations": 1000}
    symbolic = hlojit.compile(case.text, options=options)
    assert (symbolic.dynamic_shapes == "symbolic") is case.symbolic, symbolic.why
    others = [hlojit.compile(case.text), hlojit.compile(case.text, backend="reference")]
    taken = 0
    for call in case.calls():
        found, *expected = (outcome(each, call) for each in (symbolic, *others))
        where = [each.shape if each.size > 9 else each.tolist() for each in call]
        for other in expected:
            assert (found is None) == (other is None), where
            np.testing.assert_array_equal(found, other, err_msg=str(where))
        taken += found is not None
    assert taken


def test_every_op_with_a_rule_has_a_case() -> None:
    ruled = {op.mnemonic for op in BUILT_IN.values() if op.symbolic is not None}
    assert ruled and ruled <= {name.split()[0] for name in CASES}
