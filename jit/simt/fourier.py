"""hlojit.butterflies on a machine with threads: each thread transforms a column, whose neighbours' are its neighbours."""

from __future__ import annotations

from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import ButterfliesView
from hlojit.llvm.region import delinearize
from hlojit.llvm.text import Val
from hlojit.lowering.body import Body
from hlojit.lowering.fft_codelet import Number, multiplications, times, transform
from hlojit.lowering.grid_plan import THREADS
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect
from hlojit.simt.frame import GridFrame


def emit_butterflies(instruction: Instruction, target: Target, dialect: Dialect, symbol: str) -> KernelCode:
    """Operands: values, factors."""
    kind = instruction.operands[0].tensor_type
    outer, count, rest, inner = kind.shape
    view = ButterfliesView.of(instruction)
    real = instruction.operands[1].tensor_type.element_type.name
    frame = GridFrame(target, Body.of(instruction), dialect)
    b = frame.builder
    columns = outer * rest * inner
    blocks = -(-columns // THREADS)

    def number(*terms: tuple[Val, int]) -> Val:
        total = b.constant("i64", 0)
        for value, factor in terms:
            total = b.add(total, b.mul(value, b.constant("i64", factor)))
        return total

    with frame.kernel(symbol, THREADS):
        values, factors, results = frame.access.bases
        column = b.global_thread()

        def work() -> None:
            batch, place, within = delinearize(b, column, (outer, rest, inner))
            first = number((batch, count * rest * inner), (place, inner), (within, 1))
            given = [
                _load(b, real, values, b.add(first, b.constant("i64", point * rest * inner))) for point in range(count)
            ]
            found = transform(b, real, given, inverse=view.inverse, fused=True)
            target_first = number((batch, rest * count * inner), (place, count * inner), (within, 1))
            for point, value in enumerate(found):
                result = value
                if rest > 1 and point:
                    numbers = [b.constant("i64", (part * count + point) * rest) for part in range(2)]
                    turn = [b.load(real, b.element_pointer(factors, real, b.add(place, each))) for each in numbers]
                    result = times(b, result, (turn[0], turn[1]), fused=True)
                if view.scale != 1:
                    scale = b.constant(real, view.scale)
                    result = b.fmul(result[0], scale), b.fmul(result[1], scale)
                _store(b, real, results, b.add(target_first, b.constant("i64", point * inner)), result)

        b.when(b.icmp("slt", column, b.constant("i64", columns)), work)
    assert target.grid is not None
    cost = 2 * kind.nbytes / target.grid.memory_bandwidth / max(1, blocks) + 0.01 * multiplications(count)
    return frame.code((frame.phase(symbol, blocks, cost),))


def _load(b: SimtBuilder, kind: str, base: Val, index: Val) -> Number:
    place = b.add(index, index)
    after = b.add(place, b.constant("i64", 1))
    return b.load(kind, b.element_pointer(base, kind, place)), b.load(kind, b.element_pointer(base, kind, after))


def _store(b: SimtBuilder, kind: str, base: Val, index: Val, value: Number) -> None:
    place = b.add(index, index)
    for part, where in zip(value, (place, b.add(place, b.constant("i64", 1)))):
        b.store(part, b.element_pointer(base, kind, where))
