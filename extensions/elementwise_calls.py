"""Elementwise custom calls: scalar functions that become pointwise ops.

    softplus = ElementwiseCall("acme.softplus", function=lambda x: math.log1p(math.exp(x)))
    %1 = stablehlo.custom_call @acme.softplus(%0) : (tensor<8xf32>) -> tensor<8xf32>

becomes one instruction of the pointwise op ``hlojit.call.acme.softplus``, whose rule calls the function: its LLVM code, made
by numba, is linked into the kernel and inlined into the fused, vectorized loop around it.  The op's record stands in the
table of ops as long as the plugin is registered, so that bound programs are printed, read, interpreted and cloned like others.

A call that has a ``backend_config`` needs a function that looks at it, made by a *factory*::

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
from typing import Any

import numpy as np
from hlojit.extensions.custom_calls import CustomCall, config_attribute, plain_value
from hlojit.extensions.numba_bridge import call_scalar, result_kind
from hlojit.ir.attributes import Attribute
from hlojit.ir.errors import HlojitError, PluginError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import ElementType, IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.attribute_kinds import GENERIC, I32
from hlojit.ir.ops.definition import AttributeSpec, OpDefinition, Operand, Pointwise, PointwiseCall, ReferenceCall, op
from hlojit.ir.scalar.numpy_builder import NumpyBuilder, called
from hlojit.ir.types import DYNAMIC, TensorType, Type

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


@dataclass(frozen=True, slots=True)
class ElementwiseCall(CustomCall):
    """A scalar function of the elements at one index, numba-compilable, that cannot raise.

    All operands and the result have the same shape.  Scalars come in compute form: ``float`` for float formats, ``int``
    for integers, ``bool``.  Either ``function`` is the function for every call; a call with a configuration is then
    refused.  Or ``factory`` takes the ``CallSite`` of a call and returns the function for it.
    """

    function: Callable[..., Any] | None = field(default=None, kw_only=True)
    factory: Callable[[CallSite], Callable[..., Any]] | None = field(default=None, kw_only=True)

    @property
    def user(self) -> str:
        """How messages name what uses the function."""
        return f"custom call target {self.target!r}"

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

    def records(self) -> Sequence[OpDefinition]:
        """The pointwise op that calls of the target become."""
        return (elementwise_record(self),)

    def refine(self, instruction: Instruction) -> Sequence[Type] | None:
        """The result has what any of the operands knows of the shape."""
        types = [type for type in instruction.operand_types if isinstance(type, TensorType)]
        if not types or any(type.rank != types[0].rank for type in types):
            return None
        extents = zip(*(type.shape for type in types))
        return [types[0].with_shape([next((e for e in each if e != DYNAMIC), DYNAMIC) for each in extents])]

    def replace(self, builder: Any, instruction: Instruction) -> Sequence[Value]:
        """One instruction of the pointwise op."""
        return bind_elementwise(self, builder, instruction)


def record_name(target: str) -> str:
    """The name of the op that elementwise calls of a target become."""
    return f"hlojit.call.{target}"


def bind_elementwise(call: ElementwiseCall, builder: Any, instruction: Instruction) -> Sequence[Value]:
    """One instruction of the call's op; the configuration becomes its attribute."""
    _check_elementwise(call, instruction)
    attributes: dict[str, Any] = {}
    if call.factory is not None:
        config = config_attribute(instruction.attributes, instruction.discardable)
        if config is not None:
            attributes["config"] = config
        version = instruction.attributes.get("api_version", 1)
        if version != 1:
            attributes["api_version"] = version
        scalar_function(call, attributes, *_element_types(instruction))  # what is wrong with it shows here
    bound = Instruction(
        op(record_name(call.target)),
        instruction.operands,
        instruction.result_types,
        attributes,
        location=instruction.location,
    )
    return list(builder.insert(bound).results)


def _check_elementwise(call: ElementwiseCall, instruction: Instruction) -> None:
    types = (*instruction.operand_types, *instruction.result_types)
    shapes = {kind.shape for kind in types if isinstance(kind, TensorType)}
    if len(instruction.results) != 1 or len(shapes) != 1 or not all(isinstance(kind, TensorType) for kind in types):
        raise PluginError(
            f"custom call target {call.target!r} is elementwise: operands and the one result must have one shape, "
            f"got {', '.join(map(str, types))} at {instruction.location}"
        )
    if instruction.attributes.get("called_computations"):
        raise PluginError(
            f"custom call target {call.target!r} is elementwise: a scalar function cannot run the called_computations "
            f"of the call at {instruction.location}"
        )
    config = config_attribute(instruction.attributes, instruction.discardable)
    if config is not None and call.factory is None:
        raise PluginError(
            f"custom call target {call.target!r}: the call has a backend_config, {plain_value(config)!r}, which its function "
            f"does not look at; register the target with ElementwiseCall(..., factory=...)\n  at {instruction.location}"
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
    if call.function is not None:
        return call.function
    config, version = attributes.get("config"), attributes.get("api_version", 1)
    known = _made.get()
    if known is None:
        return _ask(call, config, version, operand_types, result_type)
    key = (id(call), config, version, operand_types, result_type)
    if key not in known:
        known[key] = call, _ask(call, config, version, operand_types, result_type)
    return known[key][1]


def _ask(
    call: ElementwiseCall, config: Any, version: int, operand_types: tuple[Any, ...], result_type: Any
) -> Callable[..., Any]:
    """The function that a factory makes for a call site."""
    assert call.factory is not None
    plain = plain_value(config) if isinstance(config, Attribute) else None
    site = CallSite(call.target, plain, version, operand_types, result_type)
    try:
        function = fork_gate.outside(call.factory, site)
    except Exception as error:
        raise PluginError(
            f"custom call target {call.target!r}: the factory failed for {_short(site)}: {error!r}"
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
            results = np.frompyfunc(lambda *values: called(python, values), len(arrays), 1)(*arrays)
        except Exception as error:
            raise HlojitError(f"custom call target {call.target!r}: its function raised {error!r}") from error
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
        ),
        reference=reference,
        lowering=Pointwise(rule),
        summary="a plugin's scalar function",
    )
