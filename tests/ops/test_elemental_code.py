"""The LLVM code of pointwise rules, run on this machine, against NumPy's evaluation of the same rules, bit for bit."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hlojit.cpu.processor import host_target
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import (
    BooleanType,
    ComplexType,
    ElementType,
    FloatFormat,
    IntegerType,
    element_type,
    element_types,
)
from hlojit.ir.ops.definition import Pointwise, PointwiseCall, op
from hlojit.ir.scalar import conversions, formats
from hlojit.ir.scalar.arrays import decode_array
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.llvm.builder import LlvmBuilder
from hlojit.machine_code.loading import compile_to_object, load_objects

B: Any = NumpyBuilder()
LANES = 8
ELEMENTS = [row for row in element_types() if not isinstance(row, (ComplexType, BlockFormat))]
BINARY = [
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor", "shift_left",
    "shift_right_logical", "shift_right_arithmetic", "power",
]  # fmt: skip
UNARY = [
    "abs", "negate", "sign", "ceil", "floor", "round_nearest_afz", "round_nearest_even", "sqrt", "is_finite", "not",
    "popcnt", "count_leading_zeros",
]  # fmt: skip


def stored_values(element: ElementType) -> np.ndarray:
    """Bits in memory, a multiple of the lanes."""
    random = np.random.default_rng(2)
    if isinstance(element, BooleanType):
        return np.array([0, 1] * LANES, np.uint8)
    if isinstance(element, IntegerType):
        hard = [element.minimum, element.maximum, 0, 1, 3, element.bits - 1, element.maximum // 2, 2]
        more = random.integers(element.minimum, element.maximum, 24, dtype=element.storage, endpoint=True)
        return np.concatenate([np.array(hard, element.storage), more])
    assert isinstance(element, FloatFormat)
    if not element.is_native:
        count = 1 << element.bits
        return np.arange(0, count, max(1, count // 256)).astype(element.storage_bits)[:256]
    dtype = element.storage.type
    hard = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 0.5, 2.5, 1e-40, 3e38, 2.0**31, -(2.0**63), 255.5, 7.0, 1e9]
    return np.concatenate([np.array(hard, dtype), random.normal(size=16).astype(dtype)])


def kind_bytes(kind: str) -> int:
    return {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f32": 4, "f64": 8}[kind]


class Kernel:
    """A module of loops ``void symbol(x, y, out, n)``, each one rule between memory and memory."""

    def __init__(self) -> None:
        self.builder = LlvmBuilder(LANES)
        self.rules: dict[str, Any] = {}

    def add(self, symbol: str, rule: Any, operands: list[ElementType], result: ElementType) -> None:
        self.rules[symbol] = (rule, operands, result)
        b: Any = self.builder
        parameters = [("ptr", "x"), ("ptr", "y"), ("ptr", "out"), ("i64", "n")]
        with b.function(symbol, parameters) as (x, y, out, n):
            loop = b.begin_loop(b.constant("i64", 0), n, step=LANES)
            scalars = []
            for element, base in zip(operands, (x, y)):
                kind = formats.storage_kind(element)
                raw = b.load(kind, b.element_pointer(base, kind, loop.index), vector=True)
                scalars.append(formats.decode(b, raw, element))
            value = self.finish(b, rule, result, scalars)
            kind = formats.storage_kind(result)
            b.store(b.splat(value), b.element_pointer(out, kind, loop.index))
            b.end_loop(loop)

    @staticmethod
    def finish(b: Any, rule: Any, result: ElementType, scalars: Any) -> Any:
        """Apply the rule as the loop emitter does, and encode."""
        value = formats.round_to_format(b, rule(b, *scalars), result)
        return formats.pack(b, formats.wrap_integer(b, value, result), result)

    def load(self) -> Any:
        image = compile_to_object(self.builder.module_text(), host_target())
        return load_objects([image], list(self.rules))

    def expected(self, symbol: str, arrays: list[np.ndarray]) -> np.ndarray:
        rule, operands, result = self.rules[symbol]
        scalars = []
        for element, array in zip(operands, arrays):
            kind = formats.storage_kind(element)
            stored = array.astype(np.bool_) if kind == "i1" else array
            scalars.append(formats.decode(B, B.value(kind, stored), element))
        with np.errstate(all="ignore"):
            found = B.array(self.finish(B, rule, result, scalars))
        return np.array(np.broadcast_to(found, arrays[0].shape))

    def run(self, code: Any, symbol: str, arrays: list[np.ndarray]) -> np.ndarray:
        result = self.rules[symbol][2]
        kind = formats.storage_kind(result)
        out = np.zeros(arrays[0].size * kind_bytes(kind), np.uint8)
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(code.address(symbol))
        function(arrays[0].ctypes.data, arrays[-1].ctypes.data, out.ctypes.data, arrays[0].size)
        return out.view(f"u{kind_bytes(kind)}")


def agree(result: ElementType, found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Equal bits, or both NaN: its sign and payload are the processor's own."""
    bits = expected.view(found.dtype)
    equal = found == bits
    if isinstance(result, FloatFormat):
        with np.errstate(all="ignore"):
            both = [np.isnan(decode_array(a.view(result.storage_bits), result)) for a in (found, bits)]
        equal |= both[0] & both[1]
    return np.asarray(equal)


def pairs(element: ElementType) -> list[np.ndarray]:
    values = stored_values(element)[:64]
    x, y = np.broadcast_arrays(values[:, None], values[None, :])
    return [np.ascontiguousarray(x).ravel(), np.ascontiguousarray(y).ravel()]


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_rules_run_as_numpy_evaluates_them(element: ElementType) -> None:
    kernel = Kernel()
    for name in (*BINARY, *UNARY):
        record = op(name)
        lowering = record.lowering
        assert isinstance(lowering, Pointwise)
        result = element_type("i1") if name == "is_finite" else element
        operands = [element] * len(record.operands)
        call = PointwiseCall(tuple(operands), result, {})
        try:
            lowering.rule(B, call, *(B.constant(formats.compute_kind(element), 1) for _ in operands))
        except HlojitError as error:
            assert "there is no elementwise code for elements of type" in str(error)
            continue
        if name == "power" and isinstance(element, FloatFormat):
            continue  # fused multiply-adds: the mathematical functions have tests of their own
        kernel.add(name, lambda b, *s, rule=lowering.rule, call=call: rule(b, call, *s), operands, result)
    assert len(kernel.rules) >= (8 if isinstance(element, BooleanType) else 14)
    code = kernel.load()
    for symbol, (_, operands, result) in kernel.rules.items():
        arrays = pairs(element)[: len(operands)] if len(operands) == 2 else [stored_values(element)]
        found, expected = kernel.run(code, symbol, arrays), kernel.expected(symbol, arrays)
        fine = agree(result, found, expected)
        assert fine.all(), (symbol, [[a[~fine][:3] for a in (*arrays, found, expected)]])


@pytest.mark.parametrize("source", ELEMENTS, ids=str)
def test_conversions_run_as_numpy_evaluates_them(source: ElementType) -> None:
    kernel = Kernel()
    for number, target in enumerate(ELEMENTS):
        rule = lambda b, x, target=target: conversions.convert(b, x, source, target)  # noqa: E731
        kernel.add(f"convert_{number}", rule, [source], target)
    code = kernel.load()
    arrays = [stored_values(source)]
    for symbol, (_, _, target) in kernel.rules.items():
        found, expected = kernel.run(code, symbol, arrays), kernel.expected(symbol, arrays)
        fine = agree(target, found, expected)
        assert fine.all(), (target.name, arrays[0][~fine][:4], found[~fine][:4], expected[~fine][:4])
