"""Sums of products over sizes that are given at run time: products of matrices and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from hlojit.ir.formats import FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.symbolic_values import Convolving, Product, refused
from hlojit.ir.scalar import conversions, formats
from hlojit.ir.sizes import Size, apply, multiply
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.llvm.product_elements import compute_kind
from hlojit.llvm.symbolic_elements import Memory, Position
from hlojit.llvm.symbolic_loops import Fold
from hlojit.llvm.symbolic_windows import convolution_space
from hlojit.lowering.dot_tiles import FEW_TERMS
from hlojit.lowering.target import KIND_BITS

if TYPE_CHECKING:
    from hlojit.llvm.symbolic_kernels import SymbolicProgramEmitter


def emit_product(
    emitter: SymbolicProgramEmitter, instruction: Instruction, access: Product, targets: Sequence[tuple[Value, Memory]]
) -> None:
    """Kernels of a product."""
    lhs, rhs = instruction.operands
    used = [{pair[side] for pair in (*access.batching, *access.contracting)} for side in (0, 1)]
    free = [[d for d in range(each.tensor_type.rank) if d not in used[side]] for side, each in enumerate((lhs, rhs))]
    batch, summed = len(access.batching), len(access.contracting)
    outer = len(emitter.shapes.dims[instruction.result])
    # The space of the fold is that of the result and behind it the dimensions that are summed over.
    shape = [
        *emitter.shapes.dims[instruction.result],
        *(emitter.shapes.dims[lhs][left] for left, _ in access.contracting),
    ]

    def where(side: int, at: tuple[Position, ...]) -> tuple[Position, ...]:
        found: dict[int, Position] = {}
        for number, pair in enumerate(access.batching):
            found[pair[side]] = at[number]
        for number, pair in enumerate(access.contracting):
            found[pair[side]] = at[outer + number]
        start = batch + (len(free[0]) if side else 0)
        for number, d in enumerate(free[side]):
            found[d] = at[start + number]
        return tuple(found[d] for d in range(len(found)))

    dimensions = tuple(range(outer, outer + summed))
    _products(emitter, instruction, shape, dimensions, lambda side, at: (where(side, at), None), targets)


def emit_convolution(
    emitter: SymbolicProgramEmitter,
    instruction: Instruction,
    access: Convolving,
    targets: Sequence[tuple[Value, Memory]],
) -> None:
    """Kernels of a convolution."""
    found = convolution_space(emitter.shapes, instruction, access)
    _products(emitter, instruction, found.shape, found.dimensions, partial(found.where, emitter.elements), targets)


def _products(
    emitter: SymbolicProgramEmitter,
    instruction: Instruction,
    shape: Sequence[Size],
    dimensions: Sequence[int],
    where: Callable[[int, tuple[Position, ...]], tuple[tuple[Position, ...], Val | None]],
    targets: Sequence[tuple[Value, Memory]],
) -> None:
    """Sums of products over ``dimensions`` of a space; ``where`` gives both factors' places, and whether there is one."""
    b, elements = emitter.elements.builder, emitter.elements
    element = instruction.result.tensor_type.element_type
    if not isinstance(element, (FloatFormat, IntegerType)):
        raise refused(instruction, f"products of {element} have no code for sizes that are given at run time")
    kind = formats.compute_kind(element)
    if isinstance(element, FloatFormat):  # sums may be in a wider one
        lhs, rhs = (value.tensor_type.element_type for value in instruction.operands)
        kind = compute_kind(lhs, rhs, element)

    def nothing() -> Val:
        return b.constant(kind, 0.0 if kind[0] == "f" else 0)

    def factor(value: Value, at: tuple[Position, ...]) -> Val:
        return _converted(b, elements.element(value, at), value.tensor_type.element_type, element, kind)

    def factors(at: tuple[Position, ...]) -> tuple[Val, ...]:
        pair = []
        for side, value in enumerate(instruction.operands):
            place, exists = where(side, at)
            if exists is None:
                pair.append(factor(value, place))
            else:
                pair.append(elements.branch(exists, partial(factor, value, place), nothing))
        return tuple(pair)

    def combine(few: bool, total: Sequence[Val], pair: Sequence[Val]) -> tuple[Val, ...]:
        if len(pair) == 1:
            return (b.add(total[0], pair[0]) if kind[0] == "i" else b.fadd(total[0], pair[0]),)
        if not isinstance(element, FloatFormat):
            return (b.add(total[0], b.mul(pair[0], pair[1])),)
        return (b.fadd(b.fmul(pair[0], pair[1]), total[0]) if few else b.fma(pair[0], pair[1], total[0]),)

    terms = multiply(*(shape[d] for d in dimensions)) if dimensions else 1
    # Few terms are rounded one by one (docs/numerics.md): where their number is open, one of two kernels works.
    is_few = apply("less", terms, FEW_TERMS + 1) if isinstance(element, FloatFormat) else 0
    lanes = emitter.writer.lanes([*instruction.operands, instruction.result])
    lanes = min(lanes, max(1, emitter.writer.target.vector_bits // KIND_BITS[kind]))
    for few, condition in ((True, is_few), (False, apply("xor", is_few, 1))):
        if condition != 0:
            zero = lambda: (nothing(),)  # noqa: E731
            fold = Fold(shape, dimensions, factors, partial(combine, few), zero, zero, rounds=True)
            emitter.writer.fold(fold, targets, lanes)
            emitter.writer.only_if(condition)


def _converted(b: LlvmBuilder, scalar: Val, source: Any, target: Any, kind: str) -> Val:
    """A factor in the type that products are added in."""
    if isinstance(target, FloatFormat) and isinstance(source, FloatFormat):
        return cast(Val, formats.float_resized(scalars(b), scalar, kind))
    return cast(Val, conversions.convert(scalars(b), scalar, source, target))
