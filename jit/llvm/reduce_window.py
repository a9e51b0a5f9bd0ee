"""``reduce_window``: every element of the result combines the elements of one window.

The window is a loop inside the element's rule, so that the output is vectorized like any elementwise kernel; elements
of the padding are the init value, read from nowhere.  A window that spans its dimension and slides from one end, as JAX
writes cumulative sums, is a scan: each element is combined once, with the result before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from hlojit.ir.graph import Instruction
from hlojit.ir.scalar.builder import Scalar
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.combiners import Combiner
from hlojit.llvm.elementwise import emit_loop_kernel
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.loops import KernelFrame, empty_kernel, walk_lanes, walk_units
from hlojit.lowering.body import Body
from hlojit.lowering.elements import Elements
from hlojit.lowering.index import Index, constant, delinearized, variable
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.loop_plan import divide, fitted_lanes
from hlojit.lowering.target import Target
from hlojit.lowering.window_plan import Window, scanned_dimension, window_position, windows_of


def emit_reduce_window(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """The kernel of a ``reduce_window`` instruction."""
    windows = windows_of(instruction)
    body = Body.of(instruction)
    if instruction.results[0].tensor_type.size == 0:
        return empty_kernel(symbol)
    dimension = scanned_dimension(instruction, windows)
    if dimension is not None:
        return _emit_scan(instruction, target, symbol, dimension, reverse=windows[dimension].low == 0)
    rules = {instruction: window_rule(windows)}
    return emit_loop_kernel(Body(body.parameters, body.roots, body.operand_types, rules), target, symbol)


def window_rule(windows: Sequence[Window]) -> Callable[..., Any]:
    """The value of a ``reduce_window`` at an index, as the rule of a ``Body``: a loop over the window."""

    def rule(elements: Elements, instruction: Instruction, index: Sequence[Index]) -> Scalar | tuple[Scalar, ...]:
        combiner = Combiner(instruction, elements, cast(LlvmBuilder, elements.builder), moves=False)
        shape = instruction.operands[0].tensor_type.shape
        initial = combiner.init()

        def step(offsets: Sequence[Index], carried: Sequence[Scalar]) -> Sequence[Scalar]:
            source, condition = window_position(elements, windows, shape, index, offsets)
            values: list[Scalar] = [
                elements.guarded(condition, partial(elements.operand, n, source), partial(_init, elements, n))
                for n in range(len(combiner.inputs))
            ]
            return combiner.take(cast(list[Val], carried), combiner.converted(values))

        def _init(elements: Elements, number: int) -> Scalar:
            return elements.operand(len(combiner.inputs) + number, ())

        results = elements.loop([window.size for window in windows], initial, step)
        return results if len(results) > 1 else results[0]

    return rule


def _emit_scan(instruction: Instruction, target: Target, symbol: str, dimension: int, *, reverse: bool) -> KernelCode:
    """Each row of the scanned dimension from one end to the other; lanes over what lies inside of it."""
    body = Body.of(instruction)
    shape = instruction.operands[0].tensor_type.shape
    outer, extent, inner = (
        math.prod(shape[:dimension]),
        shape[dimension],
        math.prod(shape[dimension + 1 :]),
    )
    bits = max(8 * result.tensor_type.element_type.itemsize for result in instruction.results)
    lanes = fitted_lanes(2 * max(1, target.vector_bits // bits), inner, target)
    units = divide(
        outer, inner, lanes, target.machine.nanoseconds(extent * (1.2 if inner > 1 else 4.0)), target.machine
    )
    frame = KernelFrame(target, body, LlvmBuilder())
    b = frame.builder
    row = variable("row", 0, outer - 1)
    column = variable("column", 0, inner - 1)

    def block() -> None:
        combiner = Combiner(instruction, frame.elements, b)
        # From the init value itself, which may be a zero of the other sign than the identity: 0.0 + -0.0 is 0.0.
        start = [b.splat(value) if frame.access.vectorized else value for value in combiner.init()]
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", extent), 1, start)
        frame.access.variables["step"] = loop.index
        with frame.scope():
            step = variable("step", 0, extent - 1)
            position = constant(extent - 1) - step if reverse else step
            index = delinearized((row * extent + position) * inner + column, shape)
            # Every result is a sum of its own, rounded once: the next one continues from what is not rounded.
            following = combiner.take(loop.carried, combiner.at(index))
            for number, stored in enumerate(combiner.encoded(following)):
                linear = (row * extent + position) * inner + column
                frame.access.store(stored, len(body.operand_types) + number, linear)
        b.end_loop(loop, following)

    with frame.function(symbol):
        Combiner(instruction, frame.elements, b).init()
        walk_units(frame, units, lambda low, high: walk_lanes(frame, "column", inner, lanes, low, high, block))
    return kernel_code(b, (Phase(symbol, units.tasks, units.cost),))
