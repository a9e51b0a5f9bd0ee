"""Ops that move elements: references by hand, and the indexed rules evaluated element by element against them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hlojit.ir.formats import FloatFormat, element_type
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.definition import Indexed, op
from hlojit.ir.ops.movement import reshaped_index
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.arrays import compute_dtype, round_array
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.ir.types import TensorType, tensor

B: Any = NumpyBuilder()


class Emitter:
    """An ``ElementEmitter`` whose indices are integers; reading out of bounds fails."""

    builder = B

    def __init__(self, arrays: list[np.ndarray], types: list[TensorType]):
        self.arrays = arrays
        self.types = types

    def operand(self, number: int, index: Any) -> Any:
        index = tuple(index)
        assert len(index) == self.arrays[number].ndim
        assert all(0 <= i < n for i, n in zip(index, self.arrays[number].shape)), (index, self.arrays[number].shape)
        return B.value(formats.compute_kind(self.types[number].element_type), self.arrays[number][index])

    def index_value(self, index: int, kind: str) -> Any:
        return B.constant(kind, index)

    def run_time_index(self, value: Any, element: Any, low: int, high: int) -> int:
        number = int(B.array(value)) if element.signed else int(B.array(value).view(element.storage))
        return min(max(number, low), high)

    def in_range(self, index: int, low: int, high: int) -> Any:
        # Half of the conditions are given as emitted ones, so that both ways through a rule are taken.
        inside = low <= index < high
        return inside if index % 2 else B.constant("i1", inside)

    def guarded(self, condition: Any, value: Any, otherwise: Any) -> Any:
        holds = condition if isinstance(condition, bool) else bool(B.array(condition))
        return value() if holds else otherwise()


class Call:
    def __init__(self, instruction: Instruction):
        self.instruction = instruction
        self.attributes = instruction.attributes


def make(name: str, types: list[TensorType], result: TensorType | None, attributes: dict[str, Any]) -> Instruction:
    record = op(name)
    if result is None:
        from hlojit.ir.ops.definition import InferenceRequest

        assert record.infer is not None
        (result,) = record.infer(InferenceRequest(tuple(types), attributes))
    instruction = Instruction(record, Block(types).arguments, (result,), attributes)
    complaints = [(c.label, c.check(instruction)) for c in record.constraints if c.check(instruction)]
    assert not complaints, complaints
    return instruction


def by_rule(instruction: Instruction, arrays: list[np.ndarray]) -> np.ndarray:
    """The result, one element at a time."""
    lowering, type = instruction.op.lowering, instruction.result.tensor_type
    assert isinstance(lowering, Indexed)
    emitter = Emitter(arrays, [operand.tensor_type for operand in instruction.operands])
    result = np.zeros(type.shape, compute_dtype(type.element_type))
    for index in itertools.product(*map(range, type.shape)):
        scalar = lowering.rule(emitter, instruction, index)
        assert scalar.kind == formats.compute_kind(type.element_type)
        array = B.array(scalar)
        result[index] = array if array.dtype.kind in "fb" else array.view(type.element_type.storage)
    return result


def by_reference(instruction: Instruction, arrays: list[np.ndarray]) -> np.ndarray:
    assert instruction.op.reference is not None
    value = instruction.op.reference(Call(instruction), *arrays)
    return round_array(np.asarray(value), instruction.result.tensor_type.element_type)


def check(name: str, arrays: list[Any], attributes: Any, expected: Any, result: TensorType | None = None) -> None:
    arrays = [np.asarray(a) for a in arrays]
    names = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32", np.dtype(np.uint8): "ui8"}
    types = [tensor(a.shape, names[a.dtype]) for a in arrays]
    instruction = make(name, types, result, attributes)
    expected = np.asarray(expected)
    found = by_reference(instruction, arrays)
    assert found.shape == expected.shape == instruction.result.tensor_type.shape
    assert np.array_equal(found, expected), found
    assert np.array_equal(by_rule(instruction, arrays), expected)


A23 = np.arange(6, dtype=np.float32).reshape(2, 3)
ZERO = np.float32(9)


def padding(low: Any, high: Any, interior: Any) -> dict[str, Any]:
    return {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": interior}


@pytest.mark.parametrize(
    ("array", "attributes", "expected"),
    [
        ([1, 2, 3], padding((1,), (2,), (0,)), [9, 1, 2, 3, 9, 9]),
        ([1, 2, 3], padding((0,), (0,), (2,)), [1, 9, 9, 2, 9, 9, 3]),
        ([1, 2, 3], padding((-1,), (0,), (1,)), [9, 2, 9, 3]),
        ([1, 2, 3], padding((-2,), (-2,), (1,)), [2]),
        ([1, 2, 3], padding((-4,), (3,), (0,)), [9, 9]),
        ([1, 2, 3], padding((4,), (-5,), (0,)), [9, 9]),
        ([1, 2, 3], padding((-3,), (0,), (0,)), []),
        ([], padding((1,), (1,), (3,)), [9, 9]),
        ([[1, 2], [3, 4]], padding((1, -1), (0, 1), (1, 0)), [[9, 9], [2, 9], [9, 9], [4, 9]]),
        (5, padding((), (), ()), 5),
    ],
)
def test_pad(array: Any, attributes: Any, expected: Any) -> None:
    check("pad", [np.array(array, np.float32), ZERO], attributes, np.array(expected, np.float32))


@pytest.mark.parametrize(
    ("array", "shape", "dimensions", "expected"),
    [
        (1.0, (2,), (), [1, 1]),
        ([1, 2], (2, 2), (0,), [[1, 1], [2, 2]]),
        ([1, 2], (2, 2), (1,), [[1, 2], [1, 2]]),
        ([[1], [2]], (2, 3), (0, 1), [[1, 1, 1], [2, 2, 2]]),
        ([[1, 2]], (2, 3), (1, 0), [[1, 1, 1], [2, 2, 2]]),
        ([1], (0,), (0,), []),
    ],
)
def test_broadcast_in_dim(array: Any, shape: Any, dimensions: Any, expected: Any) -> None:
    attributes = {"broadcast_dimensions": dimensions}
    check("broadcast_in_dim", [np.array(array, np.float32)], attributes, np.array(expected), tensor(shape, "f32"))


def test_transpose() -> None:
    check("transpose", [A23], {"permutation": (1, 0)}, [[0, 3], [1, 4], [2, 5]])
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    check("transpose", [cube], {"permutation": (2, 0, 1)}, np.moveaxis(cube, 2, 0))
    check("transpose", [np.float32(3)], {"permutation": ()}, 3.0)


def test_reverse() -> None:
    check("reverse", [A23], {"dimensions": (1,)}, [[2, 1, 0], [5, 4, 3]])
    check("reverse", [A23], {"dimensions": (0, 1)}, [[5, 4, 3], [2, 1, 0]])
    check("reverse", [A23], {"dimensions": ()}, A23)


def test_slice() -> None:
    check("slice", [A23], {"start_indices": (0, 1), "limit_indices": (2, 3), "strides": (1, 1)}, [[1, 2], [4, 5]])
    check("slice", [A23], {"start_indices": (1, 0), "limit_indices": (2, 3), "strides": (1, 2)}, [[3, 5]])
    check("slice", [A23], {"start_indices": (1, 3), "limit_indices": (1, 3), "strides": (1, 1)}, np.zeros((0, 0)))


def test_concatenate() -> None:
    check("concatenate", [A23, A23[:1]], {"dimension": 0}, [[0, 1, 2], [3, 4, 5], [0, 1, 2]])
    parts = [A23, A23[:, :0], A23[:, 1:], A23[:, 2:]]
    check("concatenate", parts, {"dimension": 1}, [[0, 1, 2, 1, 2, 2], [3, 4, 5, 4, 5, 5]])
    check("concatenate", [A23], {"dimension": 1}, A23)


@pytest.mark.parametrize(
    ("starts", "expected"),
    [((0, 0), [[0, 1]]), ((1, 1), [[4, 5]]), ((-7, -(2**31)), [[0, 1]]), ((2**31 - 1, 2), [[4, 5]])],
)
def test_dynamic_slice_stays_inside(starts: Any, expected: Any) -> None:
    check("dynamic_slice", [A23, *map(np.int32, starts)], {"slice_sizes": (1, 2)}, expected)


def test_dynamic_slice_takes_unsigned_starts() -> None:
    check("dynamic_slice", [A23, np.uint8(200), np.uint8(0)], {"slice_sizes": (1, 3)}, [[3, 4, 5]])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((6,), (2, 3)),
        ((2, 3), (6,)),
        ((2, 3), (3, 2)),
        ((4, 6), (2, 2, 3, 2)),
        ((2, 1, 3), (1, 2, 3, 1)),
        ((1,), ()),
        ((), (1, 1)),
        ((2, 3, 4), (2, 12)),
        ((2, 3, 4), (6, 1, 4)),
        ((3, 4, 5), (5, 4, 3)),
        ((0, 3), (0,)),
        ((0,), (2, 0)),
    ],
)
def test_reshape(source: Any, target: Any) -> None:
    array = np.arange(np.prod(source, dtype=int), dtype=np.float32).reshape(source)
    check("reshape", [array], {}, array.reshape(target), tensor(target, "f32"))


class Opaque(int):
    """An index that must not be divided."""

    def __floordiv__(self, other: object) -> int:
        raise AssertionError("divided")

    __mod__ = __floordiv__


def test_reshape_passes_indices_through() -> None:
    index = [Opaque(1), Opaque(0), Opaque(2), Opaque(3)]
    assert reshaped_index((2, 1, 3, 4), (2, 3, 1, 4), index) == [1, 2, 0, 3]


@pytest.mark.parametrize("name", ["i8", "ui8", "i4", "i64", "f32", "f64", "bf16", "f16", "f8E4M3FN"])
def test_iota(name: str) -> None:
    element = element_type(name)
    instruction = make("iota", [], tensor((2, 20), element), {"iota_dimension": 1})
    counts = np.broadcast_to(np.arange(20), (2, 20))
    if isinstance(element, FloatFormat):
        expected = round_array(counts.astype(np.float64), element)
    else:
        width = 1 << element.bits
        low = element.minimum  # type: ignore[attr-defined]
        expected = ((counts.astype(object) - low) % width + low).astype(element.storage)
    assert np.array_equal(by_reference(instruction, []), expected)
    assert np.array_equal(by_rule(instruction, []), expected)


def test_get_dimension_size() -> None:
    check("get_dimension_size", [A23], {"dimension": 1}, np.int32(3))


BITCASTS = [
    ("f32", [1.0, -0.0], "i32", (2,), [0x3F800000, -(2**31)]),
    ("ui32", [0x3F800000], "f32", (1,), [1.0]),
    ("bf16", [1.0], "ui16", (1,), [0x3F80]),
    ("ui16", [0x3F80], "bf16", (1,), [1.0]),
    ("f16", [1.5], "i16", (1,), [0x3E00]),
    ("f8E4M3FN", [448.0], "ui8", (1,), [0x7E]),
    ("ui32", [0x01020304], "ui8", (1, 4), [[4, 3, 2, 1]]),
    ("ui8", [[4, 3, 2, 1]], "ui32", (1,), [0x01020304]),
    ("f64", [1.0], "ui32", (1, 2), [[0, 0x3FF00000]]),
    ("ui32", [[0, 0x3FF00000]], "f64", (1,), [1.0]),
    ("f32", [1.0], "bf16", (1, 2), [[0.0, 1.0]]),
    ("bf16", [[0.0, 1.0]], "f32", (1,), [1.0]),
    ("i8", [-2], "i4", (1, 2), [[-2, -1]]),
    ("ui4", [[14, 15]], "i8", (1,), [-2]),
    ("i64", [[-1]], "ui16", (1, 1, 4), [[[65535] * 4]]),
    ("i32", [], "f32", (0,), []),
]


@pytest.mark.parametrize(("source", "values", "target", "shape", "expected"), BITCASTS)
def test_bitcast_convert(source: str, values: Any, target: str, shape: Any, expected: Any) -> None:
    array = np.array(values, compute_dtype(element_type(source)))
    instruction = make("bitcast_convert", [tensor(array.shape, source)], tensor(shape, target), {})
    assert by_reference(instruction, [array]).tolist() == expected
    assert by_rule(instruction, [array]).tolist() == expected
