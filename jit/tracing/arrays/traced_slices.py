"""Slices whose bounds are known at run time only, but not how many elements lie between: ``x[i : i + 3]`` in a loop.

The number of elements is what remains of ``stop - start`` when both are written as sums of multiples of the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, final

import numpy as np
from hlojit.ir.blocks import Instruction
from hlojit.ir.errors import ExecutionError
from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Value
from hlojit.tracing.calls.specializing import NeedsValues
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

Sum = Mapping[Hashable, int]
"""Multiples of values, by value; the constant part by ``_ONE``."""

_ONE: Final = "1"
_DEEPEST: Final = 50
_NEVER_THE_SAME: Final = frozenset({"stablehlo.rng", "stablehlo.custom_call"})
"""Two of them with the same operands may give different values."""


@final
@dataclass(frozen=True)
class Stretch:
    """Elements of one dimension that lie together, from a position on that is known at run time."""

    dimension: int
    start: Value
    count: int

    def _starts(self, operations: Operations, base: Value) -> list[Value]:
        starts = [operations.builder.constant(np.int64(0))] * base.tensor_type.rank
        starts[self.dimension] = self.start
        return starts

    def read(self, operations: Operations, base: Value) -> Value:
        """As ``Step.read``."""
        sizes = tuple(self.count if d == self.dimension else n for d, n in enumerate(base.tensor_type.shape))
        starts = self._starts(operations, base)
        return operations.builder.create("dynamic_slice", [base, *starts], attributes={"slice_sizes": sizes}).result

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """As ``Step.write``."""
        return operations.builder.create(
            "dynamic_update_slice", [base, elements, *self._starts(operations, base)]
        ).result


def is_traced_slice(key: Any) -> bool:
    """Whether a bound of a slice is known at run time only."""
    return isinstance(key, slice) and any(isinstance(each, Tracer) for each in (key.start, key.stop, key.step))


def stretch(ops: Operations, operand: Tracer, dimension: int, key: slice) -> tuple[Tracer, slice]:
    """The view of the elements between the bounds, and the slice of known bounds that is left to be applied to it."""
    step = _step(ops, key)
    start, stop = (_bound(ops, each) for each in (key.start, key.stop))
    count = None if start is None or stop is None else _difference(stop.value, start.value, operand.shape[dimension])
    if count is None or start is None:
        _refuse(ops, key)
    count = min(max(count, 0), operand.shape[dimension])
    from_start = _checked(ops, start, count, operand.shape[dimension], key, dimension)
    type = operand.type.with_shape([count if d == dimension else n for d, n in enumerate(operand.shape)])
    view = operand.window.then(Stretch(dimension, from_start, count), type, operand.window.strides)
    return Tracer(view, ops), slice(None, None, step)


def _step(ops: Operations, key: slice) -> int:
    step = 1 if key.step is None else ops.known_index(key.step)
    if step is None:
        _refuse(ops, key)
    if step <= 0:
        raise TracingError(
            "a slice that steps backwards needs bounds that are known when the function is traced; reverse the result: "
            "x[start:stop][::-1]"
        )
    return step


def _bound(ops: Operations, bound: Any) -> Tracer | None:
    """As a Python integer."""
    if bound is None:
        return None
    number = ops.tracer(bound)
    if number.shape or number.dtype.kind not in "iu":
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    if number.dtype == np.uint64:
        raise TracingError(
            "a bound of a slice is of type uint64, which an index may be too small for; convert it: int(i)"
        )
    return ops.wrap(ops.converted(number.value, np.dtype(np.int64)))


def _refuse(ops: Operations, key: slice) -> NoReturn:
    """The number of elements is not known: the arguments that it comes of become static, if it comes of no others."""
    parameters: frozenset[str] = frozenset()
    for bound in (key.start, key.stop, key.step):
        if isinstance(bound, Tracer) and ops.known(bound) is None:
            found = ops.parameters_behind(bound)
            if not found:
                raise TracingError(
                    "the number of elements of this slice is known only when the compiled function runs; take one of a length "
                    "that does not change (x[i : i + 3]), or choose elements with np.where(np.arange(len(x)) < n, x, 0)"
                )
            parameters |= found
    raise NeedsValues(parameters)


def _checked(ops: Operations, start: Tracer, count: int, extent: int, key: slice, dimension: int) -> Value:
    """The first position, counted from the front; what NumPy would cut short at an end raises when the function runs."""
    b = ops.builder
    zero, size, last = (ops.full(each, np.dtype(np.int64)) for each in (0, extent, extent - count))
    stop = b.add(start.value, ops.full(count, np.dtype(np.int64)))
    # A slice that ends behind the last element from the end, x[-3:0], is empty in NumPy.
    both_below = b.compare(stop, zero, "LE" if count == 0 else "LT")
    position = b.select(both_below, b.add(start.value, size), start.value)
    if ops.checks_indices:
        bad = b.create("or", [b.compare(position, zero, "LT"), b.compare(position, last, "GT")]).result
        ops.check(
            bad,
            ExecutionError,
            f"a slice of {count} elements reaches beyond dimension {dimension} of size {extent}: NumPy would give fewer, and an "
            "array of a compiled function has one shape; keep its bounds inside of the array",
        )
    return position


def _difference(stop: Value, start: Value, extent: int) -> int | None:
    """``stop - start``, where it is the same whenever the function runs and both lie inside of a dimension."""
    sums = _Sums(extent)
    rest = _added(sums.of(stop), sums.of(start), -1)
    return rest.get(_ONE, 0) if set(rest) <= {_ONE} else None


@final
class _Sums:
    """Values as sums.

    Sums of a narrow type may wrap around.  Bounds that differ by ``n`` modulo the type's range differ by ``n`` where
    both lie inside of a dimension, if the type holds all positions: so types that do not are looked at as something else.
    """

    def __init__(self, extent: int):
        self.extent = extent
        self._found: dict[Value, Sum] = {}
        self._depth = 0

    def of(self, value: Value) -> Sum:
        """Multiples of which values it is."""
        found = self._found.get(value)
        if found is None:
            self._depth += 1
            found = self._found[value] = self._look(value)
            self._depth -= 1
        return found

    def _look(self, value: Value) -> Sum:
        producer = value.producer
        if producer is None or self._depth > _DEEPEST or len(producer.results) != 1:
            return {value: 1}
        element = value.tensor_type.element_type
        if isinstance(element, IntegerType) and element.maximum >= self.extent:
            rule = _RULES.get(producer.op.name)
            found = None if rule is None else rule(self, producer)
            if found is not None:
                return found
        if producer.regions or producer.op.callees or not producer.op.is_pure or producer.op.name in _NEVER_THE_SAME:
            return {value: 1}
        # The same computation of the same values, wherever it is written.
        operands = tuple(frozenset(self.of(each).items()) for each in producer.operands)
        return {(producer.op.name, str(producer.attributes), operands, value.type): 1}


def _added(left: Sum, right: Sum, factor: int) -> Sum:
    total = dict(left)
    for key, number in right.items():
        total[key] = total.get(key, 0) + factor * number
    return {key: number for key, number in total.items() if number}


def _constant(sums: _Sums, instruction: Instruction) -> Sum | None:
    array = np.asarray(instruction.attributes["value"].array)
    return {_ONE: int(array.flat[0])} if array.size == 1 else None


def _sum(sums: _Sums, instruction: Instruction) -> Sum:
    left, right = map(sums.of, instruction.operands)
    return _added(left, right, 1)


def _rest(sums: _Sums, instruction: Instruction) -> Sum:
    left, right = map(sums.of, instruction.operands)
    return _added(left, right, -1)


def _product(sums: _Sums, instruction: Instruction) -> Sum | None:
    left, right = map(sums.of, instruction.operands)
    if set(left) <= {_ONE}:
        left, right = right, left
    return _added({}, left, right.get(_ONE, 0)) if set(right) <= {_ONE} else None


def _same(sums: _Sums, instruction: Instruction) -> Sum | None:
    """Of conversions among integers that hold all positions, and of other shapes of one element."""
    before, after = instruction.operands[0].tensor_type, instruction.result.tensor_type
    element = before.element_type
    if before.size != 1 or after.size != 1 or not isinstance(element, IntegerType) or element.maximum < sums.extent:
        return None
    return sums.of(instruction.operands[0])


_RULES: Final[Mapping[str, Callable[[_Sums, Instruction], Sum | None]]] = {
    "stablehlo.constant": _constant,
    "stablehlo.add": _sum,
    "stablehlo.subtract": _rest,
    "stablehlo.multiply": _product,
    "stablehlo.convert": _same,
    "stablehlo.reshape": _same,
    "stablehlo.broadcast_in_dim": _same,
}
