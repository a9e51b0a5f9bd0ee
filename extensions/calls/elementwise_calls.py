"""Elementwise custom calls: scalar functions that become pointwise ops.

    softplus = ElementwiseCall("acme.softplus", function=lambda x: math.log1p(math.exp(x)))
    %1 = stablehlo.custom_call @acme.softplus(%0) : (tensor<8xf32>) -> tensor<8xf32>

becomes one instruction of the pointwise op ``hlojit.call.acme.softplus``, whose rule calls the function: its LLVM code, made
by numba, is linked into the kernel and inlined into the fused, vectorized loop around it.  The op's record stands in the
table of ops as long as the plugin is registered, so that bound programs are printed, read, interpreted and cloned like others.

The entries of a call's ``backend_config`` are parameters that the function takes by keyword (``lambda x, slope=0.01: ...``).  A
function that looks at types or at the whole configuration is made by a *factory*::

    def leaky(call):
        slope = call.config["slope"]
        return lambda x: x if x > 0 else slope * x

    ElementwiseCall("acme.leaky_relu", factory=leaky)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

import numpy as np
from hlojit.extensions.calls.custom_calls import CustomCall, config_attribute, plain_value
from hlojit.extensions.functions.keywords import with_keywords
from hlojit.extensions.functions.native_scalars import NativeScalar, native_scalar
from hlojit.extensions.functions.numba_bridge import STANDS_FOR, call_scalar, result_kind
from hlojit.ir.attributes import Attribute
from hlojit.ir.errors import HlojitError, PluginError, UnsupportedError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import ElementType, IntegerType, element_type
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.named_fields import named_fields
from hlojit.ir.ops.attribute_kinds import GENERIC, I32, STRING
from hlojit.ir.ops.definition import AttributeSpec, OpDefinition, Operand, Pointwise, PointwiseCall, ReferenceCall, op
from hlojit.ir.scalar.numpy_builder import NumpyBuilder, called
from hlojit.ir.types import DYNAMIC, TensorType, Type
from hlojit.ir.vendor_places import told

_LONGEST_CONFIG = 200
"""Characters of a configuration in a message."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """What the factory of an elementwise call knows of one call; all of it is known when the call is compiled.

    ``config`` is the call's ``backend_config`` (or ``mhlo.backend_config``) in plain Python: dictionaries, strings,
    numbers, tuples and, for dense elements, NumPy arrays; None where the call has none.
    """

    target: str
    config: Any
    api_version: int
    operand_types: tuple[ElementType, ...]
    result_type: ElementType
    """Of the first result."""
    result_types: tuple[ElementType, ...] = ()


@named_fields
@dataclass(frozen=True, slots=True)
class ElementwiseCall(CustomCall):
    """A scalar function of the elements at one index, numba-compilable, that cannot raise.

    All operands and results have the same shape.  Scalars come in compute form: ``float`` for float formats, ``int``
    for integers, ``bool``.  For several results it returns a tuple.  Either ``function`` is the function for every call: the
    entries of a call's configuration, a dictionary, are parameters that it takes by keyword.  It may be a C function of
    ``ctypes`` whose ``argtypes`` and ``restype`` are set, which is trusted native.  Or ``factory`` takes the ``CallSite`` of a
    call and returns the function for it.
    """

    is_computation: ClassVar[bool] = True
    function: Callable[..., Any] | None = field(default=None, kw_only=True)
    factory: Callable[[CallSite], Callable[..., Any]] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if (self.function is None) == (self.factory is None):
            raise PluginError(f"custom call target {self.target!r}: an ElementwiseCall has either function or factory")
        given = self.factory if self.function is None else self.function
        what = "factory" if self.function is None else "function"
        if isinstance(given, np.ufunc):
            raise PluginError(
                f"custom call target {self.target!r}: {what} is the ufunc {given.__name__}, which works on whole arrays; give a "
                f"function of scalars, for example lambda x: np.{given.__name__}(x)"
            )
        if not callable(given):
            raise PluginError(f"custom call target {self.target!r}: {what} is {given!r}, which is not a function")
        native = native_scalar(self.function, self.target)
        if native is not None:
            object.__setattr__(self, "function", native)

    @property
    def trust(self) -> str:
        return "trusted native" if isinstance(self.function, NativeScalar) else "checked"

    def records(self) -> Sequence[OpDefinition]:
        """The pointwise op that calls of the target become."""
        return (elementwise_record(self),)

    def refine(self, instruction: Instruction) -> Sequence[Type] | None:
        """The result has what any of the operands knows of the shape."""
        ruled = self.types_of(instruction)
        if ruled is not None:
            return ruled
        types = [type for type in instruction.operand_types if isinstance(type, TensorType)]
        if not types or any(type.rank != types[0].rank for type in types):
            return None
        extents = zip(*(type.shape for type in types))
        found = types[0].with_shape([next((e for e in each if e != DYNAMIC), DYNAMIC) for each in extents])
        return [found] * len(instruction.results)

    def replace(self, builder: Any, instruction: Instruction) -> Sequence[Value]:
        """An instruction of the pointwise op for each result."""
        return bind_elementwise(self, builder, instruction)


def record_name(target: str) -> str:
    """The name of the op that elementwise calls of a target become."""
    return f"hlojit.call.{target}"


def bind_elementwise(call: ElementwiseCall, builder: Any, instruction: Instruction) -> Sequence[Value]:
    """An instruction of the call's op for each result; the configuration becomes their attribute."""
    _check_elementwise(call, instruction)
    attributes: dict[str, Any] = {}
    config = config_attribute(instruction.attributes, instruction.discardable)
    if config is not None:
        attributes["config"] = config
    version = instruction.attributes.get("api_version", 1)
    if call.factory is not None and version != 1:
        attributes["api_version"] = version
    if len(instruction.results) > 1:
        attributes["results"] = ",".join(str(result.tensor_type.element_type) for result in instruction.results)
    bound = []
    for number, result in enumerate(instruction.results):
        given = {**attributes, "number": number} if number else attributes
        made = Instruction(
            op(record_name(call.target)), instruction.operands, [result.type], given, location=instruction.location
        )
        try:
            scalar_function(call, given, *_element_types(made))  # what is wrong with it shows here
        except PluginError as error:
            raise PluginError(
                f"{error}{'' if call.factory is not None else f'{chr(10)}  at {instruction.location}'}"
            ) from error
        bound.append(builder.insert(made).result)
    return bound


def _check_elementwise(call: ElementwiseCall, instruction: Instruction) -> None:
    types = (*instruction.operand_types, *instruction.result_types)
    shapes = {kind.shape for kind in types if isinstance(kind, TensorType)}
    if not instruction.results or len(shapes) != 1 or not all(isinstance(kind, TensorType) for kind in types):
        raise PluginError(
            f"custom call target {call.target!r} is elementwise: operands and results must have one shape, "
            f"got {', '.join(map(str, types))} at {instruction.location}"
        )
    if instruction.attributes.get("called_computations"):
        raise PluginError(
            f"custom call target {call.target!r} is elementwise: a scalar function cannot run the called_computations "
            f"of the call at {instruction.location}"
        )


def _element_types(instruction: Instruction) -> tuple[tuple[Any, ...], Any]:
    operands = tuple(operand.tensor_type.element_type for operand in instruction.operands)
    return operands, instruction.result.tensor_type.element_type


_made: ContextVar[dict[Any, tuple[ElementwiseCall, Callable[..., Any]]] | None] = ContextVar("functions", default=None)
"""Functions by factory and call site, of the compilation that goes on; with the calls, whose addresses are in the keys."""


@contextmanager
def one_compilation() -> Iterator[None]:
    """A factory is asked once for each call site until the end; afterwards it may answer something else.

    Not longer: what it makes depends on more than the call site, and what it reads may have changed.
    """
    token = _made.set({})
    try:
        yield
    finally:
        _made.reset(token)


def scalar_function(
    call: ElementwiseCall, attributes: Mapping[str, Any], operand_types: tuple[Any, ...], result_type: Any
) -> Callable[..., Any]:
    """The scalar function for a bound call; during a compilation a factory is asked once for every different call site."""
    config, version = attributes.get("config"), attributes.get("api_version", 1)
    names = attributes.get("results", "")
    if call.function is None:
        results = tuple(map(element_type, names.split(","))) if names else (result_type,)
        function = _asked(call, config, version, operand_types, results)
    else:
        function = call.function
        if isinstance(config, Attribute):
            function = _with_config(call, plain_value(config), len(operand_types))
    if not names:
        return function
    return picked(function, attributes.get("number", 0), names.count(",") + 1, len(operand_types))


def _with_config(call: ElementwiseCall, config: Any, count: int) -> Callable[..., Any]:
    """The function with the entries of a configuration as its parameters."""
    if not isinstance(config, dict):
        raise PluginError(
            f"{call.user}: the call has a backend_config, {config!r}, which its function does not look at; register the target "
            "with ElementwiseCall(..., factory=...)"
        )
    try:
        return cast(Callable[..., Any], with_keywords(call.function, count, config, call.user))
    except PluginError as error:
        raise PluginError(f"{error} (of the call's backend_config; a factory= gets all of it)") from None


_PICK: Final = """
def make(function, number, count):
    def pick({parameters}):
        values = function({parameters})
        if len(values) != count:
            raise ValueError("a call with several results returns a tuple of as many numbers")
        return values[number]
    return pick
"""
"""numba wants to know how many parameters there are."""


def picked(function: Callable[..., Any], number: int, count: int, parameters: int) -> Callable[..., Any]:
    """A function that returns one of the ``count`` numbers that another returns as a tuple."""
    scope: dict[str, Any] = {"__name__": __name__}
    exec(_PICK.format(parameters=", ".join(f"x{place}" for place in range(parameters))), scope)
    pick: Callable[..., Any] = scope["make"](function, number, count)
    python = getattr(function, "py_func", function)
    pick.__qualname__ = getattr(python, "__qualname__", pick.__qualname__)
    setattr(pick, STANDS_FOR, python)
    return pick


def _asked(
    call: ElementwiseCall, config: Any, version: int, operand_types: tuple[Any, ...], result_types: tuple[Any, ...]
) -> Callable[..., Any]:
    known = _made.get()
    if known is None:
        return _ask(call, config, version, operand_types, result_types)
    key = (id(call), config, version, operand_types, result_types)
    if key not in known:
        known[key] = call, _ask(call, config, version, operand_types, result_types)
    return known[key][1]


def _ask(
    call: ElementwiseCall, config: Any, version: int, operand_types: tuple[Any, ...], result_types: tuple[Any, ...]
) -> Callable[..., Any]:
    """The function that a factory makes for a call site."""
    assert call.factory is not None
    plain = plain_value(config) if isinstance(config, Attribute) else None
    site = CallSite(call.target, plain, version, operand_types, result_types[0], result_types)
    try:
        function = fork_gate.outside(call.factory, site)
    except UnsupportedError as error:
        raise error.about(call.user) from error
    except Exception as error:
        raise PluginError(
            f"custom call target {call.target!r}: the factory failed for {_short(site)}: {told(error, call.factory)}"
        ) from error
    if not callable(function):
        raise PluginError(
            f"custom call target {call.target!r}: the factory returned {function!r} for {_short(site)}; it returns "
            "the scalar function for that call"
        )
    return function


def _short(site: CallSite) -> str:
    """A call site in a message."""
    config = repr(site.config)
    config = config if len(config) <= _LONGEST_CONFIG else f"{config[:_LONGEST_CONFIG]}..."
    return f"({', '.join(map(str, site.operand_types))}) -> {site.result_type}, config {config}"


def elementwise_record(call: ElementwiseCall) -> OpDefinition:
    """The op record of an elementwise custom call."""
    user = call.user

    def rule(builder: Any, record: PointwiseCall, *scalars: Any) -> Any:
        function = scalar_function(call, record.attributes, record.operand_types, record.result_type)
        return call_scalar(builder, function, scalars, record.operand_types, record.result_type, user)

    def reference(record: ReferenceCall, *arrays: Any) -> Any:
        operand_types, result_type = _element_types(record.instruction)
        function = scalar_function(call, record.attributes, operand_types, result_type)
        python: Callable[..., Any] = getattr(function, "py_func", function)
        try:
            results = np.frompyfunc(called(python), len(arrays), 1)(*arrays)
        except Exception as error:
            raise HlojitError(
                f"custom call target {call.target!r}: its function raised {told(error, python)}"
            ) from error
        # Without operands there is one number for all elements.
        shape = record.instruction.result.tensor_type.shape if not arrays else np.shape(results)
        flat = np.asarray(results, dtype=object).ravel().tolist()
        declared = NumpyBuilder().returned(flat, result_kind(result_type), user).array
        if isinstance(result_type, IntegerType):
            declared = declared.view(result_type.storage)
        return np.broadcast_to(declared.reshape(np.shape(results)), shape)

    return OpDefinition(
        record_name(call.target),
        operands=(Operand("operands", variadic=True),),
        attributes=(
            AttributeSpec("config", GENERIC, optional=True),
            AttributeSpec("api_version", I32, optional=True, default=1),
            AttributeSpec("results", STRING, optional=True, default=""),
            AttributeSpec("number", I32, optional=True, default=0),
        ),
        reference=reference,
        lowering=Pointwise(rule),
        summary="a plugin's scalar function",
    )
