"""The decorator: traces a function once per signature, compiles it, and calls the compiled form from then on.

    @hlojit.jit
    def normalize(x, axis=-1):
        return (x - x.mean(axis)) / x.std(axis)

Arguments may be arrays, Python numbers, and nested tuples, lists, dictionaries, named tuples and dataclasses of them.
Python numbers are traced as arrays without dimensions (int64, float64, bool).  Arguments that decide shapes or branches
are named in ``static_argnames``: the function is compiled for each of their values.

A call uses the environment in which it is made (``hlojit.ir.environment``), so that ``with using(plugin):`` around it takes
effect, and the function's own ``plugins=`` on top.  Under other plugins the function is compiled again.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, overload

import numpy as np
from hlojit.arrays import Array, NDArray, row_of_now
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.builder import Builder
from hlojit.ir.donation import mark_donated
from hlojit.ir.environment import tables
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import element_type_of
from hlojit.ir.graph import Function, Module, Value
from hlojit.ir.in_flight import InFlight, Role
from hlojit.ir.switches import BACKEND
from hlojit.ir.types import TensorType, tensor
from hlojit.plain_arrays import on_the_host
from hlojit.tracing.callables import name_of, place_of, signature_of
from hlojit.tracing.containers import LEAF, NestingError, Structure, flatten, paths, unflatten
from hlojit.tracing.dispatch import Dispatch
from hlojit.tracing.donated import DonatedParameters, argument_names, argument_numbers
from hlojit.tracing.operations import Operations
from hlojit.tracing.rounding_seed import SeedParameter
from hlojit.tracing.scopes import Scopes
from hlojit.tracing.static_arguments import NONE, StaticArguments, static_arguments
from hlojit.tracing.tracer import Tracer, TracingError

_KEPT_ENVIRONMENTS = 4
"""Of how many earlier sets of plugins a jitted function keeps the compiled forms."""

_Compiled = tuple[Any, Structure, Any]
"""A fast callable, the structure of its results, and the executable that both belong to."""

_compilations = InFlight()
"""By function and signature."""


class JittedFunction:
    """A traced and compiled function; calling it compiles it once per signature."""

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnames: Sequence[str],
        backend: str | Sequence[str] | None,
        options: CompileOptions | Mapping[str, Any] | None,
        plugins: Sequence[Any],
        donate_argnums: Sequence[int] = (),
        donate_argnames: Sequence[str] = (),
        rounding_seed: str | None = None,
    ):
        self.signature = signature_of(function)
        self.function = function
        self._name = name_of(function)
        self.static_argnames = frozenset(static_argnames)
        self.backend = backend if backend is None or isinstance(backend, str) else tuple(backend)
        # What the caller's mapping becomes later is no matter of what was decorated before.
        self.options = copy.deepcopy(options) if isinstance(options, Mapping) else options
        self.plugins = tuple(plugins)
        self._compiled: dict[tuple[Any, ...], _Compiled] = {}
        self._by_types: dict[tuple[Any, ...], _Compiled] = {}
        """The same for arrays on devices that are arguments themselves."""
        unknown = self.static_argnames - set(self.signature.parameters)
        if unknown:
            raise HlojitError(
                f"static_argnames names {', '.join(sorted(unknown))}, but {self._name} has the parameters "
                f"{', '.join(self.signature.parameters)}"
            )
        self._donated = DonatedParameters(
            self._name, self.signature, donate_argnums, donate_argnames, self.static_argnames
        )
        self._seed = (
            SeedParameter(rounding_seed, self._name, self.signature, self.static_argnames)
            if rounding_seed is not None
            else None
        )
        # Not its attributes: they may be called as ours are, and are ours if it wraps another jitted function.
        functools.update_wrapper(self, function, updated=())

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        found = None if named else self._known(arguments)
        if found is not None:
            return _built(found[1], found[0](*arguments))
        dynamic, static = self._bind(arguments, named)
        leaves, structure = self._flat(dynamic)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            # Called from a function that is being traced: part of that graph.
            with registry().using(*self.plugins):
                return self.function(*arguments, **named)
        arrays, compiled, tables_identity = self._prepare(leaves, structure, dynamic, static)
        self._note(arguments, named, compiled, tables_identity)
        return _built(compiled[1], compiled[0](*arrays))

    def execute(self, *arguments: Any, **named: Any) -> Any:
        """Start the function and return at once: like a call, with arrays on a device whose contents are pending.

        See ``Executable.execute``.
        """
        found = None if named else self._known(arguments)
        if found is not None:
            return _built(found[1], found[2].execute(*arguments))
        dynamic, static = self._bind(arguments, named)
        leaves, structure = self._flat(dynamic)
        arrays, compiled, tables_identity = self._prepare(leaves, structure, dynamic, static)
        self._note(arguments, named, compiled, tables_identity)
        return _built(compiled[1], compiled[2].execute(*arrays))

    def lower(self, *arguments: Any, **named: Any) -> Module:
        """The StableHLO module that a call with these arguments traces to (``str`` prints it)."""
        dynamic, static = self._bind(arguments, named)
        arrays = [_as_array(leaf) for leaf in self._flat(dynamic)[0]]
        with registry().load().using(*self.plugins):
            return self._trace(dynamic, static, arrays)[0]

    # ------------------------------------------------------------------ parts

    def _known(self, arguments: tuple[Any, ...]) -> _Compiled | None:
        """What is compiled for arrays on devices, found by their types as they are; None of other arguments."""
        types = []
        for each in arguments:
            if type(each) is not Array or (buffer := each.buffer) is None:
                return None
            types.append(buffer.type)
        return self._by_types.get((*types, self.backend or BACKEND.text(), tables().identity))

    def _note(
        self, arguments: tuple[Any, ...], named: Mapping[str, Any], compiled: _Compiled, tables_identity: str
    ) -> None:
        """Have ``_known`` find it the next time."""
        if named or self.static_argnames or not all(type(each) is Array and each.buffer for each in arguments):
            return
        types = [each.type for each in arguments]
        self._by_types[(*types, self.backend or BACKEND.text(), tables_identity)] = compiled

    def _bind(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, StaticArguments]:
        """Split a call into its traced arguments (args, kwargs) and its static ones."""
        if self._seed is not None:
            named = self._seed.given(arguments, named)
        if not self.static_argnames:
            return (arguments, named), NONE
        bound = self.signature.bind(*arguments, **named)
        bound.apply_defaults()
        values = {name: bound.arguments.pop(name) for name in sorted(self.static_argnames)}
        try:
            static = static_arguments(values)
        except TypeError:
            raise ArgumentError(
                f"{self._name}: static arguments must be hashable, got "
                + ", ".join(f"{name}={value!r}" for name, value in values.items())
            ) from None
        return ((), dict(bound.arguments)), static

    def _flat(self, dynamic: Any) -> tuple[list[Any], Structure]:
        """Leaves and structure of the arguments; raises ``ArgumentError`` that names one which nests too deep."""
        try:
            return flatten(dynamic)
        except NestingError:
            positional, named = dynamic
            for name, value in [*enumerate(positional), *named.items()]:
                try:
                    flatten(value)
                except NestingError as error:
                    raise ArgumentError(f"{self._name}, argument {name}: {error}") from None
            raise

    def _prepare(
        self, leaves: Sequence[Any], structure: Structure, dynamic: Any, static: StaticArguments
    ) -> tuple[list[NDArray | Array], _Compiled, str]:
        """The arrays of a call, what is compiled for them, and for which plugins."""
        arrays = [leaf if type(leaf) is np.ndarray else _as_array(leaf) for leaf in leaves]
        signature = tuple(
            (leaf.shape, leaf.dtype) if type(leaf) is np.ndarray else _signature_of(leaf, array)
            for leaf, array in zip(leaves, arrays)
        )
        # What is registered, not when: under the same plugins the same code serves again.
        backend = self.backend or BACKEND.text()
        key = (structure, static.key, signature, backend, tables().identity)
        found = self._compiled.get(key)
        if found is None:
            # Plugins that the first use of all loads belong to the key.
            registry().load()
            key = (structure, static.key, signature, backend, tables().identity)
            found = self._compile(key, dynamic, static, arrays)
        return arrays, found, key[-1]

    def _compile(
        self, key: tuple[Any, ...], dynamic: Any, static: StaticArguments, arrays: list[NDArray | Array]
    ) -> _Compiled:
        """What is compiled for a key; one thread makes it, under no lock: the function that is traced may do anything."""
        while (found := self._compiled.get(key)) is None:
            with _compilations.turn((self, key)) as role:
                # Looked at again: it may have been made since, and a thread that was at it may have failed.
                if role is not Role.AFTER and key not in self._compiled:
                    made = self._made(key, dynamic, static, arrays)
                    self._forget(key)
                    return self._compiled.setdefault(key, made)
        return found

    def _made(
        self, key: tuple[Any, ...], dynamic: Any, static: StaticArguments, arrays: list[NDArray | Array]
    ) -> _Compiled:
        with fork_gate.inside:
            from hlojit.compiler import compile as compile_module

        with registry().using(*self.plugins):
            scope = tables()
            module, structure = self._trace(dynamic, static, arrays)
            # In the environment of the call, whatever has been registered since it began.
            with scope.activate():
                executable = compile_module(module, backend=key[-2], options=self.options)
        # Without the executable's own indirection: this is called again and again.
        return getattr(executable, "call", executable), structure, executable

    def _forget(self, key: tuple[Any, ...]) -> None:
        """Make room for what is compiled under new plugins: what was compiled under earlier ones is kept for a few."""
        present = list(self._compiled)
        earlier = list(dict.fromkeys(each[-1] for each in present if each[-1] != key[-1]))
        surplus = set(earlier[: max(len(earlier) - _KEPT_ENVIRONMENTS, 0)])
        if surplus:
            self._by_types = {}
        for each in present:
            if each[-1] in surplus:
                self._compiled.pop(each, None)

    def _trace(
        self, dynamic: Any, static: StaticArguments, arrays: Sequence[NDArray | Array]
    ) -> tuple[Module, Structure]:
        leaves, structure = self._flat(dynamic)
        types = [_type_of(array) for array in arrays]
        location = place_of(self.function)
        module = Module(self._name, location=location)
        function = Function("main", types, (), location=location)
        for argument, (name, _) in zip(function.body.arguments, paths(dynamic)):
            argument.name_hint = name
        mark_donated(function, self._donated.leaves(dynamic))
        if self._seed is not None:
            self._seed.mark(function, *dynamic)
        builder = Builder(function.body, location=location)
        scopes = Scopes(tables())
        operations = Dispatch(builder, scopes)
        tracers = [
            Tracer(argument, operations, type(leaf) if type(leaf) in (int, float, complex) else None)
            for argument, leaf in zip(function.body.arguments, leaves)
        ]
        positional, named = unflatten(structure, tracers)
        outer = Operations.in_work.set(operations)
        try:
            if static.values:
                result = fork_gate.outside(self._call_bound, {**named, **static.values})
            else:
                result = fork_gate.outside(self.function, *positional, **named)
        except RecursionError as error:
            raise TracingError(f"{self._name} recurses without an end while it is traced: {error}") from error
        finally:
            operations.is_open = False
            Operations.in_work.reset(outer)
        try:
            _, result_structure = flatten(result)
        except NestingError as error:
            raise ArgumentError(f"{self._name}, result: {error}") from None
        values = [self._result(operations, path, leaf) for path, leaf in paths(result)]
        builder.return_(*values)
        function.result_types[:] = [value.type for value in values]
        function.result_attributes[:] = [{} for _ in values]
        module.add_function(function)
        if scopes.needed is not scopes.outer:
            module.environment = scopes.needed
        return module, result_structure

    def _result(self, operations: Operations, path: str, leaf: Any) -> Value:
        if isinstance(leaf, (str, bytes)) or callable(leaf):
            raise TracingError(
                f"{self._name}: result{path} is {leaf!r} of type {type(leaf).__name__}; a jitted function returns "
                "arrays, numbers, and containers of them"
            )
        return operations.value(leaf)

    def _call_bound(self, values: dict[str, Any]) -> Any:
        bound = self.signature.bind_partial()
        for name in self.signature.parameters:
            if name in values:
                bound.arguments[name] = values[name]
        return self.function(*bound.args, **bound.kwargs)

    def __repr__(self) -> str:
        return f"<hlojit.jit {self._name}: {len(self._compiled)} signatures compiled>"


def _built(structure: Structure, results: Any) -> Any:
    """Results of an executable in the containers in which the function returned them."""
    if structure is LEAF:
        return results
    return unflatten(structure, results if isinstance(results, tuple) else (results,))


def _signature_of(leaf: Any, array: NDArray | Array) -> Hashable:
    # The Python type, too: a Python number takes part in arithmetic in another way than an array.
    kind = array.element_type if isinstance(array, Array) else array.dtype
    return type(leaf), array.shape, kind


def _as_array(leaf: Any) -> NDArray | Array:
    if isinstance(leaf, (np.ndarray, Array)):
        return leaf
    if isinstance(leaf, str) or callable(leaf):
        raise ArgumentError(
            f"{leaf!r} of type {type(leaf).__name__} is not an array; name the argument in static_argnames"
        )
    array = on_the_host(leaf, "an argument of a jitted function")
    if array.dtype == object:
        raise ArgumentError(
            f"{leaf!r} of type {type(leaf).__name__} is not an array; name the argument in static_argnames"
        )
    return array


def _type_of(array: NDArray | Array) -> TensorType:
    if isinstance(array, Array):
        return array.type.with_element_type(row_of_now(array.element_type))
    try:
        return tensor(array.shape, element_type_of(array.dtype))
    except HlojitError as error:
        raise ArgumentError(str(error)) from None


@overload
def jit(
    function: Callable[..., Any],
    /,
    *,
    static_argnames: str | Sequence[str] = (),
    backend: str | Sequence[str] | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    plugins: Sequence[Any] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    rounding_seed: str | None = None,
) -> JittedFunction: ...
@overload
def jit(
    *,
    static_argnames: str | Sequence[str] = (),
    backend: str | Sequence[str] | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    plugins: Sequence[Any] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    rounding_seed: str | None = None,
) -> Callable[[Callable[..., Any]], JittedFunction]: ...
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static_argnames: str | Sequence[str] = (),
    backend: str | Sequence[str] | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    plugins: Sequence[Any] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    rounding_seed: str | None = None,
) -> Any:
    """Compile a NumPy-style function; a decorator with or without arguments.

    ``static_argnames``: parameters that are Python values rather than arrays (compiled once per value).  ``backend`` and
    ``options`` as for ``hlojit.compile``.  ``plugins``: plugins that take part in compiling this function only, on
    top of those of the environment in which it is called.
    ``donate_argnums``, ``donate_argnames``: parameters whose arrays the caller gives up: the program may make its results in
    their memory, and they are read-only with undefined contents afterwards (docs/donation.md).
    ``rounding_seed``: the parameter, an integer, that seeds stochastic roundings; another seed is no new compilation
    (docs/formats.md#rounding).  A jitted function called from another rounds by that one's seed.

    Raises ``TracingError`` where the function does what a compiled one cannot, naming what to use instead.
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    numbers, donated = argument_numbers(donate_argnums), argument_names(donate_argnames)

    def decorate(function: Callable[..., Any]) -> JittedFunction:
        return JittedFunction(function, names, backend, options, plugins, numbers, donated, rounding_seed)

    return decorate if function is None else decorate(function)
