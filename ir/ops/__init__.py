"""The op table: importing this package fills it with the records of every built-in op."""

from hlojit.ir.ops import (
    control,
    internal,
    products,
    reductions,
)

__all__ = ["control", "internal", "products", "reductions"]
