"""The kind of number that a function compiled by numba returns, from numba's types.

What becomes of it is one rule for all back ends, ``stablehlo.convert`` from this kind to the declared type: floats that an
integer type does not hold become its nearest integer, integers wrap.  A function of which Python's numbers and numba's
types would be converted differently is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hlojit.extensions.functions.linked_code import Unfit
from hlojit.ir.scalar.calls import code_bits

_SPELT: Final = {"unicode_type": "a str", "none": "None"}
"""What Python calls numba's types."""


def returned_kind(overload: Any, wanted: str) -> str:
    """The kind that a function returns, ``i1``, ``u8`` ... ``f64``; raises ``Unfit`` where it cannot become ``wanted``."""
    import numba

    kinds: Any = numba.types
    found = kinds.unliteral(overload.signature.return_type)
    if isinstance(found, kinds.Boolean):
        return "i1"
    if isinstance(found, kinds.Integer):
        return f"{'i' if found.signed else 'u'}{found.bitwidth}"
    if found not in (kinds.float32, kinds.float64):
        raise Unfit(f"returns {_SPELT.get(str(found), found)}; a scalar function returns a bool, an integer or a float")
    if code_bits(wanted):
        raise Unfit("returns a float; a code is an integer")
    if wanted[0] in "iu" and wanted != "i1" and mixes_integers(overload):
        raise Unfit(
            "returns integers and floats, of which numba makes floats, and is declared to return integers: write int(x)"
        )
    return f"f{found.bitwidth}"


def mixes_integers(overload: Any) -> bool:
    """Whether some of what a function returns, as a float, is an integer that is not written in the function."""
    from numba.core import ir
    from numba.core import types as kinds

    if not isinstance(overload.signature.return_type, kinds.Float):
        return False
    annotation = overload.type_annotation
    values: dict[str, list[Any]] = {}
    returned = []
    for block in annotation.blocks.values():
        for assignment in block.find_insts(ir.Assign):
            values.setdefault(assignment.target.name, []).append(assignment.value)
        returned += [each.value.name for each in block.find_insts(ir.Return)]
    seen = set(returned)
    while returned:
        name = returned.pop()
        for value in values.get(name, ()):
            ways = list(_handed_on(value))
            found = annotation.typemap.get(name)
            if (
                not ways
                and isinstance(found, kinds.Integer)
                and not isinstance(value, (ir.Const, ir.Global, ir.FreeVar))
            ):
                return True
            returned += [each for each in ways if each not in seen]
            seen.update(ways)
    return False


def _handed_on(value: Any) -> Iterator[str]:
    """Variables of which a value is one, unchanged."""
    from numba.core import ir

    if isinstance(value, ir.Var):
        yield value.name
    elif isinstance(value, ir.Expr) and value.op == "cast":
        yield value.value.name
    elif isinstance(value, ir.Expr) and value.op == "phi":
        yield from (each.name for each in value.incoming_values if isinstance(each, ir.Var))
