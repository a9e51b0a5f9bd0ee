"""Shapes as values, for expansions of ops whose operands leave sizes open.

    sizes = Sizes.of(builder, x)            # of tensor<?x4xf32>: get_dimension_size of x, and 4
    builder.create("stablehlo.dynamic_reshape", [x, sizes.total()], result_types=[...])

Numbers are i64, whatever an exporter would take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hlojit.ir.types import DYNAMIC, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Value

_ONE = tensor((1,), "i64")


@dataclass(frozen=True)
class Sizes:
    """The sizes of a value, each as a tensor<1xi64>."""

    builder: Any
    each: tuple[Value, ...]

    @staticmethod
    def of(builder: Any, value: Value) -> Sizes:
        """Those that the type says, and those that only the run tells."""
        found = []
        for d, extent in enumerate(value.tensor_type.shape):
            if extent == DYNAMIC:
                size = builder.get_dimension_size(value, dimension=d)
                found.append(builder.reshape(builder.convert(size, "i64"), (1,)))
            else:
                found.append(number(builder, extent))
        return Sizes(builder, tuple(found))

    def vector(self) -> Value:
        """All of them, one behind the other."""
        return joined(self.builder, self.each)

    def total(self) -> Value:
        """Their product."""
        found = number(self.builder, 1)
        for size in self.each:
            found = self.builder.multiply(found, size)
        return found


def number(builder: Any, value: int) -> Value:
    """A size that is known."""
    made: Value = builder.constant([value], _ONE)
    return made


def joined(builder: Any, sizes: Sequence[Value]) -> Value:
    """Sizes as the elements of one tensor."""
    if not sizes:
        made: Value = builder.constant([], tensor((0,), "i64"))
        return made
    made = sizes[0] if len(sizes) == 1 else builder.concatenate(*sizes, dimension=0)
    return made
