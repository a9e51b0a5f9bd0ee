"""What every rule builds with: values of tracers, arrays and numbers, their conversion and broadcasting."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, ClassVar

import numpy as np
from hlojit.arrays import Array
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.builder import Builder
from hlojit.ir.environment import tables
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, element_type_of
from hlojit.ir.graph import Value
from hlojit.ir.location import FileLocation, Location
from hlojit.ir.ops.block_parts import JOIN_BLOCKS
from hlojit.ir.types import tensor
from hlojit.tracing.kinds import as_kind, compute_dtype, element_of
from hlojit.tracing.scopes import Scopes
from hlojit.tracing.tracer import Kind, Tracer, TracingError

# As code objects spell them, which need not be the real path.
_OWN_FOLDERS = tuple(
    os.path.dirname(spelt) + os.sep for path in (__file__, np.__file__) for spelt in (path, os.path.realpath(path))
)

_LEAKED = (
    "a traced array of another trace is used here: it stands for an argument while its function is traced, and must not "
    "be kept; return it from the function, or pass it as an argument"
)


def is_in_blocks(operand: Any) -> bool:
    """Whether an operand is an array in blocks."""
    return isinstance(operand, (Tracer, Array)) and isinstance(operand.element_type, BlockFormat)


class Operations:
    """The graph of one traced function, as rules see it."""

    in_work: ClassVar[ContextVar[Operations | None]] = ContextVar("the function that is traced", default=None)
    """What this thread traces: calls without a traced operand that belong into the program are found by it."""

    def __init__(self, builder: Builder, scopes: Scopes):
        self.builder = builder
        self.scopes = scopes
        self.is_open = True
        """Whether the function still runs: its arrays mean nothing afterwards."""

    # ---------------------------------------------------------------- values

    def value(self, operand: Any, kind: Kind | None = None) -> Value:
        """The graph's value for a tracer, array or number, converted to ``kind`` if given."""
        if isinstance(operand, Tracer):
            if operand.context is not self:
                raise TracingError(_LEAKED)
            return operand.value if kind is None else self.converted(operand.value, kind)
        if isinstance(operand, Array):
            constant = self._constant(operand)
            return constant if kind is None else self.converted(constant, kind)
        if isinstance(kind, ElementType):
            return self._encoded(np.asarray(operand), kind)
        array = np.asarray(operand, kind)
        if array.dtype == object:
            raise TracingError(f"{type(operand).__name__} objects cannot be used in a compiled function")
        return self.builder.constant(array)

    def _constant(self, array: Array) -> Value:
        """An array that the function refers to; one in blocks is put together of its parts."""
        if not is_in_blocks(array):
            return self.builder.constant(array.storage, array.type)
        parts = [self.value(part) for part in array.parts]
        return self.builder.create(JOIN_BLOCKS.name, parts, result_types=[array.type]).result

    def numbers(self, operand: Any) -> Any:
        """What NumPy's functions see of an operand, or of a list of them: of arrays in blocks their numbers, in f32."""
        if isinstance(operand, (list, tuple)):
            found = [self.numbers(each) for each in operand]
            return operand if all(map(operator.is_, found, operand)) else type(operand)(found)
        return self.convert(operand, np.dtype(np.float32)) if is_in_blocks(operand) else operand

    def tracer(self, operand: Any) -> Tracer:
        """``operand`` as a tracer."""
        return operand if isinstance(operand, Tracer) else self.wrap(self.value(operand))

    def wrap(self, value: Value) -> Tracer:
        """A tracer of a value; everything that is made comes through here."""
        self.scopes.enter(tables())
        return Tracer(value, self)

    def _encoded(self, numbers: np.ndarray[Any, Any], element: ElementType) -> Value:
        """A constant of numbers, rounded into a format that has no dtype."""
        if numbers.dtype.kind not in "biuf":
            raise TracingError(f"{numbers.dtype} numbers cannot become {element}")
        if isinstance(element, FloatFormat) and not element.in_integers:
            numbers = numbers.astype(compute_dtype(element))
        return self.builder.constant(numbers, tensor(numbers.shape, element))

    def converted(self, value: Value, kind: Kind) -> Value:
        """The value in another kind; NumPy's truth (not zero) for bool."""
        element = element_of(kind)
        if value.tensor_type.element_type is element:
            return value
        if isinstance(element, BooleanType) and isinstance(value.tensor_type.element_type, ComplexType):
            # Converting would look at the real part only.
            zero = self.builder.constant(0.0, value.tensor_type)
            return self.builder.compare(value, zero, "NE")
        kinds = {type(value.tensor_type.element_type), type(element)}
        if kinds == {BlockFormat, ComplexType}:
            value = self.builder.convert(value, "f32")
        return self.builder.convert(value, element)

    def convert(self, operand: Any, kind: Kind) -> Tracer:
        """A tracer in another kind."""
        return self.wrap(self.converted(self.value(operand), kind))

    def astype(self, operand: Tracer, wanted: Any) -> Tracer:
        """A tracer in the kind that ``wanted`` names."""
        return self.convert(operand, as_kind(wanted))

    def to_values(self, operand: Tracer) -> Tracer:
        """A tracer in the compute type of its format."""
        element = operand.element_type
        found: Tracer = self.numbers(operand)
        return self.convert(operand, compute_dtype(element)) if isinstance(element, FloatFormat) else found

    def broadcast(self, value: Value, shape: Sequence[int]) -> Value:
        """The value in ``shape``, by NumPy's rules."""
        source = value.tensor_type.shape
        shape = tuple(shape)
        if source == shape:
            return value
        offset = len(shape) - len(source)
        if offset < 0 or any(s not in (1, t) for s, t in zip(source, shape[offset:])):
            raise TracingError(f"an array of shape {source} cannot be broadcast to {shape}")
        return self.builder.broadcast_in_dim(value, shape, tuple(range(offset, len(shape))))

    def full(self, number: Any, dtype: Kind, shape: Sequence[int] = ()) -> Value:
        """A constant of one number."""
        if isinstance(dtype, ElementType):
            return self.broadcast(self._encoded(np.asarray(number), dtype), shape)
        return self.builder.constant(
            np.broadcast_to(np.asarray(number, dtype), tuple(shape)), tensor(tuple(shape), element_type_of(dtype))
        )

    def mark(self) -> None:
        """Note the user's line as the location of what is built next; refuse to build after the end."""
        if not self.is_open:
            raise TracingError(_LEAKED)
        self.builder.location = user_location()


def user_location() -> Location:
    """The line of the caller that is neither of this package nor of NumPy."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FOLDERS):
        frame = frame.f_back
    if frame is None:
        return FileLocation("<unknown>", 1, 1)
    return FileLocation(frame.f_code.co_filename, frame.f_lineno, 1)
