"""What every rule builds with: values of tracers, arrays and numbers, their conversion and broadcasting."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
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
from hlojit.tracing.arrays.kinds import as_kind, common_kind, compute_dtype, element_of
from hlojit.tracing.arrays.layouts import Strides, compact, contiguous, of_elementwise_result, strides_of
from hlojit.tracing.arrays.outside import elements
from hlojit.tracing.arrays.steps import Bits, Row, rows_of
from hlojit.tracing.arrays.storage import Storage, View
from hlojit.tracing.calls.specializing import parameters_behind
from hlojit.tracing.checks import Checks, place_of
from hlojit.tracing.errors import TracingError
from hlojit.tracing.frames import Frame
from hlojit.tracing.known import Known
from hlojit.tracing.places import user_frame
from hlojit.tracing.ranges import Ranges, fits
from hlojit.tracing.scopes import Scopes
from hlojit.tracing.tracer import Kind, Tracer, kind_of_element

_LEAKED = (
    "a traced array of another trace is used here: it stands for an argument while its function is traced, and must not "
    "be kept; return it from the function, or pass it as an argument"
)


def is_in_blocks(operand: Any) -> bool:
    """Whether an operand is an array in blocks."""
    return isinstance(operand, (Tracer, Array)) and isinstance(operand.element_type, BlockFormat)


def holds_tracers(operands: Sequence[Any]) -> bool:
    """Whether something in lists and tuples is traced."""
    return any(
        isinstance(each, Tracer) or (isinstance(each, (list, tuple)) and holds_tracers(each)) for each in operands
    )


class Operations:
    """The graph of one traced function, as rules see it."""

    in_work: ClassVar[ContextVar[Operations | None]] = ContextVar("the function that is traced", default=None)
    """What this thread traces: calls without a traced operand that belong into the program are found by it."""

    def __init__(self, builder: Builder, scopes: Scopes):
        self.builder = builder
        self.scopes = scopes
        self.is_open = True
        """Whether the function still runs: its arrays mean nothing afterwards."""
        self.checks = Checks()
        self.frames: list[Frame] = []
        """The regions that are recorded, innermost last."""
        self.ranges = Ranges(self.frames)
        self.checks_indices = True
        """Whether indices out of bounds raise when the function runs."""
        self.carries = False
        """Whether values are read to be carried out of a region, bound or not."""
        self.limits: dict[Value, int] = {}
        """Of integers what they are certainly below, where that decides how long an array may be."""
        self.extents: list[Any] = []
        """The lengths that are known at run time only (``hlojit.tracing.selection.extents``)."""
        self._known = Known()
        self.scalar_parameters: Mapping[Value, str] = {}
        """The arguments that are Python's numbers, with their parameters."""
        self.tries: list[tuple[int, Callable[[], Sequence[Any]]]] = []
        """The ``try`` statements around, outermost first: their lines, and what gives the exceptions that they catch."""
        self.refused: TracingError | None = None
        """What was refused, if the function may have caught that."""
        self.widened = 0
        """How often numbers of several types became one, where paths meet."""
        self.asked_layouts: set[int] = set()
        """The arguments (numbers of leaves) whose strides something was decided by."""

    # ---------------------------------------------------------------- values

    def known(self, operand: Tracer) -> np.ndarray[Any, Any] | None:
        """The elements of what is the same at every call; None of what depends on an argument."""
        if operand.context is not self or not self.is_open or operand.element_type.dtype is None:
            return None
        return self._known.array(operand.value)

    def parameters_behind(self, operand: Tracer) -> frozenset[str]:
        """The parameters of which alone, all of them Python's numbers, something was computed; else none."""
        if operand.context is not self or not self.is_open or not self.scalar_parameters:
            return frozenset()
        return parameters_behind(operand.value, self.scalar_parameters)

    def known_index(self, operand: Any) -> int | None:
        """A whole number that is the same at every call; None of a traced one that is not."""
        if type(operand) is Tracer and self.known(operand) is None:
            return None
        return operator.index(operand)

    def value(self, operand: Any, kind: Kind | None = None) -> Value:
        """The graph's value for a tracer, array or number, converted to ``kind`` if given."""
        if isinstance(operand, Tracer):
            if operand.context is not self:
                raise TracingError(_LEAKED)
            return operand.value if kind is None else self._of_tracer(operand, kind)
        if isinstance(operand, Array):
            constant = self._constant(operand)
            return constant if kind is None else self.converted(constant, kind)
        if isinstance(operand, (list, tuple)) and holds_tracers(operand):
            stacked = self._stacked(operand)
            return stacked if kind is None else self.converted(stacked, kind)
        if isinstance(kind, ElementType):
            return self._encoded(elements(operand), kind)
        return self.builder.constant(elements(operand, kind))

    def cast(self, operand: Any, kind: Kind) -> Value:
        """The value as an assignment converts it: into any kind."""
        return self.value(operand, kind)

    def _stacked(self, operands: Sequence[Any]) -> Value:
        """What ``np.array`` makes of a list in which something is traced."""
        if len(operands) > 1 and any(row_number(each) is not None for each in operands):
            return self._stacked_runs(operands)
        values = [self.value(each) for each in operands]
        kind = common_kind([kind_of_element(value.tensor_type.element_type) for value in values], "a list of arrays")
        shapes = {value.tensor_type.shape for value in values}
        if len(shapes) > 1:
            raise ValueError(f"a list of arrays of different shapes is no array: {', '.join(map(str, sorted(shapes)))}")
        b, (shape,) = self.builder, shapes
        rows = [b.reshape(self.converted(value, kind), (1, *shape)) for value in values]
        return rows[0] if len(rows) == 1 else b.create("concatenate", rows, attributes={"dimension": 0}).result

    def _stacked_runs(self, operands: Sequence[Any]) -> Value:
        """The same of a list in which rows of one array stand one behind the other, as loops leave them."""
        pieces: list[Value] = []
        place = 0
        while place < len(operands):
            end = place + 1
            first = row_number(operands[place])
            if first is None:
                pieces.append(self._stacked([operands[place]]))
            else:
                parent = operands[place].window.parent
                while end < len(operands) and row_number(operands[end]) == first + end - place:
                    if operands[end].window.parent is not parent:
                        break
                    end += 1
                pieces.append(rows_of(self, parent.read(self), first, first + end - place))
            place = end
        kind = common_kind([kind_of_element(piece.tensor_type.element_type) for piece in pieces], "a list of arrays")
        shapes = {piece.tensor_type.shape[1:] for piece in pieces}
        if len(shapes) > 1:
            raise ValueError(f"a list of arrays of different shapes is no array: {', '.join(map(str, sorted(shapes)))}")
        joined = [self.converted(piece, kind) for piece in pieces]
        return (
            joined[0]
            if len(joined) == 1
            else self.builder.create("concatenate", joined, attributes={"dimension": 0}).result
        )

    def _of_tracer(self, operand: Tracer, kind: Kind) -> Value:
        """Its value in another kind; a Python integer must fit, as NumPy demands."""
        value = operand.value
        if operand.weak is int and isinstance(kind, np.dtype) and kind.kind in "iu" and kind != np.int64:
            self._require_fit(value, kind)
        return self.converted(value, kind)

    def _require_fit(self, value: Value, kind: np.dtype[Any]) -> None:
        limits, b = np.iinfo(kind), self.builder
        if fits(self.ranges.of(value), (int(limits.min), int(limits.max))):
            return
        bad = b.compare(value, self.full(max(limits.min, -(2**63)), np.dtype(np.int64)), "LT")
        if limits.max < 2**63 - 1:
            above = b.compare(value, self.full(limits.max, np.dtype(np.int64)), "GT")
            bad = b.create("or", [bad, above]).result
        self.check(bad, OverflowError, f"Python integer out of bounds for {kind}")

    def check(self, bad: Value, error: type[Exception], message: str) -> None:
        """Raise an error of the call if any element of ``bad`` is true when the function runs."""
        self.require_uncaught(error)
        self.checks.add(self.builder, bad, error, message)

    def require_uncaught(self, error: type[BaseException]) -> None:
        """Raise where a ``try`` around would catch what the call raises: its handlers run only while the function is traced."""
        for line, handled in reversed(self.tries):
            for each in handled():
                if issubclass(error, each):
                    self.refused = TracingError(
                        place_of(self.builder.location).says(
                            f"{error.__name__} may be raised here when the compiled function runs, and the `try` in line {line} "
                            "cannot catch it then; test for it before, with `if` or np.where, or leave the `try` to the caller"
                        )
                    )
                    raise self.refused

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
        if isinstance(operand, Tracer):
            return operand
        return self.wrap(self.value(operand), strides_of(operand) if type(operand) is np.ndarray else None)

    def wrap(self, value: Value, strides: Strides | None = None) -> Tracer:
        """A new array of these elements; everything that is made comes through here.

        ``strides`` as in ``View.of``.
        """
        self.scopes.enter(tables())
        storage = Storage(value)
        storage.frame = self.frames[-1] if self.frames else None
        return Tracer(View.of(storage, strides), self)

    def store(self, storage: Storage, value: Value) -> None:
        """Give a storage its next value; regions undo it when they end, and carry it out."""
        self.require_inside(storage)
        for frame in reversed(self.frames):
            if frame is storage.frame:
                break
            frame.keep(storage)
        storage.value = value
        storage.version += 1

    def require_bound(self, storage: Storage) -> None:
        """Raise, when the function runs, where a variable is read that is not bound on the path taken."""
        if storage.bound is None or self.carries:
            return
        bound, name = storage.bound
        self.check(
            self.builder.create("not", [bound]).result,
            UnboundLocalError,
            f"cannot access local variable {name!r} where it is not associated with a value",
        )

    def require_inside(self, storage: Storage) -> None:
        """Raise where something of a region is used outside of it."""
        if storage.frame is not None and storage.frame not in self.frames:
            raise TracingError(
                "an array that was made in the body of a loop or branch is used outside of it; return it from there"
            )

    def elementwise(self, value: Value, operands: Sequence[Any]) -> Tracer:
        """A new array of elementwise work, laid out as NumPy's iterator does it for these operands."""
        shape = value.tensor_type.shape
        if len(shape) < 2:
            return self.wrap(value)
        return self.wrap(value, of_elementwise_result(list(map(self._lies, operands)), shape))

    def _lies(self, operand: Any) -> tuple[tuple[int, ...], Strides | None]:
        if isinstance(operand, Tracer):
            return operand.shape, self.strides(operand)
        if isinstance(operand, Array):
            return operand.shape, contiguous(operand.shape)
        array = np.asarray(operand)
        return array.shape, strides_of(array)

    def scalar(self, value: Value) -> Tracer:
        """A NumPy scalar."""
        made = self.wrap(value)
        made.is_scalar = True
        return made

    def copied(self, operand: Tracer, order: str = "K") -> Tracer:
        """An array, or number, of its own memory."""
        if operand.is_scalar:
            return operand
        if order in ("C", "F"):
            return self.wrap(operand.value, contiguous(operand.shape, order))
        return self.wrap(operand.value, compact(operand.shape, self.strides(operand)))

    def strides(self, operand: Tracer) -> Strides | None:
        """How it lies, in elements; None if that is not known.  Whoever asks decides something by it."""
        argument = operand.window.storage.argument
        if argument is not None:
            self.asked_layouts.add(argument)
        return operand.window.strides

    def known_strides(self, operand: Tracer) -> Strides:
        """As ``strides``; raises where they are not known."""
        strides = self.strides(operand)
        if strides is None:
            raise TracingError(
                "how NumPy lays out this array is not known here; copy it: np.ascontiguousarray has C order"
            )
        return strides

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

    def astype(
        self, operand: Tracer, wanted: Any, order: str = "K", casting: str = "unsafe", copy: bool = True
    ) -> Tracer:
        """A tracer in the kind that ``wanted`` names."""
        kind = as_kind(wanted)
        kinds = (operand.kind, kind)
        if all(isinstance(each, np.dtype) for each in kinds) and not np.can_cast(*kinds, casting):  # type: ignore[arg-type]
            raise TypeError(
                "Cannot cast array data from {!r} to {!r} according to the rule {!r}".format(*kinds, casting)
            )
        if order not in ("K", "C"):
            raise TracingError(f"astype: order={order!r} cannot be compiled; only 'K' and 'C'")
        if not copy and order == "K" and operand.kind == kind:
            return operand
        value = self.converted(operand.value, kind)
        if operand.is_scalar:
            return self.scalar(value)
        return self.wrap(
            value, compact(operand.shape, self.strides(operand)) if order == "K" else contiguous(operand.shape)
        )

    def python_number(self, operand: Tracer) -> Tracer:
        """The one element of an array as a Python number."""
        if operand.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        kind = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[operand.dtype.kind]
        value = self.builder.reshape(operand.value, ()) if operand.shape else operand.value
        if operand.dtype == np.uint64:
            top = self.full(2**63 - 1, np.dtype(np.uint64))
            self.check(self.builder.compare(value, top, "GT"), OverflowError, "an integer of more than 63 bits")
        made = self.wrap(self.converted(value, np.dtype(kind)))
        return Tracer(made.window, self, weak=kind)

    def bits(self, operand: Tracer, wanted: Any) -> Tracer:
        """``numpy.ndarray.view`` for a dtype of the same width."""
        element = element_of(as_kind(wanted))
        here = operand.element_type
        if element.storage.itemsize != here.storage.itemsize or BooleanType in (type(element), type(here)):
            raise TracingError(f".view({wanted!r}): only numbers of the same width can be seen as each other")
        type_ = operand.type.with_element_type(element)
        return Tracer(
            operand.window.then(Bits(element), type_, operand.window.strides), self, is_scalar=operand.is_scalar
        )

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
    frame = user_frame()
    if frame is None:
        return FileLocation("<unknown>", 1, 1)
    return FileLocation(frame.f_code.co_filename, frame.f_lineno, 1)


def row_number(operand: Any) -> int | None:
    """Which row of another array an array or a number is, as loops leave them in lists."""
    if type(operand) is not Tracer or type(operand.window.step) is not Row:
        return None
    return operand.window.step.number
