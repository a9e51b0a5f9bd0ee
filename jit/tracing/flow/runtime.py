"""``TracedRuntime``: answers rewritten functions while they are traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, Final, NoReturn

import numpy as np
from hlojit.ir.graph import Value
from hlojit.tracing import texts
from hlojit.tracing.calls.containers import level
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow import branches, callees, rounds
from hlojit.tracing.flow.entangled import Entangled
from hlojit.tracing.flow.failures import is_of_unknown_path, is_the_programs, record
from hlojit.tracing.flow.joining import tracers_of
from hlojit.tracing.flow.journal import thing_of
from hlojit.tracing.flow.membership import contains
from hlojit.tracing.flow.mutations import CONTAINERS
from hlojit.tracing.flow.never import NEVER, AlwaysRaises
from hlojit.tracing.flow.passing import Passing
from hlojit.tracing.flow.regions import Region
from hlojit.tracing.flow.walks import Walk, walk_of
from hlojit.tracing.operations import Operations
from hlojit.tracing.rewriting import UNDEFINED, FunctionInfo, Kind, PythonRuntime, Site, State
from hlojit.tracing.rewriting.protocol import Part
from hlojit.tracing.tracer import Tracer

_CONDITIONS: Final = frozenset(
    {Kind.IF, Kind.WHILE, Kind.TERNARY, Kind.AND, Kind.OR, Kind.COMPARE, Kind.TRUTH, Kind.ASSERT}
)


MOST_UNROLLED: Final = 50_000
"""Instructions of a function with loops that cannot be compiled as loops, their rounds one by one."""
DEEPEST: Final = 40
"""Calls of one function inside of each other, in as many branches."""


class Unroll(BaseException):
    """A loop cannot be compiled as one: the function is traced again, with its rounds one by one."""

    def __init__(self, site: Site):
        super().__init__(str(site))
        self.site = site


class TracedRuntime(PythonRuntime):
    """Of one trace."""

    def __init__(
        self,
        ops: Operations,
        unrolled: Mapping[Site, BaseException | None] = MappingProxyType({}),
        passing: Passing | None = None,
    ):
        self.ops = ops
        self.passing = passing or Passing()
        self.unrolled = unrolled
        """Loops whose rounds are traced one by one, and why they cannot be compiled as loops."""
        self.begun: dict[Site, tuple[int, int]] = {}
        """Of each ``while`` that Python runs its rounds so far, and how many instructions there were before it."""
        self.whiles: list[Site] = []
        """Those that have become loops of the program, though Python could have run them."""
        self.regions: list[Region] = []
        """The regions that are recorded for constructs, innermost last."""
        self.entangled = Entangled()
        self.labels: dict[int, str] = {}
        """How messages call the things that regions change, by their identities."""
        self.calls: list[FunctionInfo] = []
        """The functions that are running, innermost last."""

    # ------------------------------------------------------------- what is traced

    def takes(self, site: Site, value: Any) -> bool:
        """Conditions that are traced, and loops that are long, or may be left by a traced condition."""
        self.passing.require_own(site, value)
        if self.unrolled and len(self.ops.builder.block) > MOST_UNROLLED:
            raise self._too_long()
        if site.kind is Kind.FOR:
            return not site.inside and self._takes_loop(site, value)
        if site.kind is Kind.WHILE and (type(value) is not Tracer or self.ops.known(value) is not None):
            return self._is_long(site)
        if site.kind not in _CONDITIONS or type(value) is not Tracer:
            return False
        if value.size != 1:
            which = "an array with more than one element" if value.size else "an empty array"
            raise ValueError(f"The truth value of {which} is ambiguous. Use a.any() or a.all()")
        return self.ops.known(value) is None

    def begin(self, site: Site) -> None:
        """Counts its rounds as long as Python decides on them."""
        self.begun[site] = (0, len(self.ops.builder.block))

    def _is_long(self, site: Site) -> bool:
        """Whether a ``while`` on Python's values has come to so many instructions that it is better a loop of the program."""
        count, before = self.begun[site]
        self.begun[site] = (count + 1, before)
        if site.inside or site in self.unrolled or count < rounds.SHORT:
            return False
        if len(self.ops.builder.block) - before <= rounds.LARGE:
            return False
        self.whiles.append(site)
        return True

    def _takes_loop(self, site: Site, value: Any) -> bool:
        if site.exit_flag:
            return True
        walk = walk_of(value)
        if walk is None or site in self.unrolled:
            return False
        return isinstance(walk.count, Tracer) or walk.count > rounds.SHORT

    def truth(self, site: Site, value: Any) -> Value:
        """The truth of a condition."""
        if isinstance(value, Value):
            return value
        if type(value) is not Tracer:
            return self.ops.full(bool(value), np.dtype(bool))
        self.ops.mark()
        if value.size != 1:
            raise ValueError(
                f"{site} the truth value of an array of {value.size} elements is ambiguous; use np.any or np.all"
            )
        one = value.value if not value.shape else self.ops.builder.reshape(value.value, ())
        return self.ops.converted(one, np.dtype(bool))

    def unroll(self, site: Site) -> Unroll:
        """The request to trace anew with this loop unrolled."""
        return Unroll(site)

    def _too_long(self) -> rounds.TooLong:
        """Instead of minutes of compiling."""
        loop, reason = list(self.unrolled.items())[-1]
        error = rounds.TooLong(
            f"{loop} this cannot be compiled as a loop, and its rounds one by one are more than {MOST_UNROLLED:,} instructions; "
            f"it cannot because of: {reason}"
        )
        error.__cause__ = reason
        return error

    # ---------------------------------------------------------------- constructs

    def if_(self, site: Site, condition: Any, before: State) -> Any:
        """As ``Runtime.if_``."""
        return branches.branches(self, site, condition, before)

    def ternary(self, site: Site, condition: Any) -> Any:
        """As ``Runtime.ternary``."""
        return branches.expression(self, site, condition)

    def and_(self, site: Site, first: Any) -> Any:
        """As ``Runtime.and_``."""
        return branches.short_circuit(self, site, first, is_and=True)

    def or_(self, site: Site, first: Any) -> Any:
        """As ``Runtime.or_``."""
        return branches.short_circuit(self, site, first, is_and=False)

    def while_(self, site: Site, condition: Any, state: State) -> Any:
        """As ``Runtime.while_``."""
        return rounds.while_loop(self, site, condition, state)

    def for_(self, site: Site, iterable: Any, state: State) -> Any:
        """As ``Runtime.for_``."""
        return rounds.for_loop(self, site, iterable, state)

    def not_(self, site: Site, value: Any) -> Any:
        """A Python truth value, as ``not`` gives one."""
        if type(value) is not Tracer or self.ops.known(value) is not None:
            return not value
        self.ops.mark()
        made = self.ops.builder.create("not", [self.truth(site, value)]).result
        return Tracer(self.ops.wrap(made).window, self.ops, weak=bool)

    def contains(self, site: Site, item: Any, container: Any) -> Any:
        """As ``Runtime.contains``."""
        return contains(self.ops, item, container)

    def iterable(self, site: Site, value: Any) -> Iterable[Any]:
        """Python iterates, over an array's first dimension too."""
        self.passing.require_own(site, value)
        return value if not isinstance(value, Walk) else iter(value)

    # --------------------------------------------------------------- other hooks

    def callee(self, site: Site, function: Any) -> Callable[..., Any]:
        """What stands in for functions that Python or NumPy would not call with traced values; the user's own, rewritten."""
        return self.passing.checked(site, function, callees.stand_in(self, site, function))

    def target(self, site: Site, value: Any) -> Any:
        """Notes what objects of outside hold, in a part that may not run, or that runs more than once."""
        if type(value) is not Tracer:
            self.change(site, value)
        return value

    def enter_try(self, site: Site, handled: Callable[[], Sequence[Any]]) -> None:
        """What is raised when the function runs cannot be caught there."""
        self.ops.tries.append((site.line, handled))

    def leave_try(self) -> None:
        """Behind it all is as before."""
        self.ops.tries.pop()

    def text(self, site: Site, parts: Sequence[Part]) -> Any:
        """Put together when the function runs, if a value in it is traced."""
        return texts.formatted(self.ops, parts)

    def modulo(self, site: Site, template: Any, values: Any) -> Any:
        """The same for ``%``."""
        if texts.is_traced(self.ops, (template, values)):
            return texts.made(self.ops, "modulo", template, values)
        return template % values

    def aug_assign(self, site: Site, operator: Callable[[Any, Any], Any], value: Any, operand: Any) -> Any:
        """Python's."""
        if isinstance(value, CONTAINERS):
            self.change(site, value)
        return operator(value, operand)

    def change(self, site: Site, value: Any) -> None:
        """Asked before an object is changed: notes what it holds, in each region around that it was there before."""
        self.entangled.require_alone(value)
        if not self.regions:
            return
        if isinstance(value, (type, ModuleType)):
            self.refuse_change(site, value)
        known = self.regions[-1].known
        if value not in known:
            return
        thing = thing_of(value)
        if thing is None or known.is_all:
            self.refuse_change(site, value)
        for region in reversed(self.regions):
            if value not in region.known:
                break
            region.journal.note(site, value, thing)

    def require_own(self, site: Site, value: Any) -> None:
        """Raise where an object may be changed, unseen, that was there before the innermost part that is taken over."""
        if self.regions and value in self.regions[-1].known:
            self.refuse_change(site, value)

    def refuse_change(self, site: Site, value: Any) -> NoReturn:
        """Of what cannot be undone."""
        raise TracingError(
            f"{site} this changes a {type(value).__name__} that was there before a branch or loop on traced values, which "
            "a compiled function cannot undo or repeat; bind a variable to a new one, or use an array"
        )

    # ---------------------------------------------------------------- exceptions

    def deleted(self, value: Any) -> None:
        """Where it is bound on some paths only that is checked."""
        storages = (each.window.storage for each in tracers_of(value)) if level(value) or type(value) is Tracer else ()
        guarded = next((each for each in storages if each.bound is not None), None)
        if guarded is not None:
            self.ops.mark()
            self.ops.require_bound(guarded)

    def raises(self, site: Site) -> bool:
        """Outside of what is taken over Python raises."""
        return not self.regions

    def raise_(self, site: Site, exception: Any, cause: Any) -> None:
        """The call raises it where the conditions around hold."""
        self.ops.mark()
        made = exception() if isinstance(exception, type) else exception
        if cause is not UNDEFINED:
            made.__cause__ = cause
        texts.raised(self.ops, made)
        self.end_path()

    def end_path(self) -> None:
        """Nothing follows on this path."""
        if not self.regions:
            raise AlwaysRaises
        self.regions[-1].ended = True

    def answers(self, site: Site, error: Exception) -> bool:
        """What the program raises on a path that may not be taken is a check of that path."""
        region = self.regions[-1] if self.regions else None
        if region is None or region.site is not site or not region.may_end:
            return False
        # Of a path inside, which nobody could answer for, it is not known whether it raises.
        if is_of_unknown_path(error) or not is_the_programs(error):
            return False
        if not region.ended:
            record(self, error)
        region.ended = True
        return True

    def no_value(self) -> Any:
        """What goes on to no effect."""
        self.end_path()
        return NEVER

    def enter(self, function: FunctionInfo) -> None:
        """Refuses recursion whose depth is traced: each call would be in a branch of the one before, without an end."""
        self.calls.append(function)
        if len(self.regions) >= DEEPEST and self.calls.count(function) >= DEEPEST:
            raise TracingError(
                f"{function.name} calls itself as often as a traced value says; write a loop, or make that argument static "
                "(static_argnames)"
            )

    def leave(self, function: FunctionInfo, error: BaseException | None) -> None:
        """It is another one's turn."""
        self.calls.pop()
