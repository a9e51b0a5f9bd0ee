"""A jitted function in stages: ``f.lower(x)`` is traced, ``.compile()`` is compiled for these arguments and no others.

lowered = f.lower(hlojit.ShapeDtypeStruct((4,), "f8"))
print(lowered.as_text())            # StableHLO
compiled = lowered.compile()
compiled(np.ones(4)), compiled.cost_analysis()["flops"]
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import numpy as np
from hlojit.arrays import Array
from hlojit.costs import MemoryAnalysis, cost_of, memory_of
from hlojit.extensions import CompileOptions
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import ArgumentError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.graph import Module
from hlojit.ir.text.printer import print_module
from hlojit.tracing.arrays.layouts import strides_of
from hlojit.tracing.calls.arguments import as_arrays, is_array_like
from hlojit.tracing.calls.containers import Structure, flatten, is_parted, unflatten
from hlojit.tracing.calls.descriptions import ShapeDtypeStruct
from hlojit.tracing.calls.forms import CompiledForm
from hlojit.tracing.calls.outcomes import Form, Outcome, aliases
from hlojit.tracing.calls.rounding_seed import SeedParameter
from hlojit.tracing.calls.static_arguments import StaticArguments, keyed
from hlojit.tracing.errors import TracingError
from hlojit.tracing.recorder import Traced
from hlojit.tracing.reports import reported
from hlojit.tracing.tracer import Tracer

_NUMBERS: Final = (bool, int, float, complex)


@final
@dataclass(frozen=True)
class Signature:
    """The arguments that a function was lowered for."""

    name: str
    parameters: inspect.Signature
    structure: Structure
    """Of (positional, named) arguments that are traced."""
    leaves: tuple[Any, ...]
    """Descriptions of arrays, and examples of numbers."""
    layouts: tuple[Any, ...]
    """How arrays lay that do not lie by rows; None of others."""
    names: tuple[str, ...]
    static: StaticArguments
    seed: SeedParameter | None

    @classmethod
    def of(
        cls,
        name: str,
        parameters: inspect.Signature,
        structure: Structure,
        leaves: Sequence[Any],
        names: tuple[str, ...],
        static: StaticArguments,
        seed: SeedParameter | None,
    ) -> Signature:
        """Without the arrays themselves."""
        kept = tuple(
            leaf if type(leaf) in _NUMBERS or isinstance(leaf, np.generic) else _without_elements(leaf)
            for leaf in leaves
        )
        return cls(name, parameters, structure, kept, tuple(map(layout_of, leaves)), names, static, seed)

    def checked(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """The leaves of a call; raises ``ArgumentError`` that names what differs."""
        if self.seed is not None:
            named = self.seed.given(arguments, named)
        leaves, structure = flatten(self._traced(arguments, named))
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            raise TracingError(
                f"{self.name} is compiled, and called from a function that is traced: call the function itself there"
            )
        if structure != self.structure:
            said = ", ".join(map(_said, self.names, self.leaves))
            raise ArgumentError(
                f"{self.name} was compiled for ({said}), and is called with other containers or keywords: give arguments as they "
                "were given to lower()"
            )
        for name, expected, leaf in zip(self.names, self.leaves, leaves):
            if _kind(leaf) != _kind(expected):
                raise ArgumentError(
                    f"{self.name}, argument {name}: compiled for {_shown(expected)}, and got {_shown(leaf)}; lower and compile "
                    "it for that, or call the jitted function, which does so itself"
                )
        return leaves

    def _traced(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The arguments that are traced; static ones are left out, or are the same as they were."""
        if not self.static.values:
            return arguments, named
        parameters = self.parameters.parameters
        others = [each for name, each in parameters.items() if name not in self.static.values]
        try:
            bound = inspect.Signature(others).bind(*arguments, **named)
        except TypeError:
            bound = self.parameters.bind(*arguments, **named)
        bound.apply_defaults()
        for name, value in self.static.values.items():
            given = bound.arguments.pop(name, value)
            if keyed(given) != keyed(value):
                raise ArgumentError(
                    f"{self.name}: compiled for the static argument {name}={value!r}, and got {given!r}"
                )
        return (), dict(bound.arguments)


def _without_elements(leaf: Any) -> Any:
    if type(leaf) in _NUMBERS or isinstance(leaf, (np.generic, ShapeDtypeStruct)):
        return leaf
    shape, kind = _kind(leaf)
    return ShapeDtypeStruct(shape, kind)


def _kind(leaf: Any) -> Any:
    """What two arguments that one program takes have in common."""
    if isinstance(leaf, np.generic) or type(leaf) in _NUMBERS:
        return type(leaf)
    if isinstance(leaf, Array):
        return leaf.shape, leaf.element_type.dtype or leaf.element_type
    if isinstance(leaf, (np.ndarray, ShapeDtypeStruct)):
        return tuple(leaf.shape), leaf.dtype
    return _kind(_viewed(leaf)) if is_array_like(leaf) else type(leaf)


def _viewed(leaf: Any) -> Any:
    """What another library's array is."""
    (array,) = as_arrays([leaf], lambda: ["x"])
    return array


def layout_of(array: Any) -> Any:
    """How an array lies in memory; None if by rows."""
    return None if not isinstance(array, np.ndarray) or array.flags.c_contiguous else strides_of(array)


def _shown(leaf: Any) -> str:
    if type(leaf) in _NUMBERS:
        return f"a Python {type(leaf).__name__}"
    if isinstance(leaf, np.generic):
        return f"a NumPy number of type {type(leaf).__name__}"
    if not hasattr(leaf, "shape"):
        return f"a value of type {type(leaf).__name__}"
    return f"an array of shape {tuple(leaf.shape)} and type {getattr(leaf, 'dtype', type(leaf).__name__)}"


def _said(name: str, leaf: Any) -> str:
    return f"{name}: {_shown(leaf)}"


# ------------------------------------------------------------------------------------------------------------------ stages


class Lowered(Module):
    """A function as a StableHLO module, for arguments of these types: the module itself, and the stages that JAX has."""

    _signature: Signature
    _traced: Traced
    _backend: str | Sequence[str] | None
    _options: CompileOptions | Mapping[str, Any] | None

    @classmethod
    def of(
        cls,
        traced: Traced,
        signature: Signature,
        backend: str | Sequence[str] | None,
        options: CompileOptions | Mapping[str, Any] | None,
    ) -> Lowered:
        """What a trace made."""
        made = cls.__new__(cls)
        made.__dict__.update(traced.module.__dict__)
        for function in made.functions.values():
            function.module = made
        made._signature, made._traced, made._backend, made._options = signature, traced, backend, options
        return made

    @property
    def args_info(self) -> Any:
        """(positional, named) arguments that are traced: ``ShapeDtypeStruct`` in the place of arrays, and numbers."""
        return unflatten(self._signature.structure, self._signature.leaves)

    @property
    def out_info(self) -> Any:
        """The results, with ``ShapeDtypeStruct`` in the place of arrays and numbers."""
        types = iter(self.main.result_types)
        leaves = [_description(form, None if form.is_constant else next(types)) for form in self._traced.outcome.forms]
        structure = self._traced.structure
        if _holds_parted(structure):
            raise ArgumentError(
                f"{self._signature.name} returns an array whose length depends on values (a mask's): there is no shape of it "
                "before it runs"
            )
        return unflatten(structure, leaves)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program as StableHLO; ``debug_info`` adds the places in the source."""
        _check_dialect(dialect)
        return _text(self, debug_info)

    def cost_analysis(self) -> dict[str, float]:
        """``{"flops", "bytes accessed"}`` of the program as it is written, before anything is fused."""
        return cost_of(self)

    @reported
    def compile(
        self,
        *,
        backend: str | Sequence[str] | None = None,
        options: CompileOptions | Mapping[str, Any] | None = None,
    ) -> Compiled:
        """Compile for these arguments; ``backend`` and ``options`` in the place of those that the function was jitted with."""
        with fork_gate.inside:
            from hlojit.compiler import compile as compile_module
        chosen, settings = backend or self._backend, self._options if options is None else options
        executable = compile_module(self, backend=chosen, options=settings)
        form = CompiledForm.of(executable, self._traced.structure, self._traced.outcome)
        return Compiled(self, form, chosen, settings)


@final
class Compiled:
    """A function compiled for arguments of certain types: called with these, in the same containers."""

    def __init__(
        self,
        lowered: Lowered,
        form: CompiledForm,
        backend: str | Sequence[str] | None,
        options: CompileOptions | Mapping[str, Any] | None,
    ):
        self._lowered = lowered
        self._form = form
        self._backend = backend
        self._options = options

    @reported
    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        signature, form = self._lowered._signature, self._form
        leaves = signature.checked(arguments, named)
        arrays = as_arrays(leaves, lambda: signature.names)
        if form.outcome is not None and form.outcome.writes:
            self._check_writes(form.outcome, leaves)
        self._check_layouts(arrays)
        return form.results(form.call(*arrays), leaves)

    def _check_writes(self, outcome: Outcome, leaves: Sequence[Any]) -> None:
        """Arguments that are written are NumPy's arrays, which nothing else shares."""
        signature = self._lowered._signature
        for write in outcome.writes:
            if not isinstance(leaves[write.leaf], np.ndarray):
                kind = type(leaves[write.leaf]).__name__
                raise ArgumentError(
                    f"{signature.name} writes its argument {write.name}: pass a NumPy array, not a {kind}"
                )
        if aliases(outcome.writes, leaves, signature.names) is not None:
            raise ArgumentError(
                f"{signature.name} writes its argument {outcome.writes[0].name}, and two arguments are one array: pass a copy of "
                "one of them, or call the jitted function"
            )
        outcome.require_writable(leaves)

    def _check_layouts(self, arrays: Sequence[Any]) -> None:
        """Where the trace asked how an argument lies in memory, it lies as it did then."""
        signature = self._lowered._signature
        for number in self._lowered._traced.asked_layouts:
            if layout_of(arrays[number]) != signature.layouts[number]:
                raise ArgumentError(
                    f"{signature.name}, argument {signature.names[number]}: what the function does depends on how this array "
                    "lies in memory (a view or a copy), and it lay in another way when it was lowered: pass "
                    "np.ascontiguousarray(...) to both, or call the jitted function"
                )

    @property
    def executable(self) -> Any:
        """The program's ``Executable``, which takes and returns arrays without containers."""
        return self._form.executable

    @property
    def args_info(self) -> Any:
        """As of ``Lowered``."""
        return self._lowered.args_info

    @property
    def out_info(self) -> Any:
        """As of ``Lowered``."""
        return self._lowered.out_info

    @cached_property
    def _optimized(self) -> Module:
        with fork_gate.inside:
            from hlojit.lowered import lower
        if not isinstance(self._backend, (str, type(None))):
            raise ArgumentError(
                f"{self._lowered._signature.name} is compiled for several back ends, {', '.join(self._backend)}: there is no one "
                "program; compile it for one of them, .compile(backend=...)"
            )
        return lower(self._lowered, backend=self._backend, options=self._options)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program as the back end got it: optimized and fused."""
        _check_dialect(dialect)
        return _text(self._optimized, debug_info)

    def cost_analysis(self) -> dict[str, float]:
        """``{"flops", "bytes accessed"}`` of the optimized program: what is inside of a fusion stays out of memory."""
        return cost_of(self._optimized)

    def memory_analysis(self) -> MemoryAnalysis | None:
        """What a call takes of memory; None of programs whose back end does not say."""
        return memory_of(self.executable)

    def __repr__(self) -> str:
        signature = self._lowered._signature
        return f"<hlojit compiled {signature.name}({', '.join(map(_said, signature.names, signature.leaves))})>"


def _description(form: Form, type_: Any) -> ShapeDtypeStruct:
    if form.is_constant:
        return ShapeDtypeStruct((), np.asarray(form.constant).dtype)
    shape = type_.shape if form.order is None else tuple(type_.shape[each] for each in form.order)
    return ShapeDtypeStruct(shape, type_.element_type.dtype or type_.element_type)


def _holds_parted(structure: Structure) -> bool:
    if isinstance(structure, str):
        return False
    return is_parted(structure) or any(map(_holds_parted, structure[2]))


def _text(module: Module, debug_info: bool) -> str:
    with scope_for(module.environment).activate():
        return print_module(module, locations=debug_info)


def _check_dialect(dialect: str | None) -> None:
    if dialect not in (None, "stablehlo"):
        raise ArgumentError(f"as_text(dialect={dialect!r}): programs are text in one dialect, 'stablehlo'")
