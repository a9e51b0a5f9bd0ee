"""Custom calls that are functions of whole arrays: numba's, plain Python, or native.

    def cumulative(x, result):
        total = 0.0
        for i in range(x.size):
            total += x[i]
            result[i] = total

    ArrayCall("acme.cumulative", function=cumulative)
    %1 = stablehlo.custom_call @acme.cumulative(%0) : (tensor<8xf32>) -> tensor<8xf32>

A call becomes one instruction of the op ``hlojit.array.acme.cumulative``, which the host runs in one piece, on the thread of the
program's call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from hlojit.extensions.calls.custom_calls import CustomCall, config_attribute, plain_value
from hlojit.extensions.calls.kernel_calls import substituted
from hlojit.extensions.functions.array_functions import ArrayFunction
from hlojit.extensions.functions.keywords import keyword_complaint
from hlojit.extensions.functions.numba_arrays import numba_element
from hlojit.ir import unwritten
from hlojit.ir.attributes import Attribute
from hlojit.ir.errors import HlojitError, PluginError, UnsupportedError
from hlojit.ir.formats import ElementType, FloatFormat, QuantizedType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.named_fields import named_fields
from hlojit.ir.ops.attribute_kinds import BOOL, F32, GENERIC, I64_MATRIX, STRING
from hlojit.ir.ops.custom_calls import described
from hlojit.ir.ops.definition import AttributeSpec, HostFunction, OpDefinition, Operand, ReferenceCall, op
from hlojit.ir.ops.foreign import ForeignCallError, merged_aliases
from hlojit.ir.scalar.arrays import first_outside, spare_bits, to_compute, to_storage
from hlojit.ir.types import TensorType
from hlojit.ir.vendor_places import place_of

KERNEL: Final = "array_function"
"""The kernel that a back end has if it can call such functions."""


@named_fields
@dataclass(frozen=True, slots=True)
class ArrayCall(CustomCall):
    """A function of arrays.

    ``function``, ``trust``, ``signature``, ``codes``, ``bounds``, ``fastmath``, ``substitute``, ``error_model``: as in
    ``ArrayFunction``.
    The dictionary of a call's configuration is given by keyword, ``function(*arrays, factor=2.0)``: for numba its numbers are
    constants.  ``aliases`` count beside those that the program names in ``output_operand_aliases``.
    """

    hlojit_runtime = ("function",)
    function: Any = field(default=None, kw_only=True)
    trust: str = field(default="numba", kw_only=True)
    signature: str = field(default="", kw_only=True)
    codes: bool = field(default=False, kw_only=True)
    bounds: bool = field(default=True, kw_only=True)
    fastmath: bool | Collection[str] = field(default=False, kw_only=True)
    substitute: Callable[..., Any] | None = field(default=None, kw_only=True)
    error_model: str = field(default="numpy", kw_only=True)
    implementation: ArrayFunction = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            made = ArrayFunction(
                self.function,
                self.trust,
                signature=self.signature,
                codes=self.codes,
                bounds=self.bounds,
                fastmath=self.fastmath,
                substitute=self.substitute,
                error_model=self.error_model,
            )
        except PluginError as error:
            raise PluginError(f"{self.user}: {error}") from None
        object.__setattr__(self, "implementation", made)

    @property
    def level(self) -> str:
        return self.implementation.level

    def records(self) -> Sequence[OpDefinition]:
        """The op that calls of the target become."""
        return (_record(self),)

    def replace(self, builder: Any, instruction: Instruction) -> Sequence[Value]:
        """One instruction of that op."""
        for kind in (*instruction.operand_types, *instruction.result_types):
            if not isinstance(kind, TensorType) or not kind.is_static:
                reason = f"a function of arrays takes and gives tensors of known shapes, not {kind}"
                raise UnsupportedError(described(instruction), "", reason, instruction.location)
            if isinstance(kind.element_type, QuantizedType):
                raise self._refusal(
                    instruction,
                    f"a function of arrays is not given {kind}: convert to numbers (stablehlo.uniform_dequantize) or to the "
                    "stored integers (stablehlo.bitcast_convert) in front of the call, and back behind it",
                )
        if instruction.attributes.get("called_computations"):
            raise self._refusal(instruction, "a function of arrays cannot run called_computations")
        attributes: dict[str, Any] = {"place": str(instruction.location), "aliases": self._aliases(instruction)}
        config = config_attribute(instruction.attributes, instruction.discardable)
        if config is not None:
            if not isinstance(plain_value(config), dict):
                raise self._refusal(
                    instruction,
                    f"the configuration is {plain_value(config)!r}, not a dictionary: its entries are given by keyword",
                )
            attributes["config"] = config
        if self.trust == "python":
            keywords = plain_value(config) if config is not None else {}
            complaint = keyword_complaint(self.function, len(instruction.operands), keywords)
            if complaint:
                raise self._refusal(instruction, f"{complaint}{place_of(self.function)}")
        cost = self.nanoseconds(instruction)
        if cost is not None:
            attributes["cost"] = cost
        attributes["has_side_effect"] = self.effects or bool(instruction.attributes.get("has_side_effect"))
        bound = Instruction(
            op(record_name(self.target)),
            instruction.operands,
            instruction.result_types,
            attributes,
            location=instruction.location,
        )
        return list(builder.insert(bound).results)

    def _aliases(self, instruction: Instruction) -> tuple[tuple[int, int], ...]:
        try:
            return merged_aliases(instruction, self.aliases)
        except ForeignCallError as error:
            raise self._refusal(instruction, str(error)) from None

    def _refusal(self, instruction: Instruction, reason: str) -> PluginError:
        return PluginError(f"{self.user}: {reason}\n  at {instruction.location}")


def record_name(target: str) -> str:
    """The name of the op that calls of a target become."""
    return f"hlojit.array.{target}"


def keywords_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What a bound call gives its function by keyword."""
    config = attributes.get("config")
    return dict(plain_value(config)) if isinstance(config, Attribute) else {}


def _record(call: ArrayCall) -> OpDefinition:
    def reference(record: ReferenceCall, *arrays: Any) -> Any:
        run, types = on_arrays(record.instruction), [result.tensor_type for result in record.instruction.results]
        operands = [value.tensor_type for value in record.instruction.operands]
        given = [_read_only(to_storage(array, kind.element_type)) for array, kind in zip(arrays, operands)]
        what = "substitute" if call.trust == "native" or call.substitute is not None else "function"
        found = substituted(call.user, run, given, types, what)
        results = tuple(to_compute(each, kind.element_type) for each, kind in zip(found, types))
        return results[0] if len(results) == 1 else results

    return OpDefinition(
        record_name(call.target),
        operands=(Operand("operands", variadic=True),),
        attributes=(
            AttributeSpec("config", GENERIC, optional=True),
            AttributeSpec("aliases", I64_MATRIX, optional=True, default=()),
            AttributeSpec("place", STRING, optional=True, default=""),
            AttributeSpec("cost", F32, optional=True),
            AttributeSpec("has_side_effect", BOOL, optional=True, default=False),
        ),
        reference=reference,
        effect=_has_side_effect,
        lowering=HostFunction(
            KERNEL,
            without=f"{call.user} is a function of arrays that runs on the host",
            takes_pairs=True,
            function=(call.target, call.implementation),
        ),
        summary="a plugin's function of arrays",
    )


def _has_side_effect(instruction: Instruction) -> bool:
    return bool(instruction.attributes.get("has_side_effect"))


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def on_arrays(instruction: Instruction) -> Callable[..., Any]:
    """What computes a bound call from arrays of storage dtypes, on the host; raises ``HlojitError`` where there is nothing."""
    lowering = instruction.op.lowering
    assert isinstance(lowering, HostFunction)
    target, function = lowering.function
    operands = [value.tensor_type.element_type for value in instruction.operands]
    types = [result.tensor_type for result in instruction.results]
    if function.trust != "native":
        for element in (*operands, *(kind.element_type for kind in types)):
            function.outside(element, f"custom call target {target!r}")
    run = function.on_arrays or _filling(target, function, operands, types)
    keywords = keywords_of(instruction.attributes)

    def computed(*arrays: Any) -> Any:
        outside = [array.astype(kind.dtype or kind.storage, copy=False) for array, kind in zip(arrays, operands)]
        returned = run(*map(_read_only, outside), **keywords)
        if function.level == "checked":
            _check_codes(returned, [kind.element_type for kind in types])
        return returned

    return computed


def _check_codes(returned: Any, elements: Sequence[ElementType]) -> None:
    for number, (array, element) in enumerate(zip(returned if isinstance(returned, tuple) else (returned,), elements)):
        bits = spare_bits(element)
        if bits and isinstance(array, np.ndarray) and array.dtype.itemsize == element.storage.itemsize:
            wrong = first_outside(np.ascontiguousarray(array), bits)
            if wrong is not None:
                raise ValueError(f"result {number} has the code {wrong}, outside its {bits} bits")


def _filling(
    target: str, function: ArrayFunction, operands: Sequence[ElementType], types: Sequence[TensorType]
) -> Callable[..., Any]:
    """A numba function as one that returns its results, run by Python, with arrays of the dtypes that numba has."""
    if function.function is None:
        raise HlojitError(
            f"custom call target {target!r} is a native function, and has no substitute= for back ends without such"
        )
    python: Callable[..., Any] = getattr(function.function, "py_func", function.function)
    seen = [_seen_by_numba(element, function, target) for element in operands]
    made = [_seen_by_numba(kind.element_type, function, target) for kind in types]

    def run(*arrays: Any, **keywords: Any) -> Any:
        results = [unwritten.zeros(kind.shape, kind.element_type.dtype or kind.element_type.storage) for kind in types]
        given = [array if dtype is None else array.view(dtype) for array, dtype in zip(arrays, seen, strict=True)]
        filled = [array if dtype is None else array.view(dtype) for array, dtype in zip(results, made, strict=True)]
        python(*given, *filled, **keywords)
        return tuple(results)

    return run


def _seen_by_numba(element: ElementType, function: ArrayFunction, target: str) -> np.dtype[Any] | None:
    """The dtype of codes, where numba has no type for the numbers; raises ``PluginError`` where it is given none."""
    name = numba_element(element, function, f"custom call target {target!r}")
    has_codes = isinstance(element, FloatFormat) and element.name != {"float32": "f32", "float64": "f64"}.get(name)
    return np.dtype(name) if has_codes else None
