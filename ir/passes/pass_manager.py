"""Passes and the pipeline that runs them.

A pass is a frozen dataclass whose fields are its options; it takes a valid module and leaves a valid one::

    @dataclass(frozen=True)
    class DropBarriers(Pass):
        name: ClassVar[str] = "drop-barriers"
        phase: ClassVar[str] = "simplify"
        keep_first: bool = False

        def run(self, module: Module) -> bool:
            ...

    parse_pipeline("canonicalize,drop-barriers{keep_first=true},dce").run(module)

Within a pipeline passes run phase by phase; inside a phase in the order that their ``after``/``before`` constraints
demand, where those leave a choice hlojit's own before plugins', and then by name (``pass_order``).  ``PassPipeline`` keeps an
order that was written by hand; ``order_passes`` computes one.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, final

import numpy as np
from hlojit.ir.collection import collection_paused
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import (
    HlojitError,
    PluginError,
    UnsupportedError,
    VerificationError,
    short_repr,
)
from hlojit.ir.graph import Module
from hlojit.ir.passes.graph_state import graph_state, is_same
from hlojit.ir.passes.pass_order import Circle, order_of_phase
from hlojit.ir.time_limit import call_within
from hlojit.ir.vendor_calls import call_vendor
from hlojit.ir.vendor_places import raised_at, told

PHASES: Final = ("import", "legalize", "simplify", "before-fusion", "fusion", "after-fusion", "before-codegen")
"""The phases in the order in which they run."""

NUMERIC_EFFECTS: Final = ("exact", "permitted", "approximates")
"""What a pass may say that it does to numbers."""

NO_PACKAGES: Final[Mapping[str, str]] = MappingProxyType({})

VerifyMode = Literal["third-party", "always", "never"]


@dataclass(frozen=True)
class Pass(ABC):
    """One step from module to module.

    ``phase``, ``before`` and ``after`` place it in a default pipeline; ``before``/``after`` name other passes of the
    same phase (a name that is not in the pipeline is ignored).  A plugin's pass without
    them comes behind hlojit's own.  ``targets`` names the back ends it is for (empty: all).
    ``needs_fusions`` says that the pass makes or reads fusions: it is left out where a back end takes the graph as it is
    before fusion.  ``open_sizes`` says that it also takes programs that are compiled once for all sizes, with types such as
    ``tensor<?xf32>``; where a plugin's pass does not, such a program is compiled for each combination of shapes.

    ``numeric_effect`` says what the pass does to numbers, as rewrite rules do: ``exact`` (the same bits), ``permitted`` (a
    freedom that the specification leaves, such as the order of a sum) or ``approximates``; then ``error_bound`` says by how much
    results may differ, relative to the largest finite number of an array.  ``hlojit.testing`` holds the pass to it, and takes
    one that says nothing for exact.
    """

    name: ClassVar[str]
    phase: ClassVar[str] = "simplify"
    before: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    targets: ClassVar[tuple[str, ...]] = ()
    needs_fusions: ClassVar[bool] = False
    open_sizes: ClassVar[bool] = False
    numeric_effect: ClassVar[str] = ""
    error_bound: ClassVar[float] = 0.0
    only_after_changes: ClassVar[bool] = False
    """Of hlojit's own: the pass is left out where no plugin's pass has changed anything in its phase."""

    @abstractmethod
    def run(self, module: Module) -> bool:
        """Rewrite ``module`` in place and return whether anything changed."""

    def in_phase(self, phase: str) -> Pass:
        """The same pass in another phase: a default pipeline may run a pass twice."""
        copy = dataclasses.replace(self)
        object.__setattr__(copy, "phase", phase)
        return copy

    def __str__(self) -> str:
        options = {field.name: getattr(self, field.name) for field in option_fields(type(self))}
        changed = [
            f"{field.name}={_option_text(options[field.name])}"
            for field in option_fields(type(self))
            if options[field.name] != field.default
        ]
        return f"{self.name}{{{' '.join(changed)}}}" if changed else self.name


GIVEN: Final = MappingProxyType({"given": True})
"""Metadata of a field that only the program that makes the pass can set: no option of the command line, not printed."""


def option_fields(kind: type[Pass]) -> list[dataclasses.Field[Any]]:
    """The fields of a pass that are its options."""
    return [field for field in dataclasses.fields(kind) if "given" not in field.metadata]


@dataclass(frozen=True, slots=True)
class PassEvent:
    """What the callback between passes is told: the pass that just ran, what it did and how long it took."""

    index: int
    pass_: Pass
    module: Module
    changed: bool
    seconds: float


PassCallback = Callable[[PassEvent], None]


@dataclass(frozen=True)
class PassPipeline:
    """Passes in the order in which they run, and by name who brought those that are not hlojit's own: ``acme 0.1.0``."""

    passes: tuple[Pass, ...]
    packages: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        module: Module,
        *,
        verify: VerifyMode = "third-party",
        callback: PassCallback | None = None,
        time_limit: float | None = None,
    ) -> bool:
        """Run all passes on ``module`` in place and return whether any changed it.

        ``verify`` says after which passes the module is verified.  A third-party pass that raises, or that leaves an
        invalid module behind, ends in a ``PluginError`` that names the pass and its package; so does one that has not
        ended after ``time_limit`` seconds.  After an error the module is to be thrown away.
        ``callback`` is called after every pass (dumping, timing and progress all hang on it).
        """
        run = _Run(module, self.packages, verify, time_limit)
        with scope_for(module.environment).activate(), collection_paused():
            for index, pass_ in enumerate(self.passes):
                start = time.perf_counter()
                changed = run.one(pass_)
                if callback is not None:
                    callback(PassEvent(index, pass_, module, changed, time.perf_counter() - start))
        return run.changed

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))


def order_passes(passes: Iterable[Pass], packages: Mapping[str, str] = NO_PACKAGES) -> PassPipeline:
    """Order ``passes`` by phase, and within a phase by their constraints; where those leave a choice, ``packages`` come last.

    ``packages`` are those of the passes that are not hlojit's own, by the passes' names.
    """
    by_phase: dict[str, list[Pass]] = {phase: [] for phase in PHASES}
    for pass_ in passes:
        if pass_.phase not in by_phase:
            raise HlojitError(
                f"pass {pass_.name!r}{_from(packages, pass_)} names the phase {pass_.phase!r}; phases are {', '.join(PHASES)}"
            )
        by_phase[pass_.phase].append(pass_)
    ordered = (pass_ for members in by_phase.values() for pass_ in _order_phase(members, packages))
    return PassPipeline(tuple(ordered), packages)


def _option_text(value: Any) -> str:
    if isinstance(value, tuple):
        return "x".join(map(_option_text, value))
    if isinstance(value, enum.Enum):
        return value.name
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _order_phase(members: Sequence[Pass], packages: Mapping[str, str]) -> list[Pass]:
    """By the constraints, hlojit's own first, then by name (then as given)."""
    try:
        return [members[position] for position in order_of_phase(members, packages.__contains__)]
    except Circle as circle:
        stuck = sorted(f"{members[p].name}{_from(packages, members[p])}" for p in circle.positions)
        raise HlojitError(f"the before/after constraints of these passes form a circle: {', '.join(stuck)}") from None


@final
class _Run:
    """One run of a pipeline over a module."""

    def __init__(self, module: Module, packages: Mapping[str, str], verify: VerifyMode, time_limit: float | None):
        self.module = module
        self.packages = packages
        self.verify = verify
        self.time_limit = time_limit
        self.changed = False
        self._state: Sequence[object] | None = None
        """The graph as it is, as long as nothing has run that may have changed it."""
        self._foreign_changes: set[str] = set()
        """Phases in which a plugin's pass has changed something."""

    def one(self, pass_: Pass) -> bool:
        """Run a pass, verify what it leaves, and return whether it changed anything."""
        package = self.packages.get(pass_.name, "")
        if pass_.only_after_changes and pass_.phase not in self._foreign_changes:
            return False
        if package:
            changed = self._foreign(pass_, package)
        else:
            self._state = None
            changed = pass_.run(self.module)
        if self.verify == "always" or (self.verify == "third-party" and package and changed):
            _verify_after(pass_, self.module, package)
        self.changed |= changed
        return changed

    def _foreign(self, pass_: Pass, package: str) -> bool:
        """Run a plugin's pass; what it says of changes is compared with what there are."""
        before = graph_state(self.module) if self._state is None else self._state
        functions = set(self.module.functions)
        said = _run_foreign(pass_, self.module, package, self.time_limit)
        if "main" in functions and "main" not in self.module.functions:
            raise PluginError(
                f"pass {pass_.name!r} ({package}) left an invalid program behind: its function @main is gone"
            )
        self._state = graph_state(self.module)
        changed = said or not is_same(before, self._state)
        if changed:
            self._foreign_changes.add(pass_.phase)
        return changed


def _run_foreign(pass_: Pass, module: Module, package: str, time_limit: float | None) -> bool:
    def what() -> str:
        return f"pass {pass_.name!r} ({package}): run"

    try:
        changed = call_vendor(what, call_within, time_limit, what, pass_.run, module)
    except UnsupportedError as error:
        raise error.about(f"pass {pass_.name!r} ({package}): the program") from error
    except HlojitError as error:
        if str(error).startswith(what()):
            raise
        if isinstance(error, PluginError):
            # A rule of an op, or another function of a plugin's, that the pass came to: the error names it already.
            raise PluginError(f"{error}\n  in {what()}{raised_at(error, pass_.run)}") from error
        # Of what the pass builds, by a builder of hlojit's, or compiles.
        raise PluginError(f"{what()} raised {told(error)}") from error
    if changed is not None and not isinstance(changed, (int, np.integer, np.bool_)):
        raise PluginError(
            f"{what()} returned {short_repr(changed)}; it rewrites the module in place and returns whether anything changed, "
            "True or False"
        )
    return bool(changed)


def _verify_after(pass_: Pass, module: Module, package: str) -> None:
    from hlojit.ir.verifier import verify

    try:
        verify(module)
    except VerificationError as error:
        kind = PluginError if package else HlojitError
        raise kind(
            f"pass {pass_.name!r}{f' ({package})' if package else ''} left an invalid program behind: {error}"
        ) from error


def _from(packages: Mapping[str, str], pass_: Pass) -> str:
    package = packages.get(pass_.name)
    return f" ({package})" if package else ""
