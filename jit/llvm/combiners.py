"""How accumulators of a reduction start, take elements and come together.

``Combiner`` belongs to one ``reduce`` (or ``reduce_window``) instruction.  Recognized regions may be combined in any
order.  Those that are idempotent (maximum, and, argmax ...) start every lane from the init value; the others start from
the identity and take the init value once, at the end.  Unknown regions are applied in order, beginning with the init.

Sums and products of narrow floats (f16, bf16, f8) accumulate in the compute type and are rounded once, at the end.  The
specification's region would round every step; wider accumulation is the freedom that XLA takes too.  Only scans round every
step, since each is a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast, final

from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.definition import Pointwise, PointwiseCall
from hlojit.ir.ops.foreign_rules import pointwise
from hlojit.ir.scalar import conversions, formats
from hlojit.ir.scalar.builder import Scalar
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.lowering.body import Body
from hlojit.lowering.element_forms import is_narrow, round_element
from hlojit.lowering.elements import Elements
from hlojit.lowering.index import Index
from hlojit.lowering.moved_values import MovedValues
from hlojit.lowering.target import Target


@final
class Combiner:
    """The region of one reduction with its inputs and init values."""

    def __init__(
        self,
        instruction: Instruction,
        elements: Elements,
        builder: LlvmBuilder,
        target: Target | None = None,
        *,
        moves: bool = True,
    ):
        """Without a target (in a dry run, in windows) accumulators are plain values; ``moves``: see ``moved``."""
        count = len(instruction.operands) // 2
        self.instruction = instruction
        self.inputs: tuple[Value, ...] = instruction.operands[:count]
        self.inits: tuple[Value, ...] = instruction.operands[count:]
        self.region = instruction.regions[0]
        self.element_types: tuple[ElementType, ...] = tuple(
            result.tensor_type.element_type for result in instruction.results
        )
        self._sources = tuple(value.tensor_type.element_type for value in self.inputs)
        self.moved = frozenset(self._moved_numbers()) if moves else frozenset[int]()
        """The numbers of the values that the region only chooses between: narrow floats, which stay in memory form."""
        self.kinds = tuple(
            (formats.storage_kind if number in self.moved else formats.compute_kind)(element)
            for number, element in enumerate(self.element_types)
        )
        self.recognized = combiner_of(self.region)
        self.elements = elements
        self.builder = builder
        self.is_split = self._splits(target)
        """Whether a float extremum is kept as three plain ones: of the numbers (NaN ignored), of their bits as signed
        integers (which a positive NaN tops) and as unsigned ones (which a negative NaN tops)."""
        if self.is_split:
            self.kinds = (self.kinds[0], *(("i32", "i32") if self.kinds[0] == "f32" else ("i64", "i64")))

    def _moved_numbers(self) -> Iterator[int]:
        values = MovedValues(Body({}, (), ()))
        triples = zip(self.region.returned, self._sources, self.element_types, strict=True)
        for number, (value, source, element) in enumerate(triples):
            if source is element and is_narrow(element) and values.is_moved(value):
                yield number

    def _splits(self, target: Target | None) -> bool:
        if (
            target is None
            or self.recognized is None
            or self.recognized.step is None
            or not (self.recognized.is_maximum or self.recognized.is_minimum)
            or not isinstance(self.element_types[0], FloatFormat)
        ):
            return False
        return self.kinds[0] == "f32" or target.has_feature("avx512f")

    @property
    def _keeps_larger(self) -> bool:
        return self.recognized is not None and self.recognized.is_maximum

    @property
    def _has_index(self) -> bool:
        """Whether this is an extremum with its index (``argmax``, ``argmin``)."""
        return self.recognized is not None and self.recognized.step is None

    @property
    def is_free(self) -> bool:
        """Whether elements may be combined in any order."""
        return self.recognized is not None

    def init(self) -> list[Val]:
        """The init values."""
        return self._taken(self.inits, ())

    def at(self, index: tuple[Index, ...]) -> list[Val]:
        """The inputs' elements at an index, as ``combine`` takes them."""
        return self._taken(self.inputs, index)

    def _taken(self, values: Sequence[Value], index: tuple[Index, ...]) -> list[Val]:
        self.elements.reader = self.instruction
        found = [
            (self.elements.stored if number in self.moved else self.elements.value)(value, index)
            for number, value in enumerate(values)
        ]
        return self.converted(found)

    def encoded(self, values: Sequence[Val]) -> list[Val]:
        """Results as they stand in memory."""
        return [
            value if number in self.moved else cast(Val, formats.encode(scalars(self.builder), value, element))
            for number, (value, element) in enumerate(zip(values, self.element_types, strict=True))
        ]

    def finished(self, values: Sequence[Val]) -> Iterator[tuple[Value, Scalar, Val]]:
        """Every result with its value in compute form, rounded, and as it stands in memory."""
        b = scalars(self.builder)
        for number, (result, value) in enumerate(zip(self.instruction.results, values, strict=True)):
            element = self.element_types[number]
            if number in self.moved:
                yield result, self.decoded(number, value), value
                continue
            rounded = round_element(b, element, value)
            yield result, rounded, cast(Val, formats.pack(b, rounded, element) if is_narrow(element) else rounded)

    def decoded(self, number: int, value: Val) -> Val:
        """One of the values in compute form."""
        if number not in self.moved:
            return value
        return cast(Val, formats.decode(scalars(self.builder), value, self.element_types[number]))

    def converted(self, values: Sequence[Scalar]) -> list[Val]:
        """Elements of the inputs in the region's types, to which the inputs may be promoted."""
        return [
            cast(Val, value if source is target else conversions.convert(scalars(self.builder), value, source, target))
            for value, source, target in zip(values, self._sources, self.element_types, strict=True)
        ]

    # ------------------------------------------ values: one step at a time

    def begin(self) -> list[Val]:
        """The values before the first element: the identity where the order is free, the init values otherwise."""
        if self.recognized is None or self.recognized.is_idempotent:
            return self.init()
        identity = self.recognized.identity(self.element_types[0])
        return [self.builder.constant(formats.compute_kind(self.element_types[0]), identity)]

    def take(self, values: Sequence[Val], others: Sequence[Val]) -> list[Val]:
        """Combine values with others, lane by lane."""
        step = self.recognized.step if self.recognized is not None else None
        if step is None or isinstance(self.element_types[0], BooleanType):
            return cast(list[Val], list(self.elements.inline(self.region, [*values, *others], self.moved)))
        (a,), (x,) = values, others
        return [unrounded_step(self.builder, step, a, x)]

    # ------------------------- accumulators: many steps, then ``finish``

    def start(self) -> list[Val]:
        """What every accumulator holds before its first element."""
        values = self.begin()
        return self._raised(values) if self.is_split else values

    def _raised(self, values: Sequence[Val]) -> list[Val]:
        (x,) = values
        bits = self.builder.bitcast(x, self.kinds[1])
        return [x, bits, bits]

    def combine(self, accumulators: Sequence[Val], values: Sequence[Val]) -> list[Val]:
        """Take elements into accumulators, lane by lane."""
        return self.merge(accumulators, self._raised(values)) if self.is_split else self.take(accumulators, values)

    def merge(self, first: Sequence[Val], second: Sequence[Val]) -> list[Val]:
        """Combine two sets of accumulators."""
        b = self.builder
        if self.is_split:
            predicate = "ogt" if self._keeps_larger else "olt"
            return [
                b.select(b.fcmp(predicate, second[0], first[0]), second[0], first[0]),
                b.select(b.icmp("sgt", second[1], first[1]), second[1], first[1]),
                b.select(b.icmp("ugt", second[2], first[2]), second[2], first[2]),
            ]
        result = self.take(first, second)
        if self._has_index and isinstance(self.element_types[0], FloatFormat):
            # Of two NaNs the one with the smaller index is kept.
            numbers = self.decoded(0, first[0]), self.decoded(0, second[0])
            both = b.and_(*(b.fcmp("uno", number, number) for number in numbers))
            element = self.element_types[1]
            signed = not isinstance(element, IntegerType) or element.signed
            later = b.icmp("slt" if signed else "ult", second[1], first[1])
            result[1] = b.select(b.and_(both, later), second[1], result[1])
        return result

    def finish(self, accumulators: Sequence[Val]) -> list[Val]:
        """The results of accumulators that hold everything; the init values are taken in if they are not yet."""
        if self.is_split:
            return [self._extremum(*accumulators)]
        if self.recognized is None or self.recognized.is_idempotent:
            return list(accumulators)
        return self.take(self.init(), accumulators)

    def _extremum(self, number: Val, most: Val, highest: Val) -> Val:
        b, kind = self.builder, self.kinds[1]
        mantissa, bits = (23, 32) if kind == "i32" else (52, 64)
        infinity = ((1 << (bits - 1)) - 1) >> mantissa << mantissa
        is_nan = b.or_(
            b.icmp("sgt", most, b.constant(kind, infinity)),
            b.icmp("ugt", highest, b.constant(kind, infinity | 1 << (bits - 1))),
        )
        # A zero is +0.0 if anything without sign was seen (maximum), -0.0 if anything with sign was (minimum).
        with_sign = most if self._keeps_larger else highest
        zero = b.bitcast(b.and_(with_sign, b.constant(kind, 1 << (bits - 1))), number.kind)
        number = b.select(b.fcmp("oeq", number, b.constant(number.kind, 0.0)), zero, number)
        return b.select(is_nan, b.constant(number.kind, float("nan")), number)

    def reduce_lanes(self, accumulators: Sequence[Val]) -> list[Val]:
        """Combine the lanes as a balanced tree, upper half into lower."""
        values = list(accumulators)
        while values[0].lanes > 1:
            halves = [self.builder.halves(value) for value in values]
            values = self.merge([low for low, _ in halves], [high for _, high in halves])
        return values


@final
class Combiners:
    """The reductions of one loop: a flat list holds the accumulators of one after those of another."""

    def __init__(self, combiners: Iterable[Combiner] = ()):
        self.combiners = tuple(combiners)
        self.kinds = [kind for combiner in self.combiners for kind in combiner.kinds]

    def __iter__(self) -> Iterator[Combiner]:
        return iter(self.combiners)

    @property
    def are_free(self) -> bool:
        """Whether all elements may be combined in any order."""
        return all(combiner.is_free for combiner in self.combiners)

    def starts(self) -> list[Val]:
        """What all hold before their first elements."""
        return [value for combiner in self.combiners for value in combiner.start()]

    def grouped(self, flat: Sequence[Val]) -> list[list[Val]]:
        """The values of each reduction."""
        groups, position = [], 0
        for combiner in self.combiners:
            groups.append(list(flat[position : position + len(combiner.kinds)]))
            position += len(combiner.kinds)
        return groups

    def combine(self, flat: Sequence[Val], elements: Sequence[Sequence[Val]]) -> list[Val]:
        """Take in the elements of each reduction."""
        result: list[Val] = []
        for combiner, group, values in zip(self.combiners, self.grouped(flat), elements, strict=True):
            result += combiner.combine(group, values)
        return result

    def merge(self, first: Sequence[Val], second: Sequence[Val]) -> list[Val]:
        """Bring two lists together, which may repeat all accumulators several times."""
        width = len(self.kinds)
        result: list[Val] = []
        for offset in range(0, len(first), width):
            pairs = zip(
                self.combiners,
                self.grouped(first[offset : offset + width]),
                self.grouped(second[offset : offset + width]),
                strict=True,
            )
            for combiner, one, other in pairs:
                result += combiner.merge(one, other)
        return result

    def reduce_lanes(self, flat: Sequence[Val]) -> list[Val]:
        """Combine the lanes of each value."""
        groups = zip(self.combiners, self.grouped(flat), strict=True)
        return [value for combiner, group in groups for value in combiner.reduce_lanes(group)]

    def finish(self, flat: Sequence[Val]) -> list[list[Val]]:
        """The results of each reduction, from accumulators that hold everything."""
        return [combiner.finish(group) for combiner, group in zip(self.combiners, self.grouped(flat), strict=True)]


def unrounded_step(b: LlvmBuilder, step: Instruction, a: Val, x: Val) -> Val:
    """One step of a recognized combiner of one value, in compute form: a narrow float is rounded at the end only."""
    lowering = step.op.lowering
    element = step.result.tensor_type.element_type
    assert isinstance(lowering, Pointwise)
    result = pointwise(step.op, scalars(b), PointwiseCall((element, element), element, step.attributes), a, x)
    return cast(Val, result if lowering.exact else formats.wrap_integer(scalars(b), result, element))
