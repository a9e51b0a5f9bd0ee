"""Jitted functions: what a call of one means, and what is compiled for it.

A call uses the environment in which it is made (``hlojit.ir.environment``), so that ``with using(plugin):`` around it takes
effect, and the function's own ``plugins=`` on top.  Under other plugins the function is compiled again.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np
from hlojit.arrays import Array, NDArray
from hlojit.extensions import registry
from hlojit.ir.environment import tables
from hlojit.ir.errors import ArgumentError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.in_flight import InFlight, Role
from hlojit.ir.switches import BACKEND, DISPATCH
from hlojit.runtime.dispatcher import Dispatched, install, is_possible
from hlojit.tracing.calls.arguments import as_arrays, signature_of_array, without_layout
from hlojit.tracing.calls.bound_functions import BoundFunction
from hlojit.tracing.calls.callables import name_of, signature_of
from hlojit.tracing.calls.containers import Structure, is_made_by_users, static_values, unflatten
from hlojit.tracing.calls.descriptions import ShapeDtypeStruct, described
from hlojit.tracing.calls.donated import DonatedParameters
from hlojit.tracing.calls.entries import entry_of
from hlojit.tracing.calls.forms import CompiledForm
from hlojit.tracing.calls.guards import Guards
from hlojit.tracing.calls.outcomes import aliases
from hlojit.tracing.calls.parameters import static_names
from hlojit.tracing.calls.retracing import MOST_KEPT, warn_of_changes, warn_of_renewals
from hlojit.tracing.calls.rounding_seed import SeedParameter
from hlojit.tracing.calls.seen import Seen
from hlojit.tracing.calls.settings import Settings
from hlojit.tracing.calls.specializing import NeedsValues, never_arrays
from hlojit.tracing.calls.static_arguments import NONE, StaticArguments, static_arguments
from hlojit.tracing.recorder import Recorder
from hlojit.tracing.references import Referenced
from hlojit.tracing.reports import report, reported
from hlojit.tracing.rewriting import substitute
from hlojit.tracing.stages import Lowered, Signature
from hlojit.tracing.tracer import Tracer

_KEPT_STATES = 4
"""Of how many earlier states of what a function reads of outside of itself the compiled forms are kept."""
_KEPT_ENVIRONMENTS = 4
"""Of how many earlier sets of plugins a jitted function keeps the compiled forms."""
_MOST_ENTRIES = 8
"""Kinds of calls that native code looks at, one after the other, the last one that Python answered first."""
_ALWAYS_REMEMBERED, _REMEMBERED_EVERY = 32, 64
"""Of the calls that Python answers so many become entries; then one of so many, as there are more kinds than entries."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """Arguments, and what of them is traced and what static."""

    arguments: tuple[Any, ...]
    named: dict[str, Any]
    dynamic: Any
    static: StaticArguments
    leaves: list[Any]
    """Of ``dynamic``."""
    structure: Structure


_Result = TypeVar("_Result")
_functions: dict[int, weakref.ref[JittedFunction]] = {}
"""All of them, by identity."""
_compilations = InFlight()
"""By function and signature."""


class JittedFunction(Dispatched, Referenced):
    """A traced and compiled function; calling it compiles it once per signature."""

    def __init__(self, function: Callable[..., Any], settings: Settings):
        self.signature = signature_of(function)
        self.function = function
        self.settings = settings
        self._name = name_of(function)
        self.static_argnames = static_names(
            settings.static_argnums, settings.static_argnames, self._name, self.signature
        )
        """The static parameters, those that ``static_argnums`` numbers too."""
        self._static = self.static_argnames
        """These, and those that have become static since (``hlojit.tracing.calls.specializing``)."""
        self.backend, self.options, self.plugins = settings.backend, settings.options, settings.plugins
        self._compiled: dict[tuple[Any, ...], CompiledForm] = {}
        self._guards: Guards | None = None
        self._entries = ()
        self._calls_in_python = 0
        self._by_types: dict[tuple[Any, ...], CompiledForm] = {}
        """The same for arrays on devices that are arguments themselves."""
        self._earlier: tuple[
            tuple[Guards, dict[tuple[Any, ...], CompiledForm], dict[tuple[Any, ...], CompiledForm]], ...
        ] = ()
        """What was compiled while what the function reads of outside of itself was otherwise."""
        self._renewals = 0
        self._donated = DonatedParameters(
            self._name, self.signature, settings.donate_argnums, settings.donate_argnames, self.static_argnames
        )
        seed = settings.rounding_seed
        self._seed = SeedParameter(seed, self._name, self.signature, self.static_argnames) if seed is not None else None
        self._recorder = Recorder(
            function, self.signature, self._donated, self._seed, check_indices=settings.check_indices
        )
        # Not its attributes: they may be called as ours are, and are ours if it wraps another jitted function.
        functools.update_wrapper(self, function, updated=())
        number = id(self)
        _functions[number] = weakref.ref(self, lambda _: _functions.pop(number, None))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundFunction(self, instance)

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of values that code compiled by it has."""
        from hlojit.tracing.numba_callers import numba_type

        return numba_type(self)

    def _made_by(self) -> tuple[Any, ...]:
        return JittedFunction, (self.function, self.settings)

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        # Native code comes in its place (``dispatcher.install``), and calls this where it knows no better.
        try:
            self._renew()
            found = None if named else self._known(arguments)
            if found is not None:
                return found.results(found.call(*arguments), arguments)
            call = self._call_of(arguments, named)
            if any(isinstance(leaf, Tracer) for leaf in call.leaves):
                # Called from a function that is being traced: part of that graph.
                with registry().using(*self.plugins):
                    return substitute(self.function)(*arguments, **named)
            guards, static = self._guards, self._static
            leaves, arrays, compiled, key = self._prepared(call)
            self._note(arguments, named, compiled, key[-1])
            result = compiled.results(compiled.call(*arrays), leaves)
            self._remember(call, compiled, key, guards, static)
            return result
        except Exception as error:
            report(error)
            raise

    def execute(self, /, *arguments: Any, **named: Any) -> Any:
        """Start the function and return at once: like a call, with arrays on a device whose contents are pending.

        See ``Executable.execute``.
        """
        try:
            self._renew()
            found = None if named else self._known(arguments)
            if found is not None:
                return self._started(found, arguments, arguments)
            leaves, arrays, compiled, key = self._prepared(self._call_of(arguments, named))
            self._note(arguments, named, compiled, key[-1])
            return self._started(compiled, arrays, leaves)
        except Exception as error:
            report(error)
            raise

    def _started(self, compiled: CompiledForm, arrays: Sequence[Any], leaves: Sequence[Any]) -> Any:
        outcome = compiled.outcome
        if outcome is not None and outcome.writes:
            raise ArgumentError(
                f"{self._name} writes its argument {outcome.writes[0].name}, and execute() returns before that is done; call it"
            )
        made = compiled.executable.execute(*arrays)
        if outcome is not None and outcome.checks:
            return compiled.results(made, leaves)
        return unflatten(compiled.structure, made if isinstance(made, tuple) else (made,))

    @reported
    def lower(self, /, *arguments: Any, **named: Any) -> Lowered:
        """The StableHLO module that a call with these arguments traces to (``str`` prints it), with JAX's further stages.

        Arguments are arrays and numbers, or anything with ``shape`` and ``dtype`` (``hlojit.ShapeDtypeStruct``).
        """

        def trace(call: _Call) -> Lowered:
            leaves = tuple(map(described, call.leaves))
            dynamic = unflatten(call.structure, leaves)
            names = tuple(name for name, _ in self._recorder.named_leaves(dynamic))
            arrays = as_arrays(leaves, lambda: names, (ShapeDtypeStruct,))
            with registry().load().using(*self.plugins):
                traced = self._recorder.trace(dynamic, call.static, arrays)
            signature = Signature.of(self._name, self.signature, call.structure, leaves, names, call.static, self._seed)
            return Lowered.of(traced, signature, self.backend, self.options)

        return self._specialized(self._call_of(arguments, named), trace)

    def eval_shape(self, /, *arguments: Any, **named: Any) -> Any:
        """The shapes and element types of the results, as ``ShapeDtypeStruct``; arguments as for ``lower``."""
        return self.lower(*arguments, **named).out_info

    def is_under(self, guards: Guards) -> bool:
        """Whether that is what its last call found of what it reads of outside of itself."""
        return self._guards is guards

    def compiled_for(self, arguments: Sequence[Any]) -> tuple[Guards | None, CompiledForm | None]:
        """What answers a call with these arguments, and what it was compiled under; None where some of them are static."""
        self._renew()
        guards = self._guards
        call = self._call_of(tuple(arguments), {})
        _, _, compiled, _ = self._prepared(call)
        # Another thread may have found names bound again.
        is_of_these = self._guards is guards and not self._static and self._seed is None
        return guards, compiled if is_of_these else None

    def clear_cache(self) -> None:
        """Forget what is compiled; calls that other threads are making end as they would."""
        self._guards = None
        self._compiled, self._by_types, self._entries, self._earlier = {}, {}, (), ()

    @staticmethod
    def all() -> list[JittedFunction]:
        """Every jitted function that there is."""
        return [each for reference in _functions.copy().values() if (each := reference()) is not None]

    # ------------------------------------------------------------------ parts

    def _renew(self) -> None:
        """Leave what was compiled where something that the function reads of outside of itself is not what it was."""
        guards, earlier = self._guards, self._earlier
        changed = guards.changed() if guards is not None else None
        if guards is not None and changed is None:
            return
        if guards is not None and changed is not None:
            states = ((guards, self._compiled, self._by_types), *earlier)
            found = next((each for each in earlier if each[0].hold()), None)
            self._earlier = tuple(each for each in states if each is not found and not each[0].broken_by)[:_KEPT_STATES]
            if found is None:
                self._renewals += 1
                warn_of_renewals(self.function, self._name, self._renewals, changed)
        else:
            found = None
        # Looked at before it is traced: what changes meanwhile is seen by the next call.
        guards, self._compiled, self._by_types = found or (Guards(self.function), {}, {})
        self._entries = ()
        self._guards = guards

    def _known(self, arguments: tuple[Any, ...]) -> CompiledForm | None:
        """What is compiled for arrays on devices, found by their types as they are; None of other arguments."""
        types = []
        for each in arguments:
            if type(each) is not Array or (buffer := each.buffer) is None:
                return None
            types.append(buffer.type)
        return self._by_types.get((*types, self.backend or BACKEND.text(), tables().identity))

    def _note(
        self, arguments: tuple[Any, ...], named: Mapping[str, Any], compiled: CompiledForm, tables_identity: str
    ) -> None:
        """Have ``_known`` find it the next time."""
        if named or self._static or not all(type(each) is Array and each.buffer for each in arguments):
            return
        types = [each.type for each in arguments]
        self._by_types[(*types, self.backend or BACKEND.text(), tables_identity)] = compiled

    def _bind(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, StaticArguments]:
        """Split a call into its traced arguments (args, kwargs) and its static ones."""
        if self._seed is not None:
            named = self._seed.given(arguments, named)
        if not self._static:
            return (arguments, named), NONE
        bound = self.signature.bind(*arguments, **named)
        bound.apply_defaults()
        values = {name: bound.arguments.pop(name) for name in sorted(self._static)}
        return ((), dict(bound.arguments)), static_arguments(values, self._name)

    def _call_of(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> _Call:
        try:
            dynamic, static = self._bind(arguments, named)
        except ArgumentError:
            if self._static == self.static_argnames:
                raise
            # Static for what earlier calls gave (a text), and not for what this one gives.
            self._static, self._entries = self.static_argnames, ()
            dynamic, static = self._bind(arguments, named)
        return _Call(arguments, named, dynamic, static, *self._recorder.flat(dynamic))

    def _specialized(self, call: _Call, use: Callable[[_Call], _Result]) -> _Result:
        """What comes of a call; parameters become static without which nothing does."""
        while True:
            try:
                return use(call)
            except NeedsValues as need:
                needed = need.parameters
            except ArgumentError:
                needed = never_arrays(self.signature, call.dynamic)
                if not needed:
                    raise
            self._static |= needed
            self._entries = ()
            call = self._call_of(call.arguments, call.named)

    def _remember(
        self, call: _Call, compiled: CompiledForm, key: tuple[Any, ...], guards: Guards | None, static: frozenset[str]
    ) -> None:
        """Have native code answer the next call like this one."""
        self._calls_in_python += 1
        is_rare = self._calls_in_python > _ALWAYS_REMEMBERED and self._calls_in_python % _REMEMBERED_EVERY
        if is_rare or guards is None or guards.broken_by or self._seed is not None or static != self._static:
            return
        if DISPATCH.choice(("native", "python")) != "native" or not is_possible():
            return
        seen = Seen(
            call.arguments, call.named, call.leaves, call.structure, self.signature, static, (guards, compiled.guards),
            self.backend is not None, compiled.call, compiled.executable, compiled.outcome, compiled.structure, compiled.results,
        )  # fmt: skip
        made = entry_of(seen)
        if made is None or key[-2:] != (self.backend or BACKEND.text(), tables().identity):
            return
        install(JittedFunction, report)
        self._entries = (made, *self._entries[: _MOST_ENTRIES - 1])
        if self._guards is not guards or self._static != static:
            # Another thread found names bound again.
            self._entries = ()

    def _prepared(self, call: _Call) -> tuple[Sequence[Any], list[NDArray | Array], CompiledForm, tuple[Any, ...]]:
        """The leaves and arrays of a call, what is compiled for them, and by which key."""
        return self._specialized(
            call, lambda each: (each.leaves, *self._prepare(each.leaves, each.structure, each.dynamic, each.static))
        )

    def _prepare(
        self, leaves: Sequence[Any], structure: Structure, dynamic: Any, static: StaticArguments
    ) -> tuple[list[NDArray | Array], CompiledForm, tuple[Any, ...]]:
        """The arrays of a call, what is compiled for them, and by which key."""
        arrays = self._arrays(leaves, dynamic)
        signature = tuple(map(signature_of_array, leaves, arrays))
        # What is registered, not when: under the same plugins the same code serves again.
        backend = self.backend or BACKEND.text()
        key = (structure, static.key, signature, None, backend, tables().identity)
        found = self._current(self._compiled, key)
        if found is None:
            # Plugins that the first use of all loads belong to the key.
            registry().load()
            kept, dynamic, own = self._as_seen(leaves, structure, dynamic)
            key = (*key[:2], tuple(map(signature_of_array, kept, own)), *key[3:-1], tables().identity)
            found = self._compile(key, dynamic, static, own)
        if found.outcome is not None and found.outcome.writes:
            found = self._writing(found, key, dynamic, static, leaves)
        return arrays, found, key

    def _as_seen(
        self, leaves: Sequence[Any], structure: Structure, dynamic: Any
    ) -> tuple[list[Any], Any, list[NDArray | Array]]:
        """Leaves, arguments and arrays whose kinds stay while they are traced, whatever another thread does to containers and
        to shapes of arrays.
        """
        kept = [leaf.view() if type(leaf) is np.ndarray else leaf for leaf in leaves]
        if not is_made_by_users(structure):
            dynamic = unflatten(structure, kept)
        return kept, dynamic, self._arrays(kept, dynamic)

    def _arrays(self, leaves: Sequence[Any], dynamic: Any) -> list[NDArray | Array]:
        return as_arrays(leaves, lambda: [name for name, _ in self._recorder.named_leaves(dynamic)])

    def _writing(
        self,
        found: CompiledForm,
        key: tuple[Any, ...],
        dynamic: Any,
        static: StaticArguments,
        leaves: Sequence[Any],
    ) -> CompiledForm:
        """What is compiled for a call that writes arguments: another form where two of them are one array."""
        outcome = found.outcome
        assert outcome is not None
        _, dynamic, arrays = self._as_seen(leaves, key[0], dynamic)
        same = aliases(outcome.writes, leaves, [name for name, _ in self._recorder.named_leaves(dynamic)])
        if same is not None:
            found = self._compile((*key[:3], same, *key[4:]), dynamic, static, arrays)
            outcome = found.outcome
            assert outcome is not None
        outcome.require_writable(leaves)
        return found

    def _compile(
        self, key: tuple[Any, ...], dynamic: Any, static: StaticArguments, arrays: list[NDArray | Array]
    ) -> CompiledForm:
        """What is compiled for a key; one thread makes it, under no lock: the function that is traced may do anything."""
        # Of a thread that finds names bound again meanwhile it is another one.
        table = self._compiled
        while (found := self._current(table, key)) is None:
            with _compilations.turn((self, key)) as role:
                # Looked at again: it may have been made since, and a thread that was at it may have failed.
                if role is not Role.AFTER and key not in table:
                    general = (*key[:2], tuple(map(without_layout, key[2])), *key[3:])
                    made = self._current(table, general)
                    if made is None:
                        made, asked = self._made(key, dynamic, static, arrays)
                        self._forget(table, key)
                        if not asked:
                            table.setdefault(general, made)
                    found = table.setdefault(key, made)
                    names = [name for name, _ in self._recorder.named_leaves(dynamic)]
                    warn_of_changes(self.function, self._name, list(table), names)
                    return found
        return found

    def _current(self, table: dict[tuple[Any, ...], CompiledForm], key: tuple[Any, ...]) -> CompiledForm | None:
        """What is compiled for a key, unless the static arguments hold something else now."""
        found = table.get(key)
        changed = found.guards.changed() if found is not None and found.guards is not None else None
        if changed is None:
            return found
        table.pop(key, None)
        self._renewals += 1
        warn_of_renewals(self.function, self._name, self._renewals, changed)
        return None

    def _made(
        self, key: tuple[Any, ...], dynamic: Any, static: StaticArguments, arrays: list[NDArray | Array]
    ) -> tuple[CompiledForm, frozenset[int]]:
        """What is compiled, and the arguments whose layout something was decided by."""
        with fork_gate.inside:
            from hlojit.compiler import compile as compile_module

        held = {**static_values(key[0]), **static.values}
        of_static = Guards(self.function, held) if held else None
        seen = [each for each in (self._guards, of_static) if each is not None and not each.is_empty]
        with registry().using(*self.plugins):
            scope = tables()
            traced = self._recorder.trace(dynamic, static, arrays, key[3])
            for guards in seen:
                guards.settle()
            # In the environment of the call, whatever has been registered since it began.
            with scope.activate():
                executable = compile_module(traced.module, backend=key[-2], options=self.options)
        kept = of_static if of_static in seen else None
        return CompiledForm.of(executable, traced.structure, traced.outcome, kept), traced.asked_layouts

    def _forget(self, table: dict[tuple[Any, ...], CompiledForm], key: tuple[Any, ...]) -> None:
        """Make room for what is compiled under new plugins: what was compiled under earlier ones is kept for a few."""
        present = list(table)
        for each in present[: max(len(present) - MOST_KEPT, 0)]:
            table.pop(each, None)
        earlier = list(dict.fromkeys(each[-1] for each in present if each[-1] != key[-1]))
        surplus = set(earlier[: max(len(earlier) - _KEPT_ENVIRONMENTS, 0)])
        if surplus:
            self._by_types = {}
        for each in present:
            if each[-1] in surplus:
                table.pop(each, None)

    def __repr__(self) -> str:
        return f"<hlojit.jit {self._name}: {len({id(each) for each in self._compiled.values()})} signatures compiled>"
