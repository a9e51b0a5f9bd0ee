"""Programs for kernels: of an op, in sizes at and beside those that blocks and vectors have; a program in other sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hlojit.compiler import parse
from hlojit.ir.builder import build_function
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.ir.ops.definition import Kernel, Pointwise, Reduction, find_op
from hlojit.ir.types import tensor
from hlojit.ir.verifier import collect_faults

SIZES: Final = (17, 64, 1, 65, 33, 16, 128, 7, 63, 129, 250, 3)
"""Those first that find most: one beside a block, a block, a single element."""


def resized(module: Module, count: int) -> Iterator[tuple[str, Module]]:
    """A program as it is, and with each of its sizes changed: what is no valid program then is left out."""
    yield "", module
    text = str(module)
    extents = sorted({int(each) for each in re.findall(r"(?<=[<x])(\d+)(?=x)", text) if each != "0"}, reverse=True)
    for extent in extents[:4]:
        for other in (extent - 1, extent + 1, *SIZES[:count]):
            if other > 0 and other != extent:
                changed = re.sub(rf"(?<=[<x]){extent}(?=x)", str(other), text)
                made = _parsed(changed)
                if made is not None:
                    yield f", {other} for {extent}", made


def _parsed(text: str) -> Module | None:
    try:
        module = parse(text)
    except HlojitError:
        return None
    return None if collect_faults(module) else module


def anchor_programs(op: str, count: int) -> Iterator[tuple[str, Module]]:
    """Programs around one op: elementwise, a reduction of rows, or a product; none for others."""
    record = find_op(op)
    lowering = record.lowering if record is not None else None
    for rows, columns in zip(SIZES[: count + 2], SIZES[1 : count + 3]):
        if isinstance(lowering, Pointwise):
            made = _elementwise(op, len(record.operands), rows * columns) if record is not None else None
        elif isinstance(lowering, Reduction):
            made = _reduction(rows, columns)
        elif isinstance(lowering, Kernel) and lowering.name.startswith("dot"):
            made = _product(rows, columns)
        else:
            return
        if made is not None:
            yield f"{op} {rows}x{columns}", made


def _elementwise(op: str, operands: int, size: int) -> Module | None:
    module = Module()
    kind = tensor((size,), "f32")
    try:
        with build_function(module, "main", [kind] * operands) as builder:
            builder.return_(builder.create(op, builder.arguments).result)
    except HlojitError:
        return None
    return module


def _reduction(rows: int, columns: int) -> Module:
    module = Module()
    with build_function(module, "main", [tensor((rows, columns), "f32")]) as builder:
        zero = builder.constant(0.0, tensor((), "f32"))
        x = builder.arguments[0]
        added = builder.reduce([x], [zero], builder.combiner("add", "f32"), dimensions=(1,))
        largest = builder.reduce([x], [zero], builder.combiner("maximum", "f32"), dimensions=(0,))
        builder.return_(added, largest)
    return module


def _product(rows: int, columns: int) -> Module:
    module = Module()
    kinds = [tensor((rows, columns), "f32"), tensor((columns, rows + 3), "f32"), tensor((rows + 3,), "f32")]
    with build_function(module, "main", kinds) as builder:
        x, y, bias = builder.arguments
        product = builder.dot(x, y)
        spread = builder.broadcast_in_dim(bias, product.tensor_type, (1,))
        zero = builder.constant(0.0, product.tensor_type)
        builder.return_(builder.maximum(builder.add(product, spread), zero))
    return module
