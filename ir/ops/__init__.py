"""The op table: importing this package fills it with the records of every built-in op."""

from hlojit.ir.ops import (
    control,
    gather,
    internal,
    products,
    reductions,
    scatter,
    windows,
)

__all__ = [
    "control",
    "gather",
    "internal",
    "products",
    "reductions",
    "scatter",
    "windows",
]
