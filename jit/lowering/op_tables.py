"""Ops on formats of at most 8 bits that functions give, as tables from codes to codes.

    %2 = multiply %0, %1 : posit8      =>      the byte at 256 * code(%0) + code(%1)

A table holds what the op's own rule gives for every pair of codes, evaluated by NumPy and rounded as everything is: one load
in the place of two decoded numbers, the op, and the search for a code.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, cast, final

import numpy as np
from hlojit.ir.blocks import Instruction
from hlojit.ir.formats import FloatFormat
from hlojit.ir.ops.definition import Pointwise, PointwiseCall
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.codec_tables import CodecTables, codec_tables
from hlojit.ir.scalar.numpy_builder import NumpyBuilder, NumpyScalar
from hlojit.lowering.structure import is_built_in

Array = np.ndarray[Any, Any]
Table = Array

WIDEST: Final = 8
_MOST_OPERANDS: Final = 2
_KEPT: Final = 32
_found: OrderedDict[Any, Array | None] = OrderedDict()


SMALL: Final = 256
MOST_LARGE: Final = 4
"""Tables of 64 KB that a kernel may read: they lie in the cache together."""


@final
class OpTables:
    """Tables of the ops of one kernel."""

    def __init__(self, builder: object):
        self._codecs: dict[FloatFormat, CodecTables | None] | None = getattr(builder, "codecs", None)
        self._known: dict[Instruction, Table | None] = {}
        self._large: set[int] = set()

    def of(self, instruction: Instruction | None) -> Table | None:
        """The table of an op, if it has one and the kernel room for it."""
        if instruction is None or self._codecs is None:
            return None
        if instruction not in self._known:
            found = op_table(instruction, self._codecs)
            if found is not None and found.size > SMALL:
                self._large.add(id(found))
                found = found if len(self._large) <= MOST_LARGE else None
            self._known[instruction] = found
        return self._known[instruction]


def index_of_codes(b: ScalarBuilder, instruction: Instruction, codes: Sequence[Scalar]) -> Scalar:
    """The place in an op's table for codes of its operands."""
    place: Scalar | None = None
    for operand, code in zip(instruction.operands, codes, strict=True):
        bits = operand.tensor_type.element_type.bits
        wide = b.and_(b.zext(code, "i32"), b.constant("i32", (1 << bits) - 1))
        place = wide if place is None else b.or_(b.shl(place, b.constant("i32", bits)), wide)
    assert place is not None
    return place


def op_table(instruction: Instruction, codecs: dict[FloatFormat, CodecTables | None]) -> Array | None:
    """Codes of an op's results by those of its operands, the first operand's in the upper bits; None where there is no table.

    ``codecs`` keeps what is found of formats.
    """
    lowering = instruction.op.lowering
    if not isinstance(lowering, Pointwise) or lowering.moves or not 1 <= len(instruction.operands) <= _MOST_OPERANDS:
        return None
    rows = [value.tensor_type.element_type for value in (*instruction.operands, instruction.result)]
    if not all(isinstance(row, FloatFormat) and row.decode is not None and row.bits <= WIDEST for row in rows):
        return None
    if not is_built_in(instruction.op):
        return None  # rules of plugins may call functions, or read what changes
    formats = cast(list[FloatFormat], rows)
    tables = [codecs.setdefault(row, codec_tables(row)) if row not in codecs else codecs[row] for row in formats]
    if any(each is None for each in tables):
        return None
    try:
        key = instruction.op.name, tuple(sorted(instruction.attributes.items())), tuple(formats)
        hash(key)
    except TypeError:
        return None
    key = (*key, tuple(each.identity for each in tables if each is not None))  # type: ignore[assignment]
    with suppress(KeyError):
        return _found[key]
    call = PointwiseCall(tuple(formats[:-1]), formats[-1], instruction.attributes)
    made = _made(lowering, call, cast(list[CodecTables], tables))
    while len(_found) >= _KEPT:
        with suppress(KeyError):
            _found.popitem(last=False)
    return _found.setdefault(key, made)


def _made(lowering: Pointwise, call: PointwiseCall, tables: list[CodecTables]) -> Array | None:
    rows = [cast(FloatFormat, row) for row in (*call.operand_types, call.result_type)]
    builder = _Calculator()
    count = len(rows) - 1
    operands = [
        NumpyScalar(row.compute, table.values.reshape([-1 if axis == place else 1 for axis in range(count)]))
        for place, (row, table) in enumerate(zip(rows[:-1], tables))
    ]
    try:
        found = lowering.rule(cast(ScalarBuilder, builder), call, *operands)
    except _Called:
        return None
    number = cast(NumpyScalar, found).array
    shape = [1 << row.bits for row in rows[:-1]]
    codes = tables[-1].encoded(np.ascontiguousarray(np.broadcast_to(number, shape))).ravel()
    codes.flags.writeable = False
    return codes


class _Called(Exception):
    """A rule calls a Python function."""


@final
class _Calculator:
    """``NumpyBuilder`` for rules that call no Python function."""

    def __init__(self) -> None:
        self._builder = NumpyBuilder()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def call(self, *_: Any) -> Any:
        """No."""
        raise _Called
