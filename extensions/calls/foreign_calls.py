"""Custom calls that are native functions: handlers of XLA's foreign function interface (FFI), called from generated code.

    ForeignCall("acme.scale", handler=library.acme_scale)       # XLA_FFI_Error* acme_scale(XLA_FFI_CallFrame*)
    %1 = stablehlo.custom_call @acme.scale(%0) {mhlo.backend_config = {factor = 2.0 : f32}, api_version = 4 : i32} : ...

The handler gets a call frame of version 0.3 (API version 4 of custom calls): buffers with element types and dimensions,
attributes sorted by name and typed exactly as the program says, and a table of functions for errors and memory.  Handlers are
*trusted native*.  Compiled programs hold the target's name; the function is looked up when they are loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from hlojit.extensions.calls.custom_calls import CustomCall
from hlojit.extensions.calls.foreign_frames import ForeignFrame
from hlojit.extensions.calls.kernel_calls import substituted
from hlojit.extensions.functions.native_functions import address_of, may_raise
from hlojit.ir.errors import HlojitError, PluginError, UnsupportedError, text_of
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.named_fields import named_fields
from hlojit.ir.ops.custom_calls import described
from hlojit.ir.ops.definition import OpDefinition, ReferenceCall
from hlojit.ir.ops.foreign import ForeignCallError, ForeignCallView, foreign_call, foreign_record, plain
from hlojit.ir.ops.layouts import LayoutError, Order, logical
from hlojit.ir.scalar.arrays import to_compute, to_storage
from hlojit.ir.types import TensorType

CAPSULE: Final = b"xla._CUSTOM_CALL_TARGET"
"""What JAX's capsules of handlers are called; those of other names are taken, too."""

_HANDLER: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


@named_fields
@dataclass(frozen=True, slots=True)
class ForeignCall(CustomCall):
    """A handler: a PyCapsule, a function of ``ctypes``, a ``numba.cfunc``, or an address.

    ``substitute`` is a function of NumPy arrays (and of the attributes, by name) that returns the results, for back ends
    without native calls such as ``reference``.  ``asks_version=False`` is for handlers written without XLA's headers, which do
    not answer for which version they were built: a frame with an extension and without buffers.
    """

    hlojit_runtime = ("handler",)
    handler: Any = field(kw_only=True, default=None)
    substitute: Callable[..., Any] | None = field(kw_only=True, default=None)
    asks_version: bool = field(kw_only=True, default=True)

    def __post_init__(self) -> None:
        self.address()
        if self.substitute is not None and not callable(self.substitute):
            raise PluginError(f"{self.user}: substitute is {self.substitute!r}, which is not a function")

    @property
    def trust(self) -> str:
        return "trusted native"

    def address(self) -> int:
        """The handler's address; raises ``PluginError`` where there is none."""
        if may_raise(self.handler):
            raise PluginError(
                f"{self.user}: handler is a ctypes callback of a Python function, which must not raise: it would return any "
                "number, which is taken for the address of an error; use foreign_handler(function) in its place"
            )
        found = address_of(self.handler)
        if not found:
            raise PluginError(
                f"{self.user}: handler is {self.handler!r}; give a PyCapsule, a function of ctypes or of numba.cfunc, or "
                "an address"
            )
        return found

    def records(self) -> Sequence[OpDefinition]:
        """The op that calls of the target become."""
        return (foreign_record(self.target, _reference(self.user, self.substitute)),)

    def replace(self, builder: Any, instruction: Instruction) -> Sequence[Value]:
        """One instruction of that op, between transposes where layouts want them."""
        try:
            if not all(isinstance(kind, TensorType) and kind.is_static for kind in _types(instruction)):
                listed = ", ".join(map(str, _types(instruction)))
                reason = f"a handler takes and gives tensors of known shapes, not {listed}"
                raise UnsupportedError(described(instruction), "", reason, instruction.location)
            return foreign_call(
                builder, instruction, aliases=self.aliases, effects=self.effects, cost=self.nanoseconds(instruction)
            )
        except (ForeignCallError, LayoutError) as error:
            raise PluginError(f"{self.user}: {error}\n  at {instruction.location}") from None


def _types(instruction: Instruction) -> Sequence[Any]:
    return (*instruction.operand_types, *instruction.result_types)


def foreign_handler(function: Callable[[int], int | None]) -> Any:
    """The C function of a handler written in Python, ``function(frame)``: what it raises ends the call with an error.

    ``frame`` is the address of the call frame, of which ``ForeignFrame(frame)`` makes arrays; what is returned is None, or the
    address of an error that the function has made by the frame's table.  A bare callback of ``ctypes`` is refused: what it
    returns when it raises is any number, which would be taken for the address of an error.
    """

    def run(frame: int) -> int | None:
        try:
            error = function(frame)
            if error is not None and not isinstance(error, int):
                raise TypeError(f"a handler returns None or the address of an error, not {error!r}")
            return error
        except BaseException as error:
            return _error_of(frame, error)

    made = _HANDLER(run)
    made.catches_exceptions = True  # type: ignore[attr-defined]
    return made


def _error_of(frame: int, error: BaseException) -> int:
    """An error object for an exception, by the frame's own function for them."""
    return ForeignFrame(frame).error(text_of(error))


def _reference(user: str, substitute: Callable[..., Any] | None) -> Callable[..., Any]:
    def reference(record: ReferenceCall, *arrays: Any) -> Any:
        if substitute is None:
            raise HlojitError(f"{user} is a native function, and has no substitute= for back ends without such")
        view = ForeignCallView.of(record.instruction)
        named = {name: plain(attribute) for name, attribute in view.attributes}
        operands = [value.tensor_type for value in record.instruction.operands]
        outside = [as_outside(array, kind) for array, kind in zip(arrays, operands)]
        given = [_logical(array, order) for array, order in zip(outside, view.operand_orders)]
        kinds = [result.tensor_type for result in record.instruction.results]
        types = [logical(kind, order) for kind, order in zip(kinds, view.result_orders)]
        found = substituted(user, lambda *values: substitute(*values, **named), given, types)
        stored = (np.transpose(array, order) for array, order in zip(found, view.result_orders))
        results = tuple(to_compute(array, kind.element_type) for array, kind in zip(stored, kinds))
        return results[0] if len(results) == 1 else results

    return reference


def as_outside(array: np.ndarray[Any, Any], kind: TensorType) -> np.ndarray[Any, Any]:
    """An array of the interpreter's, which computes with short floats as f32, as callers have it."""
    element = kind.element_type
    return to_storage(array, element).astype(element.dtype or element.storage, copy=False)


def _logical(array: np.ndarray[Any, Any], order: Order) -> np.ndarray[Any, Any]:
    return np.transpose(array, sorted(range(len(order)), key=order.__getitem__))
