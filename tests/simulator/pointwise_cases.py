"""Every pointwise op with every family of element types that it takes, on operands that hold the hard values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType, element_type
from hlojit.ir.graph import Function, Instruction, Module
from hlojit.ir.ops.block_arithmetic import BLOCK_SCALE
from hlojit.ir.ops.complex_functions import COMPLEX_FUNCTION
from hlojit.ir.ops.definition import InferenceRequest, OpDefinition, Pointwise, op, ops
from hlojit.ir.ops.rounded import ROUND_STOCHASTIC, TO_ODD
from hlojit.ir.types import TensorType, tensor
from hlojit.ir.verifier import collect_faults

Array = np.ndarray[Any, Any]

FAMILIES: dict[str, tuple[str, ...]] = {
    "predicate": ("i1",),
    "narrow integer": ("i4", "ui4", "i2", "ui2"),
    "signed integer": ("i32", "i8", "i64", "i16"),
    "unsigned integer": ("ui8", "ui64", "ui32", "ui16"),
    "float": ("f32", "f64"),
    "half": ("bf16", "f16"),
    "small float": ("f8E4M3FN", "f8E5M2", "f4E2M1FN", "f8E4M3B11FNUZ", "f6E3M2FN"),
}
SHAPES: tuple[tuple[int, ...], ...] = ((), (0, 3), (1,), (131,), (4, 32), (3, 1, 5, 7), (2, 64), (1, 1, 1, 1, 1, 1))
_FIRST_OPERANDS = {"stablehlo.select": "i1"}
"""The element type of a first operand that is not that of the others."""
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "stablehlo.compare": {"comparison_direction": "LT"},
    "stablehlo.reduce_precision": {"exponent_bits": 4, "mantissa_bits": 3},
}


@dataclass(frozen=True)
class Case:
    """One op on operands of some types, at two shapes: a line with all hard values, and another."""

    record: OpDefinition
    operands: tuple[str, ...]
    result: str
    other: tuple[int, ...]

    @property
    def name(self) -> str:
        """The case's name in a report."""
        shape = "x".join(map(str, self.other)) or "scalar"
        return f"{self.record.mnemonic}-{'-'.join(dict.fromkeys((*self.operands, self.result)))}-{shape}"

    def instruction_types(self, shape: tuple[int, ...]) -> tuple[list[TensorType], TensorType]:
        """Types of the operands and of the result."""
        return [tensor(shape, element) for element in self.operands], tensor(shape, self.result)

    def module(self) -> Module:
        """A program that computes both."""
        module = Module()
        shapes = [self.lines()[0].shape, self.other]
        parts = [self.instruction_types(shape) for shape in shapes]
        inputs = [type for operands, _ in parts for type in operands]
        main = module.add_function(Function("main", inputs, [result for _, result in parts]))
        results = []
        for number, (operands, result) in enumerate(parts):
            first = number * len(self.operands)
            values = main.body.arguments[first : first + len(operands)]
            made = main.body.append(Instruction(self.record, values, [result], _ATTRIBUTES.get(self.record.name, {})))
            results += made.results
        main.body.append(Instruction(op("func.return"), results, ()))
        return module

    def lines(self) -> list[Array]:
        """Hard values, turned by another amount for each operand so that different ones meet."""
        columns = [hard_values(element_type(element)) for element in self.operands]
        length = max(map(len, columns))
        return [np.roll(np.resize(column, length), 3 * number) for number, column in enumerate(columns)]

    def arguments(self) -> list[Array]:
        """What the program is called with."""
        lines = self.lines()
        return lines + [np.resize(np.roll(line, -5), self.other) for line in lines]


def hard_values(element: ElementType) -> Array:
    """Borders, zeros with their signs, infinities, NaN, denormals, and some others; of small formats all values."""
    random = np.random.default_rng(5)
    if isinstance(element, BooleanType):
        return np.array([False, True, True, False, True], element.storage)
    if isinstance(element, IntegerType):
        hard = [element.minimum, element.maximum, 0, 1, 3, element.bits - 1, element.maximum // 2, 2]
        more = random.integers(element.minimum, element.maximum, 27, dtype="u8" if element.minimum == 0 else "i8")
        return (
            np.array([*hard, *more.tolist()], object).astype(element.storage).astype(element.dtype or element.storage)
        )
    assert isinstance(element, FloatFormat)
    if element.bits <= 8:
        return np.arange(1 << element.bits).astype(np.uint8).view(element.storage)
    tiny = (
        float(np.finfo(np.float64).smallest_subnormal) if element.bits == 64 else 1e-40 if element.bits == 32 else 1e-7
    )
    hard = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 0.5, 2.5, tiny, -tiny, 6e4, 255.5, -7.0, 1e3, -3e-3]
    with np.errstate(over="ignore"):
        return np.concatenate([hard, random.normal(0, 3, 19)]).astype(element.storage)


def pointwise_ops() -> list[OpDefinition]:
    """All records whose lowering is pointwise, but for those of complex numbers alone (``tests/complex``).

    Nor what passes build for formats (``format_ops``).
    """
    found = [record for record in ops() if isinstance(record.lowering, Pointwise)]
    return [record for record in found if record is not COMPLEX_FUNCTION and record.name not in format_ops()]


def format_ops() -> set[str]:
    """Names of ops that passes build for formats: ``tests/extensions`` and ``tests/blocks`` run them on the simulator."""
    on_codes = {record.name for record in ops() if record.name.startswith("hlojit.soft_")}
    return {ROUND_STOCHASTIC.name, BLOCK_SCALE, *(record.name for record in TO_ODD.values()), *on_codes}


def cases_of(record: OpDefinition, number: int) -> Iterator[Case]:
    """One case of each family that the op takes; elements and shapes go round with the op's ``number``."""
    if record.name == "stablehlo.convert":
        yield from _conversions()
        return
    for position, members in enumerate(FAMILIES.values()):
        for step in range(len(members)):
            element = members[(number + step) % len(members)]
            case = _valid(record, element, SHAPES[(number + position) % len(SHAPES)])
            if case is not None:
                yield case
                break


def _conversions() -> Iterator[Case]:
    members = [member for family in FAMILIES.values() for member in family[:2]]
    for number, source in enumerate(members):
        for step in (1, 3, 4, 7, 9):
            target = members[(number + step) % len(members)]
            yield Case(op("stablehlo.convert"), (source,), target, SHAPES[(number + step) % len(SHAPES)])


def _valid(record: OpDefinition, element: str, shape: tuple[int, ...]) -> Case | None:
    operands = [element] * len(record.operands)
    operands[0] = _FIRST_OPERANDS.get(record.name, element)
    result = _inferred(record, operands)
    if result is None:
        return None
    case = Case(record, tuple(operands), result, shape)
    return None if collect_faults(case.module()) else case


def _inferred(record: OpDefinition, operands: Sequence[str]) -> str | None:
    types = tuple(tensor((4,), element) for element in operands)
    assert record.infer is not None
    try:
        (result,) = record.infer(InferenceRequest(types, _ATTRIBUTES.get(record.name, {})))
    except HlojitError:
        return None
    found = re.fullmatch(r"tensor<4x(.+)>", str(result))
    return found[1] if found else None
