"""Pointwise rules: the code that is emitted, evaluated by NumPy, against reference semantics and hand-worked cases.

Every op runs on every element type that it takes, over hard values (zeros, infinities, NaN, integer minima) and
random ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.errors import TypeInferenceError
from hlojit.ir.formats import (
    BooleanType,
    ComplexType,
    ElementType,
    FloatFormat,
    IntegerType,
    element_type,
    element_types,
)
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.definition import InferenceRequest, OpDefinition, Pointwise, PointwiseCall, op, ops
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.arrays import compute_dtype, decode_array, round_array, to_storage
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.ir.types import tensor

B: Any = NumpyBuilder()
ELEMENTS = [row for row in element_types() if not isinstance(row, (ComplexType, BlockFormat))]
POINTWISE = [
    record for record in ops() if isinstance(record.lowering, Pointwise) and record.name.startswith("stablehlo.")
]
TRANSCENDENTAL = {
    "atan2": 3, "cbrt": 3, "cosine": 3, "exponential": 2, "exponential_minus_one": 2, "log": 2, "log_plus_one": 2,
    "logistic": 3, "power": 4, "rsqrt": 3, "sine": 3, "tan": 4, "tanh": 2,
}  # fmt: skip
"""Units in the last place of the compute type by which a rule may miss the reference (exact for all other ops)."""

ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "compare": [
        {"comparison_direction": direction, "compare_type": kind}
        for direction in ("EQ", "NE", "GE", "GT", "LE", "LT")
        for kind in (None, "TOTALORDER")
    ],
    "reduce_precision": [
        {"exponent_bits": exponent, "mantissa_bits": mantissa}
        for exponent, mantissa in ((5, 10), (8, 7), (4, 3), (2, 0), (8, 0), (1, 1), (5, 23), (11, 52))
    ],
}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def hard_values(element: ElementType) -> np.ndarray:
    """Values in compute form."""
    random = np.random.default_rng(5)
    if isinstance(element, BooleanType):
        return np.array([False, True])
    if isinstance(element, IntegerType):
        if element.bits < 8:
            return np.arange(element.minimum, element.maximum + 1).astype(element.storage)
        few = {element.minimum, element.minimum + 1, element.maximum, element.maximum - 1, 0, 1, 2, 3, 7, element.bits}
        few |= {element.bits - 1, element.maximum // 3} | ({-1, -2, -7} if element.signed else set())
        more = random.integers(element.minimum, element.maximum, 12, dtype=element.storage, endpoint=True).tolist()
        return np.array(sorted(few) + more, element.storage)
    assert isinstance(element, FloatFormat)
    dtype = compute_dtype(element).type
    if not element.is_native and element.bits <= 8:
        return decode_array(np.arange(1 << element.bits).astype(element.storage_bits), element)
    limits = np.finfo(dtype)
    hard = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 0.1, 1e-3, 7.7, 88.0, 1e5, np.inf, np.nan, limits.tiny, limits.max]
    hard += [limits.smallest_subnormal, 0.49999997, 8388607.5, 2.0**31, 2.0**63, 1e-30]
    values = np.array(hard, dtype)
    scattered = (random.normal(size=20) * 10.0 ** random.integers(-4, 5, 20)).astype(dtype)
    return round_array(np.concatenate([values, -values, scattered]), element)


def accepted(record: OpDefinition, types: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """The inferred result type, or None where the op does not take these types."""
    if record.infer is None:
        return None
    try:
        return record.infer(InferenceRequest(types, attributes))[0]
    except TypeInferenceError:
        return None


def run_rule(record: OpDefinition, types: Any, result: Any, attributes: Any, *arrays: np.ndarray) -> np.ndarray:
    lowering = record.lowering
    assert isinstance(lowering, Pointwise)
    elements = tuple(type.element_type for type in types)
    scalars = [B.value(formats.compute_kind(element), array) for element, array in zip(elements, arrays)]
    scalar = lowering.rule(B, PointwiseCall(elements, result.element_type, attributes), *scalars)
    assert scalar.kind == formats.compute_kind(result.element_type)
    array = B.array(scalar)
    array = array.view(result.element_type.storage) if isinstance(result.element_type, IntegerType) else array
    rounded = round_array(array, result.element_type)
    if lowering.exact:
        assert same(array, rounded).all(), "a rule that says it is exact leaves something to round"
    return np.broadcast_to(rounded, np.broadcast_shapes(*(a.shape for a in arrays)))


class Call:
    """What a reference sees of the interpreter."""

    replica = partition = 0

    def __init__(self, instruction: Instruction):
        self.instruction = instruction
        self.attributes = instruction.attributes


def run_reference(record: OpDefinition, types: Any, result: Any, attributes: Any, *arrays: np.ndarray) -> np.ndarray:
    block = Block(types)
    call = Call(Instruction(record, block.arguments, (result,), attributes))
    assert record.reference is not None
    return round_array(record.reference(call, *np.broadcast_arrays(*arrays)), result.element_type)


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        return np.asarray(a == b)
    unsigned = f"u{a.dtype.itemsize}"
    bits = np.ascontiguousarray(a).view(unsigned) == np.ascontiguousarray(b).view(unsigned)
    return np.asarray(bits | (np.isnan(a) & np.isnan(b)))


def steps_between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distance in representable numbers; 0 for two NaN, a lot for NaN and a number."""
    integer = np.dtype(f"i{a.dtype.itemsize}")

    def rank(x: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(x).view(integer)
        return np.where(bits < 0, np.iinfo(integer).min - bits, bits).astype(object)

    distance = abs(rank(a) - rank(b))
    both = np.isnan(a) & np.isnan(b)
    return np.where(both, 0, np.where(np.isnan(a) != np.isnan(b), 1 << 60, distance))


def _taken() -> list[Any]:
    """Every op with every element type that it takes; three have tests of their own."""
    rows = []
    for record in POINTWISE:
        for element in ELEMENTS:
            types = (tensor((1,), element),) * len(record.operands)
            attributes = ATTRIBUTES.get(record.mnemonic, [{}])[0]
            result = accepted(record, types, attributes)
            if result is None or isinstance(result.element_type, ComplexType):
                continue  # a complex number is a pair of scalars, which tests/complex runs
            if record.mnemonic not in ("convert", "select", "clamp"):
                rows.append(pytest.param(record, element, id=f"{record.mnemonic}-{element}"))
    assert len(rows) > 700, "most ops take most types"
    return rows


@pytest.mark.parametrize(("record", "element"), _taken())
def test_rule_agrees_with_reference(record: OpDefinition, element: ElementType) -> None:
    count = len(record.operands)
    values = hard_values(element)
    arrays = (values,) if count == 1 else (values[:, None], values[None, :])
    types = tuple(tensor(np.broadcast_shapes(*(a.shape for a in arrays)), element) for _ in range(count))
    if record.mnemonic in TRANSCENDENTAL and isinstance(element, FloatFormat) and element.bits <= 8 and count == 2:
        arrays = (values[::5, None], values[None, ::3])
    tried = 0
    for attributes in ATTRIBUTES.get(record.mnemonic, [{}]):
        result = accepted(record, types, attributes)
        if result is None:
            continue
        tried += 1
        found = run_rule(record, types, result, attributes, *arrays)
        expected = run_reference(record, types, result, attributes, *arrays)
        if isinstance(element, FloatFormat) and not element.has_zero:
            # Results that f32 cannot hold are zero, hence NaN in this format, but not in the reference's f64.
            found, expected = (np.where(np.isnan(found), np.nan, a).astype(a.dtype) for a in (found, expected))
        if record.mnemonic in TRANSCENDENTAL and isinstance(element, FloatFormat):
            # Rounding to a narrow format turns a miss of one unit of f32 into one of the format at most.
            allowed = TRANSCENDENTAL[record.mnemonic]
            if not element.is_native:
                found, expected = (to_storage(a, element) for a in (found, expected))
                both = np.isnan(found.astype(np.float32)) & np.isnan(expected.astype(np.float32))
                bits = [a.view(element.storage_bits).astype(np.int64) for a in (found, expected)]
                assert (both | (abs(bits[0] - bits[1]) <= 1)).all()
                continue
            far = steps_between(found, expected) > allowed
        else:
            far = ~same(found, expected)
        where = np.argwhere(far)
        assert not len(where), [
            (attributes, *(np.broadcast_to(a, far.shape)[tuple(place)] for a in (*arrays, found, expected)))
            for place in where[:4]
        ]
    assert tried


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_clamp_and_select_rules(element: ElementType) -> None:
    values = hard_values(element)[:40]
    low, x, high = values[:, None, None][::4], values[None, :, None], values[None, None, :][..., ::3]
    types = (tensor((1,), element),) * 3
    found = run_rule(op("clamp"), types, types[0], {}, low, x, high)
    expected = run_reference(op("clamp"), types, types[0], {}, low, x, high)
    assert same(found, expected).all()
    pred = np.array([False, True])[:, None, None]
    types = (tensor((1,), "i1"), *types[:2])
    found = run_rule(op("select"), types, types[1], {}, pred, x, high)
    assert same(found, np.where(pred, *np.broadcast_arrays(x, high))).all()


@pytest.mark.parametrize("target", ELEMENTS, ids=str)
def test_convert_rule_agrees_with_reference(target: ElementType) -> None:
    for source in ELEMENTS:
        values = hard_values(source)
        types, result = (tensor(values.shape, source),), tensor(values.shape, target)
        found = run_rule(op("convert"), types, result, {}, values)
        expected = run_reference(op("convert"), types, result, {}, values)
        assert same(found, expected).all(), (source, values[~same(found, expected)][:5])


# cases worked out by hand

INF, NAN = float("inf"), float("nan")
I32_MIN, I64_MIN = -(2**31), -(2**63)
CASES: list[tuple[str, str, list[list[Any]], list[Any]]] = [
    ("abs", "i8", [[-128, -1, 0, 5]], [-128, 1, 0, 5]),
    ("abs", "f32", [[-0.0, -INF, NAN, -1.5]], [0.0, INF, NAN, 1.5]),
    ("abs", "i4", [[-8, -7, 7]], [-8, 7, 7]),
    ("add", "i1", [[0, 0, 1, 1], [0, 1, 0, 1]], [0, 1, 1, 1]),
    ("add", "i8", [[127, -128], [1, -1]], [-128, 127]),
    ("add", "ui4", [[15, 8], [1, 9]], [0, 1]),
    ("add", "i4", [[7, -8], [1, -1]], [-8, 7]),
    ("add", "f32", [[INF, 1.0, -0.0], [-INF, NAN, -0.0]], [NAN, NAN, -0.0]),
    ("add", "bf16", [[256.0, 256.0], [1.0, 3.0]], [256.0, 260.0]),
    ("add", "f8E4M3FN", [[448.0, 1.0], [448.0, 0.0625]], [NAN, 1.0]),
    ("subtract", "ui8", [[0], [1]], [255]),
    ("multiply", "i32", [[I32_MIN, 65536], [-1, 65536]], [I32_MIN, 0]),
    ("multiply", "i1", [[0, 1, 1], [1, 0, 1]], [0, 0, 1]),
    ("divide", "i32", [[7, -7, 7, -7, 5, 0, I32_MIN], [2, 2, -2, -2, 0, 0, -1]], [3, -3, -3, 3, -1, -1, I32_MIN]),
    ("divide", "ui8", [[7, 255, 9], [2, 16, 0]], [3, 15, 255]),
    ("divide", "ui4", [[15, 9], [4, 0]], [3, 15]),
    ("divide", "i4", [[-8, -8], [-1, 0]], [-8, -1]),
    ("divide", "f64", [[1.0, -1.0, 0.0, INF], [0.0, 0.0, 0.0, INF]], [INF, -INF, NAN, NAN]),
    ("remainder", "i32", [[7, -7, 7, 5, I32_MIN], [3, 3, -3, 0, -1]], [1, -1, 1, 5, 0]),
    ("remainder", "i64", [[I64_MIN, I64_MIN], [-1, 3]], [0, -2]),
    ("remainder", "f32", [[5.5, -5.5, 5.5, 1.0, INF, 1.0, -0.0], [2.0, 2.0, -2.0, INF, 2.0, 0.0, 1.0]],
     [1.5, -1.5, 1.5, 1.0, NAN, NAN, -0.0]),
    ("remainder", "f64", [[1e308, 2.0**1000], [3.0, 3.0]], [2.0, 1.0]),
    ("power", "i32", [[2, 2, -1, -1, 0, 0, 3, 1], [10, -1, -3, -2, 0, -1, 21, -9]],
     [1024, 0, -1, 1, 1, 0, 1870418611, 1]),
    ("power", "ui8", [[2, 3, 2], [8, 5, 7]], [0, 243, 128]),
    ("power", "f32", [[2.0, -8.0, 0.0, NAN, 1.0], [0.5, 3.0, -1.0, 0.0, NAN]], [2.0**0.5, -512.0, INF, 1.0, 1.0]),
    ("maximum", "f32", [[0.0, -0.0, NAN, 1.0, -INF], [-0.0, 0.0, 1.0, NAN, 2.0]], [0.0, 0.0, NAN, NAN, 2.0]),
    ("minimum", "f32", [[0.0, -0.0, NAN, 1.0, -INF], [-0.0, 0.0, 1.0, NAN, 2.0]], [-0.0, -0.0, NAN, NAN, -INF]),
    ("maximum", "ui8", [[255, 0], [1, 1]], [255, 1]),
    ("maximum", "i8", [[-1, 0], [1, 1]], [1, 1]),
    ("negate", "i8", [[-128, 1]], [-128, -1]),
    ("negate", "ui8", [[1, 0]], [255, 0]),
    ("negate", "f32", [[0.0, -INF, NAN]], [-0.0, INF, NAN]),
    ("negate", "f8E4M3FNUZ", [[0.0, 1.0]], [0.0, -1.0]),
    ("sign", "f32", [[-3.0, -0.0, 0.0, INF, NAN]], [-1.0, -0.0, 0.0, 1.0, NAN]),
    ("sign", "i8", [[-128, 0, 9]], [-1, 0, 1]),
    ("ceil", "f32", [[-0.5, 1.2, INF]], [-0.0, 2.0, INF]),
    ("floor", "f32", [[-0.5, 1.8, -0.0]], [-1.0, 1.0, -0.0]),
    ("round_nearest_afz", "f32", [[0.5, -0.5, 2.5, 0.49999997, -0.2]], [1.0, -1.0, 3.0, 0.0, -0.0]),
    ("round_nearest_afz", "f32", [[8388609.0, INF, NAN]], [8388609.0, INF, NAN]),
    ("round_nearest_even", "f32", [[0.5, 1.5, -2.5, -0.2]], [0.0, 2.0, -2.0, -0.0]),
    ("ceil", "f8E3M4", [[15.5, 0.25]], [INF, 1.0]),
    ("is_finite", "f32", [[1.0, INF, -INF, NAN]], [1, 0, 0, 0]),
    ("and", "i8", [[-1, 12], [5, 10]], [5, 8]),
    ("or", "i1", [[0, 0, 1], [0, 1, 1]], [0, 1, 1]),
    ("xor", "ui8", [[255], [15]], [240]),
    ("not", "i1", [[0, 1]], [1, 0]),
    ("not", "ui4", [[0, 5]], [15, 10]),
    ("not", "i8", [[0, 127]], [-1, -128]),
    ("shift_left", "i8", [[1, 1, 1, 1], [7, 8, -1, 0]], [-128, 0, 0, 1]),
    ("shift_left", "ui4", [[3, 3], [3, 4]], [8, 0]),
    ("shift_right_logical", "i8", [[-128, -128, -1], [7, 8, 1]], [1, 0, 127]),
    ("shift_right_logical", "i4", [[-8, -1], [3, 1]], [1, 7]),
    ("shift_right_arithmetic", "i8", [[-128, -128, 64, -1], [7, 8, 9, -1]], [-1, -1, 0, -1]),
    ("shift_right_arithmetic", "ui4", [[8, 7], [2, 9]], [14, 0]),
    ("popcnt", "i4", [[-1, 0, 5]], [4, 0, 2]),
    ("popcnt", "i64", [[-1, I64_MIN]], [64, 1]),
    ("count_leading_zeros", "i4", [[0, 1, -1]], [4, 3, 0]),
    ("count_leading_zeros", "ui16", [[0, 1, 32768]], [16, 15, 0]),
    ("exponential", "f32", [[0.0, -INF, INF, NAN]], [1.0, 0.0, INF, NAN]),
    ("log", "f64", [[1.0, 0.0, -1.0, INF]], [0.0, -INF, NAN, INF]),
    ("rsqrt", "f32", [[4.0, 0.0, -0.0, INF, -1.0]], [0.5, INF, -INF, 0.0, NAN]),
    ("sqrt", "f32", [[4.0, -0.0, -1.0]], [2.0, -0.0, NAN]),
    ("logistic", "f32", [[0.0, INF, -INF]], [0.5, 1.0, 0.0]),
    ("tanh", "f32", [[-0.0, INF, -INF]], [-0.0, 1.0, -1.0]),
    ("atan2", "f64", [[0.0, -0.0, 0.0], [-0.0, -0.0, 1.0]], [np.pi, -np.pi, 0.0]),
    ("exponential", "f32", [[]], []),
    ("add", "i32", [[], []], []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "element", "operands", "expected"), CASES, ids=[f"{c[0]}_{c[1]}" for c in CASES])
def test_hand_worked_case(name: str, element: str, operands: Any, expected: Any) -> None:
    row, record = element_type(element), op(name)
    arrays = [np.array(values, dtype=compute_dtype(row)) for values in operands]
    types = tuple(tensor(array.shape, row) for array in arrays)
    result = accepted(record, types, {})
    wanted = np.array(expected, dtype=compute_dtype(result.element_type))
    assert same(run_reference(record, types, result, {}, *arrays), wanted).all()
    assert same(run_rule(record, types, result, {}, *arrays), wanted).all()


COMPARED = [
    ("f32", "FLOAT", "EQ", [0.0, NAN, 1.0], [-0.0, NAN, 1.0], [1, 0, 1]),
    ("f32", "FLOAT", "NE", [0.0, NAN, 1.0], [-0.0, NAN, 1.0], [0, 1, 0]),
    ("f32", "FLOAT", "LT", [-0.0, NAN, -INF], [0.0, 1.0, INF], [0, 0, 1]),
    ("f32", "TOTALORDER", "LT", [-0.0, 1.0, -INF, INF], [0.0, NAN, INF, NAN], [1, 1, 1, 1]),
    ("f32", "TOTALORDER", "EQ", [0.0, 1.0], [-0.0, 1.0], [0, 1]),
    ("f16", "TOTALORDER", "GE", [NAN, 2.0], [INF, 2.0], [1, 1]),
    ("i8", "SIGNED", "LT", [-1, 1], [1, -1], [1, 0]),
    ("ui8", "UNSIGNED", "GT", [255, 1], [1, 255], [1, 0]),
    ("i1", "UNSIGNED", "LT", [0, 1, 1], [1, 0, 1], [1, 0, 0]),
]


@pytest.mark.parametrize(("element", "kind", "direction", "x", "y", "expected"), COMPARED)
def test_compare_by_hand(element: str, kind: str, direction: str, x: Any, y: Any, expected: Any) -> None:
    row, record = element_type(element), op("compare")
    arrays = [np.array(values, dtype=compute_dtype(row)) for values in (x, y)]
    types, result = (tensor(arrays[0].shape, row),) * 2, tensor(arrays[0].shape, "i1")
    attributes = {"comparison_direction": direction, "compare_type": kind}
    assert run_reference(record, types, result, attributes, *arrays).tolist() == [bool(e) for e in expected]
    assert run_rule(record, types, result, attributes, *arrays).tolist() == [bool(e) for e in expected]


COMPLEX_CASES = [
    ("abs", [3 + 4j], [5.0]),
    ("sign", [3 + 4j, 0j], [0.6 + 0.8j, 0j]),
    ("negate", [1 - 2j], [-1 + 2j]),
    ("real", [1 - 2j], [1.0]),
    ("imag", [1 - 2j], [-2.0]),
    ("exponential", [0j, 1j * np.pi], [1.0, -1.0]),
    ("sqrt", [-4 + 0j], [2j]),
    ("cbrt", [-8 + 0j], [1 + 3**0.5 * 1j]),
    ("log_plus_one", [0j], [0j]),
    ("logistic", [0j], [0.5]),
]


@pytest.mark.parametrize(("name", "x", "expected"), COMPLEX_CASES, ids=[case[0] for case in COMPLEX_CASES])
def test_complex_reference(name: str, x: Any, expected: Any) -> None:
    record, array = op(name), np.array(x, np.complex128)
    types = (tensor(array.shape, "complex<f64>"),)
    result = accepted(record, types, {})
    found = run_reference(record, types, result, {}, array)
    assert found.dtype == result.element_type.storage
    assert np.allclose(found, expected, rtol=1e-14, atol=1e-15)


def test_reduce_precision_agrees_with_numpy_half_and_bfloat() -> None:
    """Where no subnormal result is involved, f16 and bf16 are what reduce_precision rounds to."""
    random = np.random.default_rng(9)
    x = (random.normal(size=2000) * 10.0 ** random.integers(-4, 7, 2000)).astype(np.float32)
    record, types = op("reduce_precision"), (tensor(x.shape, "f32"),)
    found = run_rule(record, types, types[0], {"exponent_bits": 5, "mantissa_bits": 10}, x)
    half = x.astype(np.float16).astype(np.float32)
    half = np.where(np.abs(half) < 2.0**-14, np.copysign(np.float32(0), x), half)
    assert same(found, half).all()
    found = run_rule(record, types, types[0], {"exponent_bits": 8, "mantissa_bits": 7}, x)
    assert same(found, round_array(x, element_type("bf16"))).all()
    special = np.array([INF, -INF, NAN, -0.0, 3e38, 1e-40], np.float32)
    found = run_rule(record, types, types[0], {"exponent_bits": 5, "mantissa_bits": 2}, special)
    assert same(found, np.array([INF, -INF, NAN, -0.0, INF, 0.0], np.float32)).all()
