"""Where numba's types make another number than Python does: what a function compiled for a kernel may not do.

numba knows the type of every variable when it compiles; Python decides with every number.  Where both come to the same for all
numbers nothing is said; where they do not, the function is refused, with what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

_DIVISIONS: Final = frozenset({"floordiv", "truediv", "mod"})
_EXTREMA: Final = (max, min)


def lost_numbers(annotation: Any, *, integers_wanted: bool) -> Iterator[str]:
    """What a function does, as a predicate with its remedy; ``annotation`` is numba's, of the function or of a helper.

    ``integers_wanted``: its user declared integers, which floats of numba's that stand for them may not hold.
    """
    types = _Types(annotation)
    for expression in types.expressions():
        if expression.op == "unary":
            yield from _unary(types, expression)
        elif expression.op in ("binop", "inplace_binop"):
            yield from _binary(types, expression)
        elif expression.op == "call":
            yield from _call(types, expression, integers_wanted)
    for kind, way in types.joins() if integers_wanted else ():
        if isinstance(kind, types.kinds.Float) and types.is_computed_integer(way):
            yield "makes an integer on one way and a float on another one, and integers are wanted: write int(x) or float(x)"
            return


class _Types:
    """What numba found of a function's variables."""

    def __init__(self, annotation: Any):
        from numba.core import ir
        from numba.core import types as kinds

        self.annotation = annotation
        self.kinds: Any = kinds
        self.values: dict[str, list[Any]] = {}
        for block in annotation.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                self.values.setdefault(assignment.target.name, []).append(assignment.value)

    def expressions(self) -> Iterator[Any]:
        """Everything that is computed."""
        from numba.core import ir

        yield from (value for values in self.values.values() for value in values if isinstance(value, ir.Expr))

    def joins(self) -> Iterator[tuple[Any, Any]]:
        """Variables that are given the value of another one on some way, and that one."""
        from numba.core import ir

        for name, values in self.values.items():
            for value in values:
                found = value.incoming_values if isinstance(value, ir.Expr) and value.op == "phi" else [value]
                yield from ((self.annotation.typemap.get(name), each) for each in found if isinstance(each, ir.Var))

    def of(self, variable: Any) -> Any:
        """The type of a variable."""
        found = self.annotation.typemap.get(variable.name)
        return found if found is None else self.kinds.unliteral(found)

    def constant(self, variable: Any) -> Any:
        """The number that is written in the function, or in its module, for a variable; None if there is none."""
        from numba.core import ir

        values = self.values.get(variable.name, ())
        while len(values) == 1:
            (value,) = values
            if isinstance(value, (ir.Const, ir.Global, ir.FreeVar)):
                return value.value
            if isinstance(value, ir.Expr) and value.op == "cast":
                value = value.value
            values = self.values.get(value.name, ()) if isinstance(value, ir.Var) else ()
        return None

    def is_integer(self, variable: Any) -> bool:
        """Whether it is an integer of the machine (no boolean)."""
        return isinstance(self.of(variable), self.kinds.Integer)

    def is_computed_integer(self, variable: Any) -> bool:
        """Whether it is an integer that the function was given or computed: a small one that is written is a float, too."""
        return self.is_integer(variable) and self.constant(variable) is None

    def mix_signs(self, variables: Sequence[Any]) -> bool:
        """Whether a ui64 meets signed numbers, of which numba makes floats."""
        found = [self.of(each) for each in variables if self.is_integer(each)]
        return self.kinds.uint64 in found and any(each.signed for each in found)


def _unary(types: _Types, expression: Any) -> Iterator[str]:
    operator = getattr(expression.fn, "__name__", "")
    found = types.of(expression.value)
    if operator == "neg" and found == types.kinds.uint64:
        yield "negates a ui64, which numba leaves unsigned: write -np.int64(x) or -float(x)"
    elif operator == "invert" and found == types.kinds.boolean:
        yield "inverts a bool, of which Python makes -1 and -2: write not x"


def _binary(types: _Types, expression: Any) -> Iterator[str]:
    operator = getattr(expression.fn, "__name__", "").removeprefix("i")
    operands = expression.lhs, expression.rhs
    signature = types.annotation.calltypes.get(expression)
    if operator == "pow":
        yield from _power(types, *operands)
    if operator in (*_DIVISIONS, "pow") and signature is not None:
        has_signed = any(argument == types.kinds.int64 for argument in signature.args)
        if types.kinds.uint64 in [types.of(each) for each in operands] and has_signed:
            yield f"mixes ui64 and signed numbers in {operator}, which loses the sign: write np.uint64(2) instead of 2"


def _power(types: _Types, base: Any, exponent: Any) -> Iterator[str]:
    """An integer to a negative power is a float of Python's, and 0 of numba's."""
    if not (types.is_integer(base) and types.is_integer(exponent) and types.of(exponent).signed):
        return
    constant = types.constant(exponent)
    if constant is None or constant < 0:
        yield "raises an integer to a power that may be negative, which numba makes 0: write float(x) ** y"


def _call(types: _Types, expression: Any, integers_wanted: bool) -> Iterator[str]:
    function = types.annotation.typemap.get(expression.func.name)
    called = getattr(function, "typing_key", None)
    arguments = expression.args
    if called is pow and len(arguments) == 2:
        yield from _power(types, *arguments)
    elif called is round and arguments and types.is_integer(arguments[0]) and types.of(arguments[0]).bitwidth == 64:
        yield "rounds an integer, of which numba makes a float first: it is an integer already"
    elif called in _EXTREMA:
        name = called.__name__
        if types.mix_signs(arguments):
            yield f"mixes ui64 and signed numbers in {name}, of which numba makes floats: write np.uint64(2) instead of 2"
        is_float = any(isinstance(types.of(each), types.kinds.Float) for each in arguments)
        if integers_wanted and is_float and any(map(types.is_computed_integer, arguments)):
            yield f"mixes integers and floats in {name}, of which numba makes floats, and integers are wanted: write int(x)"
    elif isinstance(function, types.kinds.Dispatcher):
        python = function.dispatcher.py_func
        most = getattr(python, POSITIONAL, None)
        if most is not None and len(arguments) > most:
            yield f"gives {python.__qualname__} a keyword-only parameter by position: write its name"


POSITIONAL: Final = "hlojit_positional_parameters"
"""Attribute of a copy whose keyword-only parameters are positional ones for numba: how many were positional before."""
