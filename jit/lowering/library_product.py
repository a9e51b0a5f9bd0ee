"""Which products a vendor's library may compute instead of our kernel, and what it has to know of them.

A library takes matrices of one stride besides 1, in strided batches, of the types that it has matrix instructions for.  What
is chosen here depends on shapes and types alone: a phase of a kernel names the call (``Phase.library``), and whoever runs it
calls the library, or, without one, the kernel that stands there in its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, final

from hlojit.lowering.dot_problem import Axis
from hlojit.lowering.grid_product import GridProduct, Pairs, ProductOperand

FEWEST_MACS: Final = 1 << 24
"""Multiplications that are worth the call."""
MOST_BATCHES: Final = (1 << 31) - 1
_ALIGNED: Final = 16
"""What extents and strides of 8-bit elements are multiples of."""
_FLOATS: Final = {
    ("bf16", "bf16"): ("bf16", "f32"),
    ("f16", "f16"): ("f16", "f32"),
    ("f8E4M3FN", "f8E4M3FN"): ("bf16", "f16", "f32"),
    ("f8E4M3FN", "f8E5M2"): ("bf16", "f16", "f32"),
    ("f8E5M2", "f8E4M3FN"): ("bf16", "f16", "f32"),
    ("i8", "i8"): ("i32",),
}
"""Types of the result, by those of the operands."""


@final
@dataclass(frozen=True, slots=True)
class LibraryMatrix:
    """A matrix in memory: elements between neighbours in a row, in a column, and between batches."""

    element: str
    row_step: int
    column_step: int
    batch_step: int

    @property
    def step(self) -> int:
        """The stride that is not 1 (or is 1 in both dimensions)."""
        return max(self.row_step, self.column_step)


@final
@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """``result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n]`` in sums of kind ``sums`` (``f32``, ``tf32``, ``i32``).

    ``buffers`` says which of the kernel's buffers are lhs, rhs and result.
    """

    batch: int
    m: int
    n: int
    k: int
    lhs: LibraryMatrix
    rhs: LibraryMatrix
    result: LibraryMatrix
    sums: str
    buffers: tuple[int, int, int]
    fast: bool = False
    """Whether sums need not have all bits of f32."""
    way: int = 0
    """Which of the library's algorithms, in the order in which it proposes them."""
    bias: int | None = None
    """The buffer of what is added to every row, an element a column, before the sums are written: in f32, as the result is."""

    @property
    def takes_bias(self) -> bool:
        """Whether a bias of f32 is rounded as in two steps: sums of 16-bit elements (or tf32) and the result are f32, too.

        In a narrower result sum and bias would be rounded once, together; with 8-bit elements libraries want it in bf16.
        """
        return self.result.element == "f32" and self.lhs.element in ("bf16", "f16", "f32")

    @property
    def is_worthwhile(self) -> bool:
        """Whether there is enough to multiply for a call."""
        return self.batch * self.m * self.n * self.k >= FEWEST_MACS

    def to_text(self) -> str:
        """As one line of text, for ``Phase.library``."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def of_text(text: str) -> LibraryProduct:
        """What ``to_text`` wrote."""
        read = json.loads(text)
        for name in ("lhs", "rhs", "result"):
            read[name] = LibraryMatrix(**read[name])
        read["buffers"] = tuple(read["buffers"])
        return LibraryProduct(**read)


def library_product(
    product: GridProduct, elements: tuple[str, str, str], *, rounds_to_tf32: bool = False, fast: bool = False
) -> LibraryProduct | None:
    """The call for a product whose operands and result have these element types, or None.

    ``fast`` says that sums of 8-bit floats need not have all bits of f32.
    """
    if min(product.m, product.n) < _ALIGNED or product.batch > MOST_BATCHES:
        return None
    singles = rounds_to_tf32 and elements == ("f32", "f32", "f32")
    if not singles and elements[2] not in _FLOATS.get(elements[:2], ()):
        return None
    lhs, rhs = _operand(product.lhs, elements[0], flipped=False), _operand(product.rhs, elements[1], flipped=True)
    result = _result(product, elements[2])
    if lhs is None or rhs is None or result is None:
        return None
    sums = "tf32" if singles else "i32" if elements[2] == "i32" else "f32"
    call = LibraryProduct(
        product.batch,
        product.m,
        product.n,
        product.k,
        lhs,
        rhs,
        result,
        sums,
        (product.lhs.number, product.rhs.number, 2),
        fast and elements[0][:2] == "f8",
    )
    return call if elements[0][:2] not in ("f8", "i8") or _takes_bytes(call) else None


def _takes_bytes(call: LibraryProduct) -> bool:
    """8-bit elements: terms are neighbours on both sides, and everything is a multiple of 16."""
    matrices = (call.lhs, call.rhs, call.result)
    steps = (call.m, call.n, call.k, *(each.step for each in matrices), *(each.batch_step for each in matrices))
    return call.lhs.column_step == 1 and call.rhs.row_step == 1 and not any(step % _ALIGNED for step in steps)


def _operand(operand: ProductOperand, element: str, *, flipped: bool) -> LibraryMatrix | None:
    steps = [_only_step(axes) for axes in (operand.free, operand.terms, operand.batch)]
    if operand.windows or operand.pairs is not Pairs.NONE or operand.base or None in steps:
        return None
    free, terms, batch = (step or 0 for step in steps)
    if min(free, terms) != 1 or free == terms:
        return None
    return LibraryMatrix(element, terms, free, batch) if flipped else LibraryMatrix(element, free, terms, batch)


def _result(product: GridProduct, element: str) -> LibraryMatrix | None:
    batch, rows, columns = (_only_step(axes) for axes in product.result)
    if batch is None or rows is None or columns != 1 or rows < product.n:
        return None
    return LibraryMatrix(element, rows, 1, batch)


def _only_step(axes: Sequence[Axis]) -> int | None:
    """The stride of a dimension of at most one axis."""
    if len(axes) > 1:
        return None
    return axes[0].strides[0] if axes else 0
