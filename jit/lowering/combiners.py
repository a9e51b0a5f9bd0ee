"""How accumulators of a reduction start, take elements and come together.

``Combiner`` belongs to one ``reduce`` (or ``reduce_window``) instruction.  Recognized regions may be combined in any
order.  Those that are idempotent (maximum, and, argmax ...) start every lane from the init value; the others start from
the identity and take the init value once, at the end.  Unknown regions are applied in order, beginning with the init.

Sums and products of narrow floats (f16, bf16, f8) accumulate in the compute type and are rounded once, at the end.  The
specification's region would round every step; wider accumulation is the freedom that XLA takes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.scalar import formats
from hlojit.lowering.elements import Elements
from hlojit.lowering.llvm_builder import LlvmBuilder, Val

_IDEMPOTENT: Final = ("maximum", "minimum", "and", "or", "argmax", "argmin")


@final
class Combiner:
    """The region of one reduction with its inputs and init values."""

    def __init__(self, instruction: Instruction, elements: Elements, builder: LlvmBuilder):
        count = len(instruction.operands) // 2
        self.instruction = instruction
        self.inputs: tuple[Value, ...] = instruction.operands[:count]
        self.inits: tuple[Value, ...] = instruction.operands[count:]
        self.region = instruction.regions[0]
        self.element_types: tuple[ElementType, ...] = tuple(
            result.tensor_type.element_type for result in instruction.results
        )
        self.kinds = tuple(formats.compute_kind(element) for element in self.element_types)
        self.name = recognized(instruction)
        self.elements = elements
        self.builder = builder

    @property
    def is_free(self) -> bool:
        """Whether elements may be combined in any order."""
        return self.name is not None

    def init(self) -> list[Val]:
        """The init values."""
        return [self.elements.value(value, ()) for value in self.inits]  # type: ignore[misc]

    def start(self) -> list[Val]:
        """What every accumulator holds before its first element."""
        if self.name is None or self.name in _IDEMPOTENT:
            return self.init()
        return [self.builder.constant(self.kinds[0], self._identity())]

    def _identity(self) -> float | int:
        is_float = isinstance(self.element_types[0], FloatFormat)
        # -0.0, because 0.0 + -0.0 would lose a sign.
        return {"add": -0.0 if is_float else 0, "multiply": 1, "xor": 0}[self.name or ""]

    def combine(self, accumulators: Sequence[Val], values: Sequence[Val]) -> list[Val]:
        """One step of the reduction, lane by lane."""
        if self.name is None or len(accumulators) > 1 or isinstance(self.element_types[0], BooleanType):
            return list(self.elements.inline(self.region, [*accumulators, *values]))  # type: ignore[arg-type]
        (a,), (x,) = accumulators, values
        return [simple_step(self.builder, self.name, self.element_types[0], a, x)]

    def merge(self, first: Sequence[Val], second: Sequence[Val]) -> list[Val]:
        """Combine two accumulators; of two NaNs an argmax keeps the one with the smaller index."""
        result = self.combine(first, second)
        if self.name in ("argmax", "argmin") and self.kinds[0] in ("f32", "f64"):
            b = self.builder
            both = b.and_(b.fcmp("uno", first[0], first[0]), b.fcmp("uno", second[0], second[0]))
            element = self.element_types[1]
            signed = not isinstance(element, IntegerType) or element.signed
            later = b.icmp("slt" if signed else "ult", second[1], first[1])
            result[1] = b.select(b.and_(both, later), second[1], result[1])
        return result

    def finish(self, accumulators: Sequence[Val]) -> list[Val]:
        """Take in the init values, if the accumulators did not start from them."""
        if self.name is None or self.name in _IDEMPOTENT:
            return list(accumulators)
        return self.combine(self.init(), accumulators)

    def reduce_lanes(self, accumulators: Sequence[Val]) -> list[Val]:
        """Combine the lanes as a balanced tree, upper half into lower."""
        values = list(accumulators)
        while values[0].lanes > 1:
            halves = [self.builder.halves(value) for value in values]
            values = self.merge([low for low, _ in halves], [high for _, high in halves])
        return values


def recognized(instruction: Instruction) -> str | None:
    """The combiner's name, if elements of its operand types may be combined in any order."""
    return combiner_of(instruction.regions[0])


def simple_step(b: LlvmBuilder, name: str, element: ElementType, a: Val, x: Val) -> Val:
    """One step of a recognized combiner of one value."""
    if isinstance(element, FloatFormat):
        match name:
            case "add":
                return b.fadd(a, x)
            case "multiply":
                return b.fmul(a, x)
            case _:
                # NaN wins, and -0.0 < 0.0, as IEEE 754-2019 and StableHLO say.
                return b.intrinsic(name, a, x)
    signed = not isinstance(element, IntegerType) or element.signed
    match name:
        case "add":
            result = b.add(a, x)
        case "multiply":
            result = b.mul(a, x)
        case "maximum" | "minimum":
            less = "slt" if signed else "ult"
            condition = b.icmp(less, a, x) if name == "maximum" else b.icmp(less, x, a)
            return b.select(condition, x, a)
        case "and":
            return b.and_(a, x)
        case "or":
            return b.or_(a, x)
        case _:
            return b.xor(a, x)
    return formats.wrap_integer(b, result, element)  # type: ignore[return-value]
