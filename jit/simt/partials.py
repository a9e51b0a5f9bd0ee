"""Results of reductions: stored where they are whole, or kept as partial results that a second phase combines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from hlojit.ir.graph import Instruction
from hlojit.ir.scalar import formats
from hlojit.llvm.combiners import Combiner, Combiners
from hlojit.llvm.text import Val
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_reduction_plan import second_phase
from hlojit.lowering.index import Index, variable
from hlojit.lowering.kernel import Phase
from hlojit.lowering.row_plan import COLUMN
from hlojit.lowering.target import KIND_BITS
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.frame import GridFrame
from hlojit.simt.teams import Piece, Team

_ALIGNMENT = 256


def combiners_of(frame: GridFrame, instructions: Sequence[Instruction]) -> Combiners:
    """The accumulators of reductions in an open kernel function; the init values are loaded here."""
    made = Combiners([Combiner(one, frame.elements, frame.builder) for one in instructions])
    for combiner in made.combiners:
        combiner.init()
    return made


@final
class Partials:
    """Where the results of a kernel's reductions go."""

    def __init__(self, frame: GridFrame, instructions: Sequence[Instruction], results: int, chunks: int):
        self.frame = frame
        self.instructions = instructions
        self.results = results
        self.chunks = chunks
        kinds = [
            formats.compute_kind(result.tensor_type.element_type) for one in instructions for result in one.results
        ]
        self.offsets: list[int] = []
        self.nbytes = 0
        for kind in kinds if chunks > 1 else ():
            self.offsets.append(self.nbytes)
            size = results * chunks * max(8, KIND_BITS[kind]) // 8
            self.nbytes += -(-size // _ALIGNMENT) * _ALIGNMENT
        self.buffers: list[int] = []

    def open(self, workspace: Sequence[Val]) -> None:
        """In a new function: the arrays of partial results."""
        access = self.frame.access
        count = self.results * self.chunks
        self.buffers = [access.add_workspace(workspace[0], offset, count) for offset in self.offsets]

    def store(self, combiners: Combiners, flat: Sequence[Val], output: Index, chunk: Index) -> None:
        """Store accumulators that hold all elements (of the chunk)."""
        with self.frame.scope():
            if self.chunks == 1:
                self.store_whole(combiners, flat, output)
                return
            for buffer, value in zip(self.buffers, flat, strict=True):
                self.frame.access.store(value, buffer, output * self.chunks + chunk)

    def store_finished(self, combiner: Combiner, values: Sequence[Val], output: Index) -> None:
        """Encode and store a reduction's results."""
        frame = self.frame
        for result, stored in zip(combiner.instruction.results, combiner.encoded(values), strict=True):
            for number, root in enumerate(frame.body.roots):
                if root is result:
                    frame.access.store(stored, len(frame.body.operand_types) + number, output)

    def combine(self, symbol: str, machine: GridMachine) -> Phase:
        """The second phase: a team of threads for the chunks of each result."""
        frame, b = self.frame, self.frame.builder
        grid = second_phase(self.results, self.chunks, machine)
        with frame.kernel(symbol, grid.threads, workspace_bytes=self.nbytes, at_once=grid.at_once) as workspace:
            self.open(workspace)
            team = Team(frame, grid, machine.warp)
            team.open()
            combiners = combiners_of(frame, self.instructions)
            row, column = variable("row", 0, self.results - 1), variable(COLUMN, 0, self.chunks - 1)

            def take(pieces: Sequence[Piece], carried: list[Val]) -> list[Val]:
                for piece in pieces:
                    (place,) = piece.at([row * self.chunks + column])
                    with team.on(piece):
                        pairs = zip(self.buffers, combiners.kinds, strict=True)
                        found = [frame.access.load(buffer, kind, place, None) for buffer, kind in pairs]
                    carried = chosen(b, piece.active, combiners.merge(carried, found), carried)
                return carried

            flat = team.together(combiners, team.through(combiners.starts(), take))
            with frame.scope():
                b.when(team.is_first, lambda: self.store_whole(combiners, flat, row))
        cost = self.nbytes / machine.memory_bandwidth / grid.blocks
        return frame.phase(symbol, grid.blocks, cost)

    def store_whole(self, combiners: Combiners, flat: Sequence[Val], output: Index) -> None:
        """Store what accumulators of everything give."""
        for combiner, values in zip(combiners.combiners, combiners.finish(flat), strict=True):
            self.store_finished(combiner, values, output)


def chosen(b: SimtBuilder, condition: Val | None, values: Sequence[Val], others: Sequence[Val]) -> list[Val]:
    """Values where a condition (None: always) holds, others elsewhere."""
    if condition is None:
        return list(values)
    return [b.select(condition, value, other) for value, other in zip(values, others, strict=True)]
