"""A dry run of a fusion: what it loads at which indices, how much it computes, how many values are alive at once.

The probe is an ``Access`` and a ``ScalarBuilder`` that emit nothing.  Loop structure, vector width and task size follow
from its ``Facts``; every later decision is made before a line of code is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, final

from hlojit.ir.scalar.builder import Pair
from hlojit.ir.scalar.calls import plain_kind
from hlojit.lowering.index import Index, variable
from hlojit.lowering.target import KIND_BITS

_HEAVY: Final = {"fdiv": 6, "sqrt": 8, "sdiv": 20, "udiv": 20, "srem": 20, "urem": 20, "lookup": 12, "call": 30}
"""Cycles of a native vector, roughly; everything else counts one."""


_TABULATED: Final = 2


class ProbeScalar(NamedTuple):
    """A scalar of which only the kind and the place of its definition are known."""

    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class Load:
    """One access to an operand."""

    buffer: int
    kind: str
    linear: Index
    guarded: bool


@dataclass
class Facts:
    """What a dry run found."""

    loads: list[Load] = field(default_factory=list)
    indices: list[Index] = field(default_factory=list)
    """Indices used as values or in conditions."""
    conditions: list[tuple[Index, int, int]] = field(default_factory=list)
    requested: list[Any] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    cost: float = 0.0
    """Instructions of one element, weighted."""
    live: int = 0
    """Most values alive at once (constants left out)."""
    has_loop: bool = False
    has_call: bool = False
    """Whether elements are computed one at a time: a function of a plugin is called, or tables are read."""
    calls_function: bool = False
    is_copy: bool = False
    """Whether every root is an element of an operand as it stands in memory."""

    @property
    def widest_bits(self) -> int:
        """Bits of the widest kind computed or loaded."""
        return max((max(8, KIND_BITS[kind]) for kind in self.kinds), default=8)

    def all_indices(self) -> Iterable[Index]:
        """Every index expression that the code will compute."""
        for load in self.loads:
            yield load.linear
        yield from self.indices


def _binary(name: str) -> Callable[[Probe, ProbeScalar, ProbeScalar], ProbeScalar]:
    cost = _HEAVY.get(name, 1)

    def method(self: Probe, a: ProbeScalar, b: ProbeScalar) -> ProbeScalar:
        return self.record(a.kind, cost, a, b)

    return method


def _unary(name: str) -> Callable[[Probe, ProbeScalar], ProbeScalar]:
    cost = _HEAVY.get(name, 1)

    def method(self: Probe, a: ProbeScalar) -> ProbeScalar:
        return self.record(a.kind, cost, a)

    return method


def _compare(self: Probe, predicate: str, a: ProbeScalar, b: ProbeScalar) -> ProbeScalar:
    return self.record("i1", 1, a, b)


def _cast(self: Probe, a: ProbeScalar, kind: str) -> ProbeScalar:
    return self.record(kind, 1, a) if a.kind != kind else a


@final
class Probe:
    """Access and builder of a dry run; ``finish`` returns the facts."""

    def __init__(self) -> None:
        self.facts = Facts()
        self._uses: list[tuple[int, ...]] = []
        self._scale = 1.0
        self._loops = 0
        self.codecs: dict[Any, Any] = {}
        """Tables of formats, see ``hlojit.ir.scalar.formats``."""

    @property
    def builder(self) -> Probe:
        """The probe itself."""
        return self

    def record(self, kind: str, cost: float, *arguments: ProbeScalar) -> ProbeScalar:
        """Count one instruction."""
        self.facts.cost += cost * self._scale
        self.facts.kinds.add(kind)
        self._uses.append(tuple(argument.number for argument in arguments if argument.number >= 0))
        return ProbeScalar(kind, len(self._uses) - 1)

    def finish(self, roots: Sequence[ProbeScalar | Pair]) -> Facts:
        """Compute the pressure and return what was found."""
        last: dict[int, int] = {}
        for position, uses in enumerate(self._uses):
            for number in uses:
                last[number] = position
        for root in roots:
            for part in root if isinstance(root, Pair) else (root,):
                assert isinstance(part, ProbeScalar)
                last[part.number] = len(self._uses)
        ends: dict[int, int] = {}
        for position in last.values():
            ends[position] = ends.get(position, 0) + 1
        alive = 0
        for position in range(len(self._uses)):
            alive += (position in last) - ends.get(position, 0)
            self.facts.live = max(self.facts.live, alive + ends.get(position, 0))
        return self.facts

    # ---------------------------------------------------------------- access

    def load(self, buffer: int, kind: str, linear: Index, condition: ProbeScalar | None) -> ProbeScalar:
        """Note a load."""
        self.facts.loads.append(Load(buffer, kind, linear, condition is not None))
        return self.record(kind, 1)

    def load_pair(self, buffer: int, kind: str, linear: Index, condition: ProbeScalar | None) -> Pair:
        """Note a load of a complex number."""
        self.facts.loads.append(Load(buffer, f"i{2 * KIND_BITS[kind]}", linear, condition is not None))
        return Pair(self.record(kind, 1), self.record(kind, 1))

    def index_value(self, index: Index, kind: str) -> ProbeScalar:
        """Note the index."""
        self.facts.indices.append(index)
        return self.record(kind, 1)

    def bind(self, key: str, value: ProbeScalar) -> None:
        """Nothing to remember."""

    def is_uniform(self, condition: ProbeScalar) -> bool:
        """Conditions are taken as those of lanes, so that both sides are seen."""
        return False

    def branch(
        self, condition: ProbeScalar, then: Callable[[], ProbeScalar], otherwise: Callable[[], ProbeScalar]
    ) -> ProbeScalar:
        """See both sides."""
        then()
        return otherwise()

    def loop(
        self, extents: Sequence[int], initial: Sequence[ProbeScalar], body: Callable[..., Sequence[ProbeScalar]]
    ) -> tuple[ProbeScalar, ...]:
        """Run the body once; its cost counts for every iteration."""
        total = 1
        indices = []
        for extent in extents:
            total *= extent
            self._loops += 1
            indices.append(variable(f"w{self._loops}", 0, max(0, extent - 1)))
        if total == 0:
            return tuple(initial)
        self.facts.has_loop = True
        outer = self._scale
        self._scale *= total
        results = body(tuple(indices), tuple(initial))
        self._scale = outer
        return tuple(results)

    # --------------------------------------------------------- ScalarBuilder

    def constant(self, kind: str, value: int | float) -> ProbeScalar:
        """Constants are free."""
        self.facts.kinds.add(kind)
        return ProbeScalar(kind, -1)

    add = _binary("add")
    sub = _binary("sub")
    mul = _binary("mul")
    sdiv = _binary("sdiv")
    udiv = _binary("udiv")
    srem = _binary("srem")
    urem = _binary("urem")
    and_ = _binary("and")
    or_ = _binary("or")
    xor = _binary("xor")
    shl = _binary("shl")
    lshr = _binary("lshr")
    ashr = _binary("ashr")
    population_count = _unary("population_count")
    count_leading_zeros = _unary("count_leading_zeros")
    icmp = _compare
    fcmp = _compare
    fadd = _binary("fadd")
    fsub = _binary("fsub")
    fmul = _binary("fmul")
    fdiv = _binary("fdiv")
    fneg = _unary("fneg")
    fabs = _unary("fabs")
    sqrt = _unary("sqrt")
    floor = _unary("floor")
    ceil = _unary("ceil")
    truncate = _unary("truncate")
    round_even = _unary("round_even")
    copysign = _binary("copysign")
    bitcast = _cast
    sext = _cast
    zext = _cast
    trunc = _cast
    sitofp = _cast
    uitofp = _cast
    fptosi = _cast
    fptoui = _cast

    def fma(self, a: ProbeScalar, b: ProbeScalar, c: ProbeScalar) -> ProbeScalar:
        """One instruction."""
        return self.record(a.kind, 1, a, b, c)

    def fpext(self, a: ProbeScalar) -> ProbeScalar:
        """One instruction."""
        return self.record("f64", 1, a)

    def fptrunc(self, a: ProbeScalar) -> ProbeScalar:
        """One instruction."""
        return self.record("f32", 1, a)

    def half_to_float(self, bits: ProbeScalar) -> ProbeScalar:
        """One instruction."""
        return self.record("f32", 1, bits)

    def float_to_half(self, a: ProbeScalar) -> ProbeScalar:
        """One instruction."""
        return self.record("i16", 1, a)

    def select(self, condition: ProbeScalar, a: ProbeScalar, b: ProbeScalar) -> ProbeScalar:
        """One instruction."""
        return self.record(a.kind, 1, condition, a, b)

    def lookup(self, kind: str, table: tuple[int | float, ...], index: ProbeScalar) -> ProbeScalar:
        """A gather."""
        return self.record(kind, _HEAVY["lookup"], index)

    def tabulated(self, kind: str, table: object, index: ProbeScalar) -> ProbeScalar:
        """A load from a table: one element at a time is as fast as a vector of them."""
        self.facts.has_call = True
        return self.record(kind, _TABULATED, index)

    def call(
        self,
        function: Callable[..., Any],
        kinds: tuple[str, ...],
        result_kind: str,
        arguments: tuple[ProbeScalar, ...],
        user: str,
    ) -> ProbeScalar:
        """A foreign function: nothing is known about it."""
        self.facts.has_call = self.facts.calls_function = True
        return self.record(plain_kind(result_kind), _HEAVY["call"], *arguments)
