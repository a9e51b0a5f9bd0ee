"""The scalar builder as rules of plugins see it: what a rule may not write is refused where it is written.

    b.add(x, x)        of floats: b.add takes integers, and was given f32, f32; write b.fadd
    b.fadd(x, 1.0)     b.fadd was given 1.0, which is no scalar; write b.constant('f32', 1.0)
    x * x              scalars have no *; write b.fmul(x, y)

A rule runs when a program is compiled, once for a loop: what is checked here costs nothing when it runs.  ``RuleBuilder`` stands
before any builder; ``RuleScalar`` before the scalars that the rule is given and makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, Final, NoReturn, final

import numpy as np
from hlojit.ir.errors import short_repr
from hlojit.ir.near_names import did_you_mean
from hlojit.ir.scalar.builder import Pair, ScalarBuilder

_BITS: Final = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64}
_INTEGERS: Final = frozenset({"i1", "i8", "i16", "i32", "i64"})
_FLOATS: Final = frozenset({"f32", "f64"})
_WORDS: Final = {_INTEGERS: "integers", _FLOATS: "floats"}
_OF_FLOATS: Final = {
    **{"add": "fadd", "sub": "fsub", "mul": "fmul", "sdiv": "fdiv", "udiv": "fdiv"},
    **{"icmp": "fcmp", "sext": "fpext", "zext": "fpext", "trunc": "fptrunc or b.fptosi"},
    **{"sitofp": "fpext or b.fptrunc", "uitofp": "fpext or b.fptrunc"},
}
"""What is meant where a method of integers is given floats, and below the other way round."""
_OF_INTEGERS: Final = {
    **{"fadd": "add", "fsub": "sub", "fmul": "mul", "fdiv": "sdiv or b.udiv"},
    **{"fcmp": "icmp", "fptosi": "trunc or b.sext", "fptoui": "trunc or b.zext", "fneg": "sub from a constant 0"},
    **{"fpext": "sext or b.zext", "fptrunc": "trunc"},
}
_SIGNED: Final = ("lt", "le", "gt", "ge")
_PREDICATES: Final = {
    "icmp": ("eq", "ne", *(sign + order for sign in "su" for order in _SIGNED)),
    "fcmp": (*("oeq", "one", "ord", "ueq", "une", "uno"), *(sign + order for sign in "ou" for order in _SIGNED)),
}
_MEANT: Final = {
    **{"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"},
    **{order: order for order in ("eq", "ne", *_SIGNED)},
}


class Misuse(TypeError):
    """What a rule does with the builder or with scalars, and may not."""


class UnknownName(AttributeError):
    """What a rule asks of the builder or of a scalar, and there is not."""


# ----------------------------------------------------------------------------------------------------------- scalars


def _no_operator(symbol: str, floats: str, integers: str) -> Callable[..., Any]:
    def refused(self: RuleScalar, *others: object) -> NoReturn:
        methods = floats if self.kind in _FLOATS else integers
        write = f"; write {methods}" if methods else ""
        raise Misuse(f"scalars of a rule have no {symbol}{write}")

    return refused


def _no_number(what: str) -> Callable[..., Any]:
    def refused(self: RuleScalar, *others: object) -> NoReturn:
        raise Misuse(f"{what} (a rule runs when the program is compiled, once for all elements)")

    return refused


@final
class RuleScalar:
    """A scalar in the hands of a plugin's rule: a kind, and nothing that Python can compute with."""

    __slots__ = ("builder", "inner", "kind")

    def __init__(self, builder: ScalarBuilder, inner: Any):
        self.builder = builder
        self.inner = inner
        self.kind: str = inner.kind

    def __repr__(self) -> str:
        return f"<scalar of kind {self.kind}>"

    def __getattr__(self, name: str) -> NoReturn:
        raise UnknownName(
            f"a scalar of a rule has its kind only, no {name!r}; what is computed with it are methods of the builder"
        )

    __hash__ = object.__hash__
    __add__ = __radd__ = _no_operator("+", "b.fadd(x, y)", "b.add(x, y)")
    __sub__ = __rsub__ = _no_operator("-", "b.fsub(x, y)", "b.sub(x, y)")
    __mul__ = __rmul__ = _no_operator("*", "b.fmul(x, y)", "b.mul(x, y)")
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _no_operator(
        "/", "b.fdiv(x, y)", "b.sdiv(x, y) or b.udiv(x, y)"
    )
    __mod__ = __rmod__ = _no_operator("%", "", "b.srem(x, y) or b.urem(x, y)")
    __pow__ = __rpow__ = _no_operator("**", "b.fmul(x, x)", "b.mul(x, x)")
    __neg__ = _no_operator("-", "b.fneg(x)", "b.sub(b.constant(x.kind, 0), x)")
    __abs__ = _no_operator("abs()", "b.fabs(x)", "b.select(condition, x, y)")
    __and__ = __rand__ = _no_operator("&", "", "b.and_(x, y)")
    __or__ = __ror__ = _no_operator("|", "", "b.or_(x, y)")
    __xor__ = __rxor__ = _no_operator("^", "", "b.xor(x, y)")
    __invert__ = _no_operator("~", "", "b.xor(x, b.constant(x.kind, -1))")
    __lshift__ = __rlshift__ = _no_operator("<<", "", "b.shl(x, y)")
    __rshift__ = __rrshift__ = _no_operator(">>", "", "b.ashr(x, y) or b.lshr(x, y)")
    __lt__ = _no_operator(
        "<", "b.fcmp('olt', x, y), and choose by b.select", "b.icmp('slt', x, y), and choose by b.select"
    )
    __le__ = _no_operator(
        "<=", "b.fcmp('ole', x, y), and choose by b.select", "b.icmp('sle', x, y), and choose by b.select"
    )
    __gt__ = _no_operator(
        ">", "b.fcmp('ogt', x, y), and choose by b.select", "b.icmp('sgt', x, y), and choose by b.select"
    )
    __ge__ = _no_operator(
        ">=", "b.fcmp('oge', x, y), and choose by b.select", "b.icmp('sge', x, y), and choose by b.select"
    )
    __eq__ = _no_operator(
        "==", "b.fcmp('oeq', x, y), and choose by b.select", "b.icmp('eq', x, y), and choose by b.select"
    )
    __ne__ = _no_operator(
        "!=", "b.fcmp('une', x, y), and choose by b.select", "b.icmp('ne', x, y), and choose by b.select"
    )
    __bool__ = _no_number("a scalar is neither true nor false; write b.select(condition, x, y)")
    __float__ = __int__ = __index__ = __complex__ = _no_number("a scalar is no Python number")
    __iter__ = __len__ = __getitem__ = _no_number("a scalar is one element, no array")
    __array__ = __array_ufunc__ = _no_number("NumPy cannot compute with a scalar; write methods of the builder")


# ----------------------------------------------------------------------------------------------------------- builder


@final
class RuleBuilder:
    """Implements ``ScalarBuilder`` over another one, whose scalars are ``RuleScalar`` outside."""

    __slots__ = ("_builder",)

    def __init__(self, builder: Any):
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        # Of the methods that only some builders have; see ScalarBuilder.
        found = getattr(self._builder, name, None)
        if found is None or name.startswith("__"):
            raise UnknownName(f"the scalar builder has no method {name!r}{did_you_mean(name, _METHODS)}")
        return self._passed_on(found) if callable(found) else found

    def wrap(self, given: Any) -> Any:
        """What the rule sees of what the builder made."""
        if isinstance(given, Pair):
            return Pair(*map(self.wrap, given))
        return RuleScalar(self._builder, given) if isinstance(getattr(given, "kind", None), str) else given

    def unwrap(self, given: Any, name: str = "") -> Any:
        """What the builder is given of what the rule has; ``name`` is that of the method."""
        if isinstance(given, RuleScalar):
            return self._own(given, name)
        if isinstance(given, Pair):
            return Pair(*(self.unwrap(each, name) for each in given))
        return type(given)(self.unwrap(each, name) for each in given) if type(given) in (tuple, list) else given

    def _own(self, given: RuleScalar, name: str) -> Any:
        if given.builder is not self._builder:
            where = f"b.{name} was given" if name else "it returned"
            raise Misuse(
                f"{where} a scalar of another builder: what a rule makes is of use in that call of the rule only"
            )
        return given.inner

    def _passed_on(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def passed_on(*arguments: Any, **named: Any) -> Any:
            inside = [self.unwrap(each) for each in arguments]
            return self.wrap(method(*inside, **{key: self.unwrap(each) for key, each in named.items()}))

        return passed_on

    # What the methods of arithmetic have in common.

    def _call(self, name: str, arguments: Sequence[Any], kinds: frozenset[str], *others: Any) -> Any:
        """A method of scalars of one kind, which is one of ``kinds``."""
        return self.wrap(getattr(self._builder, name)(*others, *self._same(name, arguments, kinds)))

    def _cast(self, name: str, a: Any, kind: str, sources: frozenset[str], results: frozenset[str]) -> Any:
        (value,) = self._same(name, (a,), sources)
        _check_kind(name, kind, results)
        return self.wrap(getattr(self._builder, name)(value, kind))

    def _same(self, name: str, arguments: Sequence[Any], kinds: frozenset[str]) -> list[Any]:
        inside = [self._scalar(name, each, arguments) for each in arguments]
        found = [each.kind for each in inside]
        wrong = next((each for each in found if each not in kinds), None)
        if wrong is not None or len(set(found)) > 1:
            raise Misuse(
                f"b.{name} takes {_taken(kinds, len(found))}, and was given {', '.join(found)}{_meant(name, found)}"
            )
        return inside

    def _scalar(self, name: str, given: Any, beside: Sequence[Any]) -> Any:
        if isinstance(given, RuleScalar):
            return self._own(given, name)
        kind = next((each.kind for each in beside if isinstance(each, RuleScalar)), "f32")
        if isinstance(given, Pair):
            raise Misuse(f"b.{name} was given a complex number; its parts are x.real and x.imag")
        if isinstance(given, (Real, np.generic)):
            written = f"; write b.constant({kind!r}, {given})"
        else:
            written = "; did a function forget to return it?" if given is None else ""
        raise Misuse(f"b.{name} was given {short_repr(given)}, which is no scalar{written}")

    # ScalarBuilder's.

    def constant(self, kind: str, value: int | float) -> Any:
        """A constant; an integer one is a whole number."""
        _check_kind("constant", kind, _INTEGERS | _FLOATS)
        if isinstance(value, RuleScalar):
            raise Misuse("b.constant was given a scalar for its value; it takes a Python number")
        if not isinstance(value, (Real, np.bool_)):
            raise Misuse(f"b.constant was given {short_repr(value)} for its value, which is no number")
        if kind in _INTEGERS and not isinstance(value, (Integral, np.bool_)) and value != np.floor(value):
            raise Misuse(f"b.constant({kind!r}, {value}): an integer kind has no such constant")
        return self.wrap(self._builder.constant(kind, value))

    def icmp(self, predicate: str, a: Any, b: Any) -> Any:
        return self._compare("icmp", predicate, a, b, _INTEGERS)

    def fcmp(self, predicate: str, a: Any, b: Any) -> Any:
        return self._compare("fcmp", predicate, a, b, _FLOATS)

    def _compare(self, name: str, predicate: Any, a: Any, b: Any, kinds: frozenset[str]) -> Any:
        inside = self._same(name, (a, b), kinds)
        known = _PREDICATES[name]
        if predicate not in known:
            meant = f"{'o' if name == 'fcmp' else 's'}{_MEANT[predicate]}" if predicate in _MEANT else ""
            # Python's != holds for NaN.
            meant = {"one": "une"}.get(meant, meant if meant in known else meant[1:])
            hint = f"; write {meant!r}" if meant else did_you_mean(str(predicate), known)
            raise Misuse(f"b.{name} has no predicate {short_repr(predicate)}; it has {' '.join(known)}{hint}")
        return self.wrap(getattr(self._builder, name)(predicate, *inside))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self._call("fma", (a, b, c), _FLOATS)

    def copysign(self, magnitude: Any, sign: Any) -> Any:
        return self._call("copysign", (magnitude, sign), _FLOATS)

    def bitcast(self, a: Any, kind: str) -> Any:
        value = self._scalar("bitcast", a, ())
        _check_kind("bitcast", kind, _INTEGERS | _FLOATS)
        if _BITS.get(value.kind) != _BITS[kind]:
            raise Misuse(
                f"b.bitcast keeps the width, and was given {value.kind} for {kind}; {_conversion(value.kind, kind)} converts"
            )
        return self.wrap(self._builder.bitcast(value, kind))

    def sext(self, a: Any, kind: str) -> Any:
        return self._resized("sext", a, kind, grows=True)

    def zext(self, a: Any, kind: str) -> Any:
        return self._resized("zext", a, kind, grows=True)

    def trunc(self, a: Any, kind: str) -> Any:
        return self._resized("trunc", a, kind, grows=False)

    def _resized(self, name: str, a: Any, kind: str, *, grows: bool) -> Any:
        (value,) = self._same(name, (a,), _INTEGERS)
        _check_kind(name, kind, _INTEGERS)
        if value.kind != kind and (_BITS[kind] > _BITS[value.kind]) != grows:
            raise Misuse(
                f"b.{name} makes integers {'wider' if grows else 'narrower'}, and was given {value.kind} for {kind}; "
                f"write {_conversion(value.kind, kind)}"
            )
        return self.wrap(getattr(self._builder, name)(value, kind))

    def sitofp(self, a: Any, kind: str) -> Any:
        return self._cast("sitofp", a, kind, _INTEGERS, _FLOATS)

    def uitofp(self, a: Any, kind: str) -> Any:
        return self._cast("uitofp", a, kind, _INTEGERS, _FLOATS)

    def fptosi(self, a: Any, kind: str) -> Any:
        return self._cast("fptosi", a, kind, _FLOATS, _INTEGERS)

    def fptoui(self, a: Any, kind: str) -> Any:
        return self._cast("fptoui", a, kind, _FLOATS, _INTEGERS)

    def fpext(self, a: Any) -> Any:
        return self._call("fpext", (a,), _FLOATS)

    def fptrunc(self, a: Any) -> Any:
        return self._call("fptrunc", (a,), _FLOATS)

    def half_to_float(self, bits: Any) -> Any:
        return self._call("half_to_float", (bits,), frozenset({"i16"}))

    def float_to_half(self, a: Any) -> Any:
        return self._call("float_to_half", (a,), frozenset({"f32"}))

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        chosen = self._scalar("select", condition, ())
        if chosen.kind != "i1":
            raise Misuse(
                f"b.select takes a condition of kind i1 first, and was given {chosen.kind}; compare it: "
                f"b.{'fcmp' if chosen.kind in _FLOATS else 'icmp'}('{'une' if chosen.kind in _FLOATS else 'ne'}', x, y)"
            )
        return self.wrap(self._builder.select(chosen, *self._same("select", (a, b), _INTEGERS | _FLOATS)))

    def lookup(self, kind: str, table: tuple[int | float, ...], index: Any) -> Any:
        _check_kind("lookup", kind, _INTEGERS | _FLOATS)
        if not isinstance(table, tuple) or not table or not all(isinstance(each, (Real, np.bool_)) for each in table):
            raise Misuse(f"b.lookup was given {short_repr(table)} for its table, which is a tuple of numbers")
        return self.wrap(self._builder.lookup(kind, table, *self._same("lookup", (index,), frozenset({"i32"}))))

    def call(
        self,
        function: Callable[..., Any],
        kinds: tuple[str, ...],
        result_kind: str,
        arguments: tuple[Any, ...],
        user: str,
    ) -> Any:
        inside = tuple(self._scalar("call", each, arguments) for each in arguments)
        return self.wrap(self._builder.call(function, kinds, result_kind, inside, user))

    def rare(self, condition: Any, slow: Callable[..., Any], arguments: Sequence[Any], fast: Any) -> Any:
        """By ``select`` where the builder below has none."""
        method = getattr(self._builder, "rare", None)
        if method is None:
            return self.select(condition, slow(self, *arguments), fast)
        ((chosen, otherwise), inside) = ((self.unwrap(condition), self.unwrap(fast)), self.unwrap(tuple(arguments)))

        def made(builder: Any, *scalars: Any) -> Any:
            outer = RuleBuilder(builder)
            return outer.unwrap(slow(outer, *map(outer.wrap, scalars)))

        return self.wrap(method(chosen, made, inside, otherwise))


def _unary(name: str, kinds: frozenset[str]) -> Callable[..., Any]:
    def method(self: RuleBuilder, a: Any) -> Any:
        return self._call(name, (a,), kinds)

    method.__name__ = method.__qualname__ = name
    return method


def _binary(name: str, kinds: frozenset[str]) -> Callable[..., Any]:
    def method(self: RuleBuilder, a: Any, b: Any) -> Any:
        return self._call(name, (a, b), kinds)

    method.__name__ = method.__qualname__ = name
    return method


for _kinds, _names in (
    (_INTEGERS, "add sub mul sdiv udiv srem urem and_ or_ xor shl lshr ashr"),
    (_FLOATS, "fadd fsub fmul fdiv"),
):
    for _name in _names.split():
        setattr(RuleBuilder, _name, _binary(_name, _kinds))
for _kinds, _names in (
    (_INTEGERS, "population_count count_leading_zeros"),
    (_FLOATS, "fneg fabs sqrt floor ceil truncate round_even"),
):
    for _name in _names.split():
        setattr(RuleBuilder, _name, _unary(_name, _kinds))
_METHODS: Final = tuple(name for name in vars(ScalarBuilder) if not name.startswith("_"))


# ---------------------------------------------------------------------------------------------------------- messages


def _check_kind(name: str, kind: object, kinds: frozenset[str]) -> None:
    if kind not in kinds:
        known = " ".join(each for each in _BITS if each in kinds)
        hint = did_you_mean(kind, _BITS) if isinstance(kind, str) else ""
        raise Misuse(f"b.{name} was given the kind {short_repr(kind)}; its kinds are {known}{hint}")


def _taken(kinds: frozenset[str], count: int) -> str:
    if count > 1:
        return f"{_WORDS.get(kinds, 'scalars')} of one kind"
    word = _WORDS.get(kinds, "scalars").removesuffix("s")
    return f"a{'n' if word[0] == 'i' else ''} {word}" if len(kinds) > 1 else f"a scalar of kind {min(kinds)}"


def _meant(name: str, found: Sequence[str]) -> str:
    """Which method, or which conversion, is meant for scalars of these kinds."""
    kinds = sorted(set(found))
    if len(kinds) > 1:
        # The wider one, and a float rather than an integer.
        wide = max(kinds, key=lambda kind: (kind in _FLOATS, _BITS[kind]))
        return "; write " + " and ".join(_conversion(kind, wide) for kind in kinds if kind != wide)
    if kinds[0] in _FLOATS:
        other = _OF_FLOATS.get(name)
        return (
            f"; write b.{other}"
            if other
            else f"; write {_conversion(kinds[0], 'i32' if kinds[0] == 'f32' else 'i64')} first"
        )
    other = _OF_INTEGERS.get(name)
    return f"; write b.{other}" if other else f"; write {_conversion(kinds[0], 'f32')} first"


def _conversion(kind: str, other: str) -> str:
    """The call that makes a scalar of another kind."""
    if kind in _FLOATS:
        if other in _FLOATS:
            return "b.fpext(x)" if other == "f64" else "b.fptrunc(x)"
        return f"b.fptosi(x, {other!r})"
    if other in _FLOATS:
        return f"b.{'uitofp' if kind == 'i1' else 'sitofp'}(x, {other!r})"
    if _BITS[other] < _BITS[kind]:
        return f"b.trunc(x, {other!r})"
    return f"b.{'zext' if kind == 'i1' else 'sext'}(x, {other!r})"
