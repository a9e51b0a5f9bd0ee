"""A function becomes a program: it is called once with traced arrays, and what it did is a module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from hlojit.arrays import Array, NDArray
from hlojit.ir.builder import Builder
from hlojit.ir.donation import mark_donated
from hlojit.ir.environment import tables
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.graph import Function, Module, Value
from hlojit.ir.types import TensorType
from hlojit.tracing import texts
from hlojit.tracing.arrays.layouts import contiguous, outer_first, strides_of
from hlojit.tracing.arrays.storage import Storage, View
from hlojit.tracing.calls.arguments import is_array_like, type_of
from hlojit.tracing.calls.callables import name_of, place_of
from hlojit.tracing.calls.containers import Contents, Structure, changed, contents, flatten, paths, unflatten
from hlojit.tracing.calls.descriptions import ShapeDtypeStruct
from hlojit.tracing.calls.donated import DonatedParameters
from hlojit.tracing.calls.guards import meanings
from hlojit.tracing.calls.outcomes import Form, Outcome, Write, form_of
from hlojit.tracing.calls.pytrees import ContainerError, advice, shortened
from hlojit.tracing.calls.rounding_seed import SeedParameter
from hlojit.tracing.calls.specializing import numbers_of
from hlojit.tracing.calls.static_arguments import StaticArguments
from hlojit.tracing.dispatch import Dispatch
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow import TracedRuntime, Unroll, numpy_objects
from hlojit.tracing.flow.failures import is_left_to_the_call
from hlojit.tracing.flow.never import AlwaysRaises
from hlojit.tracing.flow.passing import Passing
from hlojit.tracing.flow.refusals import require_silent
from hlojit.tracing.operations import Operations
from hlojit.tracing.random_states import RandomStates
from hlojit.tracing.rewriting import Site, running, substitute
from hlojit.tracing.scopes import Scopes
from hlojit.tracing.tracer import Tracer


@final
@dataclass(frozen=True)
class Traced:
    """A function as a program, for one signature."""

    module: Module
    structure: Structure
    outcome: Outcome
    asked_layouts: frozenset[int]


@final
class Recorder:
    """Traces one function, for any signature."""

    def __init__(
        self,
        function: Callable[..., Any],
        signature: inspect.Signature,
        donated: DonatedParameters,
        seed: SeedParameter | None,
        *,
        check_indices: bool,
    ):
        self.function = function
        self.name = name_of(function)
        self.signature = signature
        self.donated = donated
        self.seed = seed
        self.check_indices = check_indices

    def flat(self, dynamic: Any) -> tuple[list[Any], Structure]:
        """Leaves and structure of the arguments; raises ``ArgumentError`` that names one which cannot be taken apart."""
        try:
            return flatten(dynamic)
        except ContainerError:
            for name, value in self._named(dynamic):
                try:
                    flatten(value)
                except ContainerError as error:
                    raise ArgumentError(f"{self.name}, argument {name}: {error}") from None
            raise

    def named_leaves(self, dynamic: Any) -> list[tuple[str, Any]]:
        """The arrays of a call, each with how messages call it."""
        return [each for name, value in self._named(dynamic) for each in paths(value, name)]

    def _named(self, dynamic: Any) -> list[tuple[str, Any]]:
        """The arguments of a call, each with how messages call it."""
        positional, named = dynamic
        parameters = [
            each.name
            for each in self.signature.parameters.values()
            if each.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        ]
        names = [*parameters, *(f"[{number}]" for number in range(len(parameters), len(positional)))]
        return [*zip(names, positional), *named.items()]

    def trace(
        self,
        dynamic: Any,
        static: StaticArguments,
        arrays: Sequence[NDArray | Array],
        same: tuple[int, ...] | None = None,
    ) -> Traced:
        """``same`` as ``aliases`` gives it.  Raises ``NeedsValues`` where parameters must be static."""
        unrolled: dict[Site, BaseException | None] = {}
        while True:
            try:
                return self._trace(dynamic, static, arrays, same, unrolled)
            except Unroll as loop:
                unrolled[loop.site] = loop.__cause__

    def _trace(
        self,
        dynamic: Any,
        static: StaticArguments,
        arrays: Sequence[NDArray | Array],
        same: tuple[int, ...] | None,
        unrolled: Mapping[Site, BaseException | None],
    ) -> Traced:
        leaves, structure = self.flat(dynamic)
        names = [name for name, _ in self.named_leaves(dynamic)]
        types = [_type_of(name, array) for name, array in zip(names, arrays, strict=True)]
        location = place_of(self.function)
        module = Module(self.name, location=location)
        function = Function("main", types, (), location=location)
        for argument, (name, _) in zip(function.body.arguments, paths(dynamic)):
            argument.name_hint = name
        donated = self.donated.leaves(dynamic)
        mark_donated(function, donated)
        if self.seed is not None:
            self.seed.mark(function, *dynamic)
        builder = Builder(function.body, location=location)
        scopes = Scopes(tables())
        operations = Dispatch(builder, scopes)
        operations.checks_indices = self.check_indices
        operations.scalar_parameters = numbers_of(self.signature, dynamic, function.body.arguments)
        storages = _storages(function.body.arguments, leaves, names, same)
        tracers = [
            _tracer_of(argument, leaf, storage, operations)
            for argument, leaf, storage in zip(function.body.arguments, leaves, storages)
        ]
        given = unflatten(structure, tracers)
        before = [each for name, value in self._named(given) for each in contents(value, name)]
        try:
            result = self._run(operations, given, static, unrolled)
            self._require_unchanged(before)
            try:
                _, result_structure = flatten(result)
            except ContainerError as error:
                raise ArgumentError(f"{self.name}, result: {error}") from None
            values, forms = self._results(operations, result)
        finally:
            operations.is_open = False
        written = {id(storage): number for number, storage in reversed(list(enumerate(storages))) if storage.version}
        writes = tuple(Write(number, names[number], number in donated) for number in sorted(written.values()))
        values += [storages[write.leaf].value for write in writes]
        if operations.checks.made:
            values.append(operations.checks.code(builder))
        builder.return_(*values)
        function.result_types[:] = [value.type for value in values]
        function.result_attributes[:] = [{} for _ in values]
        module.add_function(function)
        if scopes.needed is not scopes.outer:
            module.environment = scopes.needed
        outcome = Outcome(forms, writes, tuple(operations.checks.made))
        return Traced(module, result_structure, outcome, frozenset(operations.asked_layouts))

    def _run(
        self, operations: Operations, given: Any, static: StaticArguments, unrolled: Mapping[Site, BaseException | None]
    ) -> Any:
        """Call the function, rewritten, with what is traced."""
        require_silent(np.geterr(), "np.seterr")
        outer = Operations.in_work.set(operations)
        states = RandomStates(self.function, static.values)
        runtime = TracedRuntime(operations, unrolled, Passing(meanings(self.function)))
        try:
            with running(runtime):
                result = fork_gate.outside(self._call, operations, given, static)
            if operations.refused is not None:
                raise operations.refused
            states.require_unused()
            self._require_kept(operations)
            return result
        except AlwaysRaises:
            return None
        except RecursionError as error:
            raise TracingError(f"{self.name} recurses without an end while it is traced: {error}") from error
        except Exception as error:
            if isinstance(error, HlojitError) and runtime.whiles:
                # Perhaps of a number that Python would have known behind a loop.
                raise Unroll(runtime.whiles[0]) from error
            if operations.refused is not None and error is not operations.refused:
                raise operations.refused from None
            if texts.is_traced(operations, error.args):
                # It raises whatever the arguments are, with their values.
                texts.raised(operations, error)
            elif not is_left_to_the_call(runtime, error):
                raise
            return None
        finally:
            Operations.in_work.reset(outer)

    def _require_kept(self, operations: Operations) -> None:
        """Refuse a function that leaves traced values in variables and objects of outside: they mean nothing there."""
        for name, value in meanings(self.function):
            if _holds(operations, value) or _holds(operations, _attributes(value)):
                raise TracingError(
                    f"{self.name} leaves a traced value in {name!r}, which is there before and after the call; return the value, "
                    "and store it outside"
                )

    def _call(self, operations: Operations, given: Any, static: StaticArguments) -> Any:
        positional, named = given
        function = numpy_objects.stand_in(operations, self.function) or substitute(self.function)
        if not static.values:
            return function(*positional, **named)
        values = {**named, **static.values}
        bound = self.signature.bind_partial()
        for name in self.signature.parameters:
            if name in values:
                bound.arguments[name] = values[name]
        return function(*bound.args, **bound.kwargs)

    def _require_unchanged(self, before: Sequence[tuple[str, Any, Contents]]) -> None:
        """Refuse a function that changes a list, dictionary or object of its caller: it was given another one."""
        for name, thing, held in before:
            found = changed(thing, held)
            if found is None:
                continue
            ways = [
                f"copy it first ({name} = {type(thing).__name__}({name})) and return it"
                if isinstance(thing, (list, dict))
                else "return the new value and set it outside"
            ]
            if isinstance(held.get(found), Tracer):
                ways.append(f"write into the array ({name}{found}[:] = ...)")
            raise TracingError(
                f"{self.name} changes a list, dictionary or object that is an argument ({name}{found}): a compiled function "
                f"cannot change the caller's; {', or '.join(ways)}"
            )

    def _results(self, operations: Operations, result: Any) -> tuple[list[Value], tuple[Form, ...]]:
        """What the program returns, and how the caller gets it."""
        values, forms = [], []
        for path, leaf in paths(result):
            order = _order(leaf)
            form = form_of(leaf, None if order is None else tuple(int(each) for each in np.argsort(order)))
            forms.append(form)
            if form.is_constant:
                continue
            value = self._result(operations, path, leaf)
            if order is not None:
                value = operations.builder.create("transpose", [value], attributes={"permutation": order}).result
            values.append(value)
        return values, tuple(forms)

    def _result(self, operations: Operations, path: str, leaf: Any) -> Value:
        if type(leaf) is texts.Text:
            raise TracingError(
                f"{self.name}: result{path} is a text with traced values; return the values, and format them outside"
            )
        if isinstance(leaf, (str, bytes)) or callable(leaf):
            raise TracingError(
                f"{self.name}: result{path} is {leaf!r} of type {type(leaf).__name__}; a jitted function returns "
                "arrays, numbers, and containers of them"
            )
        if not isinstance(leaf, (Tracer, Array)) and not is_array_like(leaf):
            what = advice(leaf, path, is_result=True)
            raise TracingError(f"{self.name}: result{path} is {shortened(leaf)} of type {type(leaf).__name__}, {what}")
        try:
            return operations.value(leaf)
        except TracingError as error:
            raise TracingError(f"{self.name}: result{path}: {error}") from None


def _holds(operations: Operations, value: Any, levels: int = 3) -> bool:
    """Whether something of this trace is in it, as far as one looks."""
    if type(value) is Tracer:
        return value.context is operations
    if not isinstance(value, (list, tuple, dict, set)) or not levels:
        return False
    return any(_holds(operations, each, levels - 1) for each in (value.values() if isinstance(value, dict) else value))


def _attributes(value: Any) -> Any:
    """What an object of the user's keeps."""
    if type(value).__module__.partition(".")[0] in ("builtins", "hlojit", "numpy"):
        return ()
    return getattr(value, "__dict__", ())


def _type_of(name: str, array: NDArray | Array) -> TensorType:
    try:
        return type_of(array)
    except ArgumentError as error:
        raise ArgumentError(f"argument {name}: {error}") from None


def _storages(
    values: Sequence[Value], leaves: Sequence[Any], names: Sequence[str], same: tuple[int, ...] | None
) -> list[Storage]:
    """The storages of the arguments; one for those that are the same array."""
    found: list[Storage] = []
    for number, (value, leaf, name) in enumerate(zip(values, leaves, names, strict=True)):
        if same is not None and same[number] != number:
            found.append(found[same[number]])
            continue
        locked = None
        if not isinstance(leaf, (np.ndarray, ShapeDtypeStruct)):
            locked = (
                f"argument {name} is of type {type(leaf).__name__}, which a compiled function cannot write; "
                f"write into a copy: {name} = {name}.copy()"
            )
        found.append(Storage(value, number, locked))
    return found


def _tracer_of(argument: Value, leaf: Any, storage: Storage, operations: Dispatch) -> Tracer:
    strides = strides_of(leaf) if isinstance(leaf, np.ndarray) else contiguous(argument.tensor_type.shape)
    weak = type(leaf) if type(leaf) in (bool, int, float, complex) else None
    return Tracer(View.of(storage, strides), operations, is_scalar=isinstance(leaf, np.generic), weak=weak)


def _order(leaf: Any) -> tuple[int, ...] | None:
    """The order in which the elements of a result lie in memory, if it is not that of its dimensions."""
    if not isinstance(leaf, Tracer) or leaf.is_scalar or leaf.window.strides is None or leaf.element_type.dtype is None:
        return None
    order = outer_first(leaf.shape, leaf.window.strides)
    return None if order is None or order == tuple(range(leaf.ndim)) else order
