"""What values are whose sizes are expressions: shapes, elements that are sizes, and where elements come from.

>>> shapes = SymbolicShapes(module.main, size_arguments=(0,))     # ir/passes/symbolic_shapes.py runs over the body
>>> shapes.dims[value]
(input1.shape[0], 4)

Two sizes are known to be equal where their expressions are.  Where an op needs two to be equal that are not known to be, that
becomes a check of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Function, Instruction, Value
from hlojit.ir.size_checks import Check, SizeFacts, SizeRange
from hlojit.ir.sizes import ATOMS, MOST_BYTES, Size, SizeExpression, apply, element, extent, known, text
from hlojit.ir.types import DYNAMIC, TensorType

Shape = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Coordinate:
    """``start + step * i`` with i the index of ``dimension`` of the result, or ``start`` alone.

    With ``value`` its element at run time is added, brought between 0 and ``limit``: the one at the index that ``at`` gives.
    """

    dimension: int | None
    step: int = 1
    start: Size = 0
    value: Value | None = None
    limit: Size = 0
    at: tuple[Coordinate, ...] = ()


@dataclass(frozen=True, slots=True)
class Pick:
    """The first operand's element at these coordinates."""

    coordinates: tuple[Coordinate, ...]


@dataclass(frozen=True, slots=True)
class Relabel:
    """The first operand's element at the same place in row-major order."""


@dataclass(frozen=True, slots=True)
class Join:
    """Operands behind each other along a dimension."""

    dimension: int


@dataclass(frozen=True, slots=True)
class Surround:
    """The first operand behind ``low`` elements of the second one in each dimension, ``interior`` of them between its own."""

    low: Shape
    interior: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The index of a dimension."""

    dimension: int


@dataclass(frozen=True, slots=True)
class Elementwise:
    """The op's rule on the operands' elements."""


@dataclass(frozen=True, slots=True)
class Recast:
    """The bits of the first operand's element, which are as many."""


@dataclass(frozen=True, slots=True)
class Folding:
    """All elements along ``dimensions`` of the first half of the operands, combined by the region from the second half on."""

    dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """The sum of products over pairs of dimensions."""

    batching: tuple[tuple[int, int], ...]
    contracting: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Where a window's elements lie along one dimension: of window n its element k at ``stride * n + dilation * k - low``.

    Of positions ``base`` apart lies an element of the operand, beyond its ``size`` none.
    """

    stride: int = 1
    dilation: int = 1
    base: int = 1
    low: int = 0
    high: int = 0

    @property
    def is_inside(self) -> bool:
        """Whether all windows lie in the operand, which has an element everywhere."""
        return self.base == 1 and self.low <= 0 and self.high <= 0


@dataclass(frozen=True, slots=True)
class Windows:
    """The elements of windows of the first half of the operands, combined by the region from the second half on.

    Beyond the operands windows hold the elements of the second half.
    """

    sizes: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Convolving:
    """Sums of products of windows of the first operand with the second one; ``view`` is a ``ConvolutionView``."""

    view: Any
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Updating:
    """The first operand with the second one in it, from ``starts`` on."""

    starts: tuple[Coordinate, ...]


@dataclass(frozen=True, slots=True)
class Sorting:
    """The operands' elements along a dimension in the order that the region gives, equal ones as they were."""

    dimension: int


@dataclass(frozen=True, slots=True)
class Scattering:
    """The inputs, with windows of the updates combined into them where the indices say."""

    window_dims: tuple[int, ...]
    """Of the updates: dimensions along a window."""
    scatter_dims: tuple[int, ...]
    """Of the updates: dimensions that count windows."""
    operand_window_dims: tuple[int, ...]
    """Of the inputs: where the windows' dimensions go."""
    index_map: tuple[int, ...]
    """Of the inputs: which dimension each component of an index is of."""
    index_vector_dim: int
    batching: tuple[tuple[int, int], ...]
    """Dimensions of the inputs, with the position among ``scatter_dims`` of what counts along each."""


@dataclass(frozen=True, slots=True)
class Passing:
    """Each operand as it is."""


@dataclass(frozen=True, slots=True)
class Carrying:
    """What a loop's regions make of the operands."""


@dataclass(frozen=True, slots=True)
class Choosing:
    """What the region returns that the operand chooses."""


Access = (
    Pick
    | Relabel
    | Join
    | Surround
    | Numbers
    | Elementwise
    | Recast
    | Folding
    | Product
    | Windows
    | Convolving
    | Updating
    | Sorting
    | Scattering
    | Passing
    | Carrying
    | Choosing
)


@dataclass
class SymbolicShapes:
    """What is known of the values of a function."""

    function: Function
    dims: dict[Value, Shape] = field(default_factory=dict)
    elements: dict[Value, tuple[Size, ...]] = field(default_factory=dict)
    """Elements, in row-major order, of small integer tensors that are computed from sizes."""
    access: dict[Instruction, Access] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    assumptions: list[Check] = field(default_factory=list)
    """What calls need not fulfil, but what was found holds only where they do."""
    ranges: dict[tuple[SizeExpression, int, int], Instruction] = field(default_factory=dict)
    """What sizes are taken to lie between for the program to compute as they do, and the first instruction that needs it."""
    is_partial: bool = False
    """Whether ops of which nothing is known are passed over, rather than an error."""

    def argument(self, value: Value, *, with_elements: bool) -> None:
        """Give an argument its dimensions, and its elements if these decide sizes."""
        type, number = value.tensor_type, value.index
        self.dims[value] = tuple(extent(number, d) if e == DYNAMIC else e for d, e in enumerate(type.shape))
        if with_elements and type.is_static:
            self.elements[value] = tuple(element(number, position) for position in range(type.size))

    def known(self, instruction: Instruction, position: int) -> tuple[Size, ...]:
        """The elements of an operand that gives sizes; ``UnsupportedError`` where only data tell."""
        found = self.elements.get(instruction.operands[position])
        if found is None:
            raise refused(instruction, "sizes that it is given follow from data")
        return found

    def same(self, instruction: Instruction, a: Size, b: Size) -> Size:
        """One size of two that have to be equal."""
        if a == b:
            return a
        if isinstance(a, int) and isinstance(b, int):
            raise refused(instruction, f"sizes {a} and {b} are not equal")
        message = f"{{0}} ({_named(a)}) and {{1}} ({_named(b)}) must be equal {place(instruction)}"
        self.require(apply("equal", a, b), message, (a, b))
        if isinstance(a, SizeExpression) and isinstance(b, SizeExpression):
            return a if len(text(a)) <= len(text(b)) else b
        return a if isinstance(a, int) else b

    def written(self, instruction: Instruction, type: TensorType, found: Sequence[Size]) -> Shape:
        """The shape of a result with what its type says."""
        if len(found) != type.rank:
            raise refused(instruction, f"its result {type} does not have the rank {len(found)}")
        for size, bound in zip(found, type.bounds or ()):
            if bound != DYNAMIC:
                message = f"size {{0}} must be at most the bound {bound} {place(instruction)}"
                self.require(apply("equal", apply("less", bound, size), 0), message, (size,))
        return tuple(
            size if extent == DYNAMIC else self.same(instruction, extent, size)
            for extent, size in zip(type.shape, found)
        )

    def facts(self) -> SizeFacts:
        """What calls must fulfil, and what was found holds only where they do."""
        ranges = tuple(
            SizeRange(size, str(low), str(high), f"{instruction.op.name} at {instruction.location}")
            for (size, low, high), instruction in self.ranges.items()
        )
        return SizeFacts(tuple(self.checks), tuple(self.assumptions), ranges)

    def take_within(self, instruction: Instruction, size: SizeExpression, low: int, high: int) -> None:
        """Note that what is found holds only while a size lies between these."""
        least, most = 0, 1
        if size.operation == "extent":
            most = MOST_BYTES
        elif size.operation == "element":
            type = self.function.body.arguments[known(size.operands[0])].tensor_type.element_type
            if isinstance(type, IntegerType):
                least, most = type.minimum, type.maximum
        elif size.operation not in ("equal", "less"):
            least, most = low - 1, high + 1
        if least < low or most > high:
            self.ranges.setdefault((size, low, high), instruction)

    def require(self, condition: Size, message: str, sizes: Sequence[Size] = ()) -> None:
        """Have something checked at every call."""
        _note(self.checks, Check(condition, message, tuple(sizes)))

    def assume(self, instruction: Instruction, condition: Size, message: str, *sizes: Size) -> None:
        """Take for granted what calls need not fulfil; ``UnsupportedError`` where no call does."""
        if condition == 0:
            raise refused(instruction, message.format(*sizes))
        _note(self.assumptions, Check(condition, f"{message} {place(instruction)}", sizes))


def _note(checks: list[Check], check: Check) -> None:
    if check.condition != 1 and all(each.condition != check.condition for each in checks):
        checks.append(check)


def refused(instruction: Instruction, reason: str) -> UnsupportedError:
    """The error for an instruction that cannot be compiled for sizes that are given at run time."""
    return UnsupportedError(instruction.op.name, "", reason, instruction.location)


def place(instruction: Instruction) -> str:
    """Which instruction needs something of sizes, as part of a ``Check``'s message."""
    return f"for {instruction.op.name} at {instruction.location}".replace("{", "{{").replace("}", "}}")


def _named(size: Size) -> str:
    if isinstance(size, SizeExpression) and size.operation in ATOMS:
        number, position = size.operands
        return f"argument {number}, {'dimension' if size.operation == 'extent' else 'element'} {position}"
    return text(size) if isinstance(size, SizeExpression) else "in the program"


ShapeRule = Callable[[SymbolicShapes, Instruction], "tuple[Shape, Access]"]
"""The shape of the results, and where their elements come from."""
