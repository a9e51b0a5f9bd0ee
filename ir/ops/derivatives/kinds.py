"""What the field ``derivative`` of an op record may be.

    SINE = unary("sine", ..., derivative=Partials(lambda b, y, x: b.cosine(x)))
    TRANSPOSE = OpDefinition(..., derivative=Linear(_transpose_back))

Both modes come from one rule.  *Pushing* gives the tangents of results from those of operands, *pulling* the cotangents of
operands from those of results.  None stands for a tangent or cotangent that is zero.  Complex cotangents follow JAX: of a
holomorphic function the cotangent of the operand is that of the result times the derivative, without a conjugate.

Rules build with the builder they are given, into the graph of the derivative; ``instruction`` lies in that graph already, so that
its operands and results are values of it.  What they build must have derivatives itself: second derivatives are derivatives of
what they built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hlojit.ir.formats import ComplexType, FloatFormat
from hlojit.ir.types import TensorType, Type

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block, Instruction, Value

Tangents = Sequence["Value | None"]
"""Of the operands (or results) of one instruction; None where zero."""
Pull = Callable[[Any, Tangents], "Sequence[tuple[Value, Value | Into]]"]
"""``pull(builder, cotangents)`` gives contributions to cotangents of values outside of an instruction, by pairs."""


@dataclass(frozen=True, slots=True)
class Into:
    """A cotangent that is zero but for few elements: ``add(b, total)`` adds it to what there is; None stands for zeros.

    A loop that reads one element a turn touches one element of the sum a turn.
    """

    add: Callable[[Any, Value | None], Value]


def accumulated(b: Any, total: Value | None, cotangent: Value | Into) -> Value:
    """The sum of what there is (None for nothing yet) and a contribution."""
    if isinstance(cotangent, Into):
        return cotangent.add(b, total)
    made: Value = cotangent if total is None else b.add(total, cotangent)
    return made


class Derivative:
    """Base of the kinds of rules."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, init=False)
class Partials(Derivative):
    """Of a pointwise op: one function an operand, ``partial(b, result, *operands)``, gives the partial derivative as a value.

    ``ONE`` and ``MINUS_ONE`` are factors for which nothing is multiplied; None says that an operand has no influence or none
    that is differentiable everywhere but on a null set (``floor``).
    """

    partials: tuple[Callable[..., Any] | None, ...]

    def __init__(self, *partials: Callable[..., Any] | None):
        object.__setattr__(self, "partials", partials)


def ONE(b: Any, *values: Any) -> int:
    """The operand counts as it is."""
    return 1


def MINUS_ONE(b: Any, *values: Any) -> int:
    """The operand counts with the other sign."""
    return -1


@dataclass(frozen=True, slots=True)
class Linear(Derivative):
    """An op that is linear in some operands together.

    ``pull(b, instruction, cotangent)`` gives a cotangent, ``Into`` or None, for each operand.
    ``operands`` numbers them (None: all).  Pushing applies the op itself to the tangents.
    """

    pull: Callable[[Any, Instruction, Value], Sequence[Value | Into | None]]
    operands: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Bilinear(Derivative):
    """A product: linear in each of its two operands; ``pull(b, instruction, cotangent, number)`` gives that of one operand."""

    pull: Callable[[Any, Instruction, Value, int], Value]


@dataclass(frozen=True, slots=True)
class Pushed(Derivative):
    """``push(b, instruction, tangents)`` gives the tangents of results, built of ops with derivatives, linear in the tangents.

    ``pull(b, instruction, cotangents, wanted)`` is derived from it, unless it is given.
    """

    push: Callable[[Any, Instruction, Tangents], Tangents]
    pull: Callable[[Any, Instruction, Tangents, Sequence[bool]], Tangents] | None = None


@dataclass(frozen=True, slots=True)
class Rewritten(Derivative):
    """The op is differentiated as what it is made of.

    ``rule(b, instruction)`` builds that and returns its values, or None where it does not apply.
    """

    rule: Callable[[Any, Instruction], Sequence[Value] | None]


@dataclass(frozen=True, slots=True)
class Chosen(Derivative):
    """The rule depends on the instruction (the region of a reduction, a type); a string says why there is none."""

    choose: Callable[[Instruction], Derivative | str]


@dataclass(frozen=True, slots=True)
class Constant(Derivative):
    """The results do not depend on the operands in a way that has a derivative: it is zero."""


@dataclass(frozen=True, slots=True)
class Flow(Derivative):
    """Control flow, whose regions are differentiated.

    ``push(work, instruction)`` returns results and their tangents.  ``record(work, instruction)`` returns results and a function
    that makes cotangents of those of the results: ``pull(b, cotangents)``.
    """

    push: Callable[[PushingWork, Instruction], tuple[Sequence[Value], Tangents]]
    record: Callable[[RecordingWork, Instruction], tuple[Sequence[Value], Pull]]


class PushingWork(Protocol):
    """What a rule of control flow may ask while tangents are pushed."""

    builder: Any

    def tangent(self, value: Value) -> Value | None:
        """That of a value of the graph."""

    def region(
        self, builder: Any, region: Block, arguments: Sequence[Value], tangents: Tangents
    ) -> tuple[list[Value], list[Value | None]]:
        """Build a region's instructions with their tangents; what it returns."""

    def active_returns(self, region: Block, arguments: Sequence[bool]) -> list[bool]:
        """Which of a region's results depend on active arguments, or active values from outside."""


class RecordingWork(Protocol):
    """What a rule of control flow may ask while a reverse pass is prepared."""

    builder: Any

    def is_active(self, value: Value) -> bool:
        """Whether the value depends on what is differentiated for."""

    def captured(self, instruction: Instruction) -> list[Value]:
        """Active values from outside that regions of the instruction read."""

    def active_returns(self, region: Block, arguments: Sequence[bool]) -> list[bool]:
        """Which of a region's results depend on active arguments, or active values from outside."""

    def region_cotangents(
        self,
        builder: Any,
        region: Block,
        arguments: Sequence[Value],
        wanted: Sequence[bool],
        captured: Sequence[Value],
        cotangents: Tangents,
        sums: Sequence[Value] = (),
    ) -> list[Value | None]:
        """Build a region's instructions and its reverse pass; cotangents of ``wanted`` arguments and of captured values.

        Those of captured values are added to ``sums``, if they are given.
        """

    def scratch(self, types: Sequence[Type]) -> tuple[Block, Any]:
        """A block with arguments of these types that is no part of the graph, and its builder."""

    def used_arguments(self, block: Block) -> set[Value]:
        """What a scratch block reads of its arguments for what it returns; it is given up by that."""

    def trip_count(self, loop: Instruction) -> int | None:
        """How often a loop runs, if that is known."""

    def most_turns(self, loop: Instruction) -> int | None:
        """How often a loop runs at most, if that is known."""


def is_differentiable(type: Type) -> bool:
    """Whether values of the type have tangents: floats and complex numbers do."""
    return isinstance(type, TensorType) and isinstance(type.element_type, (FloatFormat, ComplexType))


def zeros(b: Any, type: Type) -> Value:
    """A zero tangent as a value."""
    made: Value = b.constant(0.0, type)
    return made


def instantiated(b: Any, tangent: Value | None, type: Type) -> Value:
    """The tangent, zeros for None."""
    return zeros(b, type) if tangent is None else tangent


def number(b: Any, value: float, like: Value) -> Value:
    """A constant in the type of another value."""
    made: Value = b.constant(value, like.type)
    return made


def summed(b: Any, values: Sequence[Value | None]) -> Value | None:
    """The sum of those that are not zero."""
    total: Value | None = None
    for value in values:
        if value is not None:
            total = value if total is None else b.add(total, value)
    return total


def own_values(b: Any, values: Sequence[Value]) -> list[Value]:
    """The same values as results of instructions of their own: each has cotangents of its own."""
    return [b.reshape(value, value.tensor_type.shape) for value in values]
