"""The kernels of ``hlojit.lapack``: what each routine's parameters are, in the order of the function.

Letters of sizes are those of the routines' signatures (``hlojit.ir.ops.lapack_calls``): a result ``T m n`` is an array of n
columns of m numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import pack
from typing import Final

from hlojit.cpu.kernels.lane_kernels import lapack_in_lanes
from hlojit.cpu.kernels.lapack_results import finite_or_refused, vectors_joined
from hlojit.cpu.kernels.library_calls import Batch, Nothing, Number, Parameters, Place, Scratch, emit_calls
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.lapack_calls import LapackCall
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target

REALS: Final = {"s": "s", "d": "d", "c": "s", "z": "d"}
ONE: Final = {"s": pack("<f", 1), "d": pack("<d", 1), "c": pack("<2f", 1, 0), "z": pack("<2d", 1, 0)}
"""The number one of each element type, as it lies in memory."""


def emit_lapack(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """One call of the routine for each matrix of the batch; small ones are done by generated code where that can."""
    found = LapackCall.of(instruction)
    in_lanes = lapack_in_lanes(found)
    if in_lanes is not None and in_lanes.fits(target):
        return in_lanes.emit(target, symbol)
    call = _Call(found, instruction)
    parameters, batch = _ROUTINES[call.found.name](call)
    return emit_calls(symbol, parameters, batch)


class _Call:
    """A call with what its parameters are made of."""

    def __init__(self, found: LapackCall, instruction: Instruction):
        self.found = found
        self.letter, self.real, self.options = found.letter, REALS[found.letter], found.options
        self.is_complex = found.is_complex
        self._instruction = instruction
        self._operands = len(instruction.operands)

    def __getitem__(self, letter: str) -> int:
        return self.found.dimensions[letter]

    def option(self, name: str) -> str:
        """An option that is a letter."""
        return str(self.options[name])

    def leading(self, letter: str) -> int:
        """What LAPACK wants to hear as the distance of columns of so many numbers."""
        return max(1, self[letter])

    def reals(self, rows: str, columns: str) -> int:
        """The real numbers of a matrix."""
        return self[rows] * self[columns] * (2 if self.is_complex else 1)

    def operand(self, number: int) -> Place:
        """The address of an operand."""
        return self._place(number, self._instruction.operands[number].tensor_type.nbytes)

    def result(self, number: int, skipped: int = 0) -> Place:
        """The address of a result, behind its first elements that are skipped."""
        kind = self._instruction.results[number].tensor_type
        return self._place(self._operands + number, kind.nbytes, skipped * kind.element_type.itemsize)

    def _place(self, buffer: int, nbytes: int, offset: int = 0) -> Place:
        return Place(buffer, nbytes // max(1, self.found.batch), offset)

    def copied(self, number: int, count: int) -> Scratch:
        """A copy of an operand, that the routine may write."""
        return Scratch(self.letter, count, self.operand(number))

    def begin(self, *parameters: str | int) -> Parameters:
        """The function's first parameters."""
        return Parameters(self.found.function).add(*parameters)

    def batch(self, flops: float) -> Batch:
        """The calls, for what a real routine does in so many operations."""
        return Batch(self.found.batch, flops * (4 if self.is_complex else 1), self.found.routine.in_place)


Made = tuple[Parameters, Batch]
_INFO: Final = Scratch("i", 1)
"""Where a call says what is wrong with it, and nobody asks."""


def _potrf(c: _Call) -> Made:
    made = c.begin(c.option("uplo"), c["n"]).add(c.result(0), c.leading("n"), c.result(1))
    return made, c.batch(c["n"] ** 3 / 3)


def _getrf(c: _Call) -> Made:
    made = c.begin(c["m"], c["n"]).add(c.result(0), c.leading("m"), c.result(1), c.result(2))
    return made, c.batch(c["m"] * c["n"] * c["k"])


def _geqrf(c: _Call) -> Made:
    made = c.begin(c["m"], c["n"]).add(c.result(0), c.leading("m"), c.result(1)).wanted(c.letter).add(_INFO)
    return made, c.batch(2.0 * c["m"] * c["n"] * c["k"])


def _geqp3(c: _Call) -> Made:
    made = c.begin(c["m"], c["n"]).add(c.result(0), c.leading("m"), c.result(1), c.result(2)).wanted(c.letter)
    if c.is_complex:
        made.add(Scratch(c.real, 2 * c["n"]))
    return made.add(_INFO), c.batch(2.0 * c["m"] * c["n"] * c["k"])


def _orgqr(c: _Call) -> Made:
    made = c.begin(c["m"], c["n"], c["k"]).add(c.result(0), c.leading("m"), c.operand(1)).wanted(c.letter).add(_INFO)
    return made, c.batch(2.0 * c["m"] * c["n"] * c["k"])


def _ormqr(c: _Call) -> Made:
    side = "L" if c.options["left"] else "R"
    transposed = "C" if c.is_complex else "T"
    made = c.begin(side, transposed if c.options["transpose"] else "N", c["m"], c["n"], c["k"])
    # The routine writes the reflectors, and puts back what was there.
    made.add(c.copied(0, c["r"] * c["k"]), c.leading("r"), c.operand(1), c.result(0), c.leading("m"))
    return made.wanted(c.letter).add(_INFO), c.batch(4.0 * c["m"] * c["n"] * c["k"])


def _gesdd(c: _Call) -> Made:
    small, large = min(c["m"], c["n"]), max(c["m"], c["n"])
    made = c.begin(c.option("mode"), c["m"], c["n"]).add(c.result(0), c.leading("m"), c.result(1))
    made.add(c.result(2), c.leading("m"), c.result(3), c.leading("v")).wanted(c.letter)
    if c.is_complex:
        # LAPACK's users' guide, of the versions that want most.
        vectors = max(5 * small * small + 5 * small, 2 * large * small + 2 * small * small + small)
        made.add(Scratch(c.real, 7 * small if c.option("mode") == "N" else vectors))
    batch = finite_or_refused(c.batch(9.0 * small**2 * large), c.real, 3, c.reals("m", "n"))
    return made.add(Scratch("i", 8 * small), c.result(4)), batch


def _gesvd(c: _Call) -> Made:
    mode = c.option("mode")
    made = c.begin(mode, mode, c["m"], c["n"]).add(c.result(0), c.leading("m"), c.result(1))
    made.add(c.result(2), c.leading("m"), c.result(3), c.leading("v")).wanted(c.letter)
    if c.is_complex:
        made.add(Scratch(c.real, 5 * c["k"]))
    batch = c.batch(20.0 * c["k"] ** 2 * max(c["m"], c["n"]))
    return made.add(c.result(4)), finite_or_refused(batch, c.real, 4, c.reals("m", "n"))


def _syevd(c: _Call) -> Made:
    made = c.begin(c.option("mode"), c.option("uplo"), c["n"]).add(c.result(0), c.leading("n"), c.result(1))
    made.wanted(c.letter)
    if c.is_complex:
        made.wanted(c.real)
    return made.wanted("i").add(c.result(2)), c.batch(9.0 * c["n"] ** 3)


def _geev(c: _Call) -> Made:
    order, squared = c.leading("n"), c["n"] ** 2
    made = c.begin(c.option("compute_left"), c.option("compute_right"), c["n"]).add(c.copied(0, squared), order)
    batch = c.batch(25.0 * c["n"] ** 3)
    if c.is_complex:
        made.add(c.result(0), c.result(1), order, c.result(2), order).wanted(c.letter)
        made.add(Scratch(c.real, 2 * c["n"]), c.result(3))
        return made, finite_or_refused(batch, c.real, 3, c.reals("n", "n"))
    made.add(c.result(0), c.result(1), Scratch(c.letter, squared), order, Scratch(c.letter, squared), order)
    made.wanted(c.letter).add(c.result(4))
    # Parameters: imaginary parts are the sixth behind the first, left vectors the seventh, right ones the ninth.
    sides = ((c.option("compute_left"), 7, c.result(2)), (c.option("compute_right"), 9, c.result(3)))
    wanted = [(packed, joined) for mode, packed, joined in sides if mode == "V"]
    batch = finite_or_refused(batch, c.real, 3, c.reals("n", "n"))
    joining = vectors_joined(batch, c.letter, c["n"], 6, [packed for packed, _ in wanted])
    made.beside = tuple(joined for _, joined in wanted)
    return made, joining


def _gees(c: _Call) -> Made:
    order = c.leading("n")
    made = c.begin(c.option("mode"), c.option("sort")).add(Nothing(), c["n"], c.result(0), order)
    batch = c.batch(25.0 * c["n"] ** 3)
    if c.is_complex:
        made.add(c.result(3), c.result(2), c.result(1), order).wanted(c.letter)
        made.add(Scratch(c.real, c["n"]), Nothing(), c.result(4))
        return made, finite_or_refused(batch, c.real, 4, c.reals("n", "n"))
    made.add(c.result(4), c.result(2), c.result(3), c.result(1), order).wanted(c.letter)
    return made.add(Nothing(), c.result(5)), finite_or_refused(batch, c.real, 4, c.reals("n", "n"))


def _gehrd(c: _Call) -> Made:
    made = c.begin(c["n"], int(c.options["low"]), int(c.options["high"])).add(c.result(0), c.leading("n"), c.result(1))
    return made.wanted(c.letter).add(c.result(2)), c.batch(10 / 3 * c["n"] ** 3)


def _sytrd(c: _Call) -> Made:
    made = c.begin(c.option("uplo"), c["n"]).add(c.result(0), c.leading("n"), c.result(1), c.result(2), c.result(3))
    return made.wanted(c.letter).add(c.result(4)), c.batch(4 / 3 * c["n"] ** 3)


def _gesv(c: _Call) -> Made:
    made = c.begin(c["n"], c["m"]).add(c.result(0), c.leading("n"), c.result(1), c.result(2), c.leading("n"))
    return made.add(c.result(3)), c.batch(c["n"] ** 2 * (2 / 3 * c["n"] + 2.0 * c["m"]))


def _gtsv(c: _Call) -> Made:
    # Element i of the lower diagonal stands in row i, so that row 0 has none.
    diagonals = c.result(0, min(1, c["n"])), c.result(1), c.result(2)
    made = c.begin(c["n"], c["m"]).add(*diagonals, c.result(3), c.leading("n"), c.result(4))
    return made, c.batch(8.0 * c["n"] * (c["m"] + 1))


def _trsm(c: _Call) -> Made:
    made = c.begin(c.option("side"), c.option("uplo"), c.option("trans_x"), c.option("diag"), c["m"], c["n"])
    made.add(Number(ONE[c.letter]), c.operand(0), c.leading("r"), c.result(0), c.leading("m"))
    return made, c.batch(1.0 * c["m"] * c["n"] * c["r"])


_ROUTINES: Final[Mapping[str, Callable[[_Call], Made]]] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "geqrf": _geqrf,
    "geqp3": _geqp3,
    "orgqr": _orgqr,
    "ormqr": _ormqr,
    "gesdd": _gesdd,
    "gesvd": _gesvd,
    "syevd": _syevd,
    "geev": _geev,
    "gees": _gees,
    "gehrd": _gehrd,
    "sytrd": _sytrd,
    "gesv": _gesv,
    "gtsv": _gtsv,
    "trsm": _trsm,
}
