"""Calls of handlers of XLA's foreign function interface: the call frame, and what becomes of an error.

Attributes, types and dimensions are constants of the kernel; on the stack are the frame, and a record for every buffer with
its address.  Structures and offsets are those of ``xla/ffi/api/c_api.h``, see ``hlojit.runtime.ffi``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from hlojit.cpu.kernels.update import byte_pointer, load_buffer
from hlojit.ir.attributes import (
    Attribute,
    BoolAttr,
    Dense,
    DenseArrayAttr,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
)
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.foreign import ForeignCallView, plain
from hlojit.ir.ops.foreign_frames import (
    ARGUMENTS_BYTES,
    ARRAY,
    ATTRIBUTES_BYTES,
    BUFFER_BYTES,
    DATA_TYPES,
    DICTIONARY,
    EXECUTE,
    FRAME_BYTES,
    SCALAR,
    STRING,
)
from hlojit.ir.ops.layouts import Order, logical
from hlojit.ir.types import TensorType
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.lowering.abi import Status
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target

UNKNOWN_NANOSECONDS: Final = 100_000.0
"""What a handler is taken to last: long enough to let other Python threads run."""
_BUFFER = 1


def emit_foreign_call(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """One call, in one task."""
    return _ForeignCall(instruction, symbol).emit()


class _ForeignCall:
    def __init__(self, instruction: Instruction, symbol: str):
        self.view = ForeignCallView.of(instruction)
        self.symbol = symbol
        self.operands = [value.tensor_type for value in instruction.operands]
        self.results = [value.tensor_type for value in instruction.results]
        self.location = instruction.location
        self.cost: float | None = instruction.attributes.get("cost")
        self.handler = f"hlojit_ffi_{hashlib.sha256(self.view.target.encode()).hexdigest()[:16]}"
        self.b = LlvmBuilder()

    def emit(self) -> KernelCode:
        b = self.b
        b.declare(self.handler, f"declare ptr @{self.handler}(ptr)")
        b.declare("hlojit_ffi_fail", "declare void @hlojit_ffi_fail(ptr, i32, ptr, ptr)")
        b.declare("hlojit_ffi_api", "@hlojit_ffi_api = external global i8")
        with b.function(
            self.symbol, [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]
        ) as given:
            context, buffers, _, _ = given
            stopped, going, done = (b.fresh_label(stem) for stem in ("stopped", "going", "done"))
            # What failed before gave no results: no handler sees them, and nothing is sent.
            b.declare("hlojit_poll", "declare i32 @hlojit_poll(ptr)")
            is_over = b.emit(
                "i1", 1, f"icmp ne i32 {b.emit('i32', 1, f'call i32 @hlojit_poll(ptr {context.text})').text}, 0"
            )
            b.branch_if(is_over, stopped, going)
            b.begin_block(stopped)
            b.branch(done)
            b.begin_block(going)
            frame = self._frame(context, buffers)
            error = b.emit("ptr", 1, f"call ptr @{self.handler}(ptr {frame.text})")
            failed = b.fresh_label("failed")
            b.branch_if(b.emit("i1", 1, f"icmp ne ptr {error.text}, null"), failed, done)
            b.begin_block(failed)
            place = b.constant_bytes(f"custom call target {self.view.target!r}\n{self.view.place}".encode() + b"\0")
            status = int(Status.FOREIGN_CALL_FAILED)
            b.line(f"call void @hlojit_ffi_fail(ptr {context.text}, i32 {status}, ptr {error.text}, ptr {place.text})")
            b.branch(done)
            b.begin_block(done)
        phase = Phase(self.symbol, 1, UNKNOWN_NANOSECONDS if self.cost is None else self.cost)
        aliases = self.view.aliases
        code = kernel_code(b, (phase,), in_place=aliases, updates=bool(aliases), finished=True)
        named = {"hlojit_ffi_api": "runtime:hlojit_ffi_api", "hlojit_ffi_fail": "runtime:hlojit_ffi_fail"}
        return replace(code, imports=((self.handler, f"ffi:{self.view.target}"), *named.items()))

    # ------------------------------------------------------------------------------------------------ the frame

    def _frame(self, context: Val, buffers: Val) -> Val:
        """The address of the filled call frame."""
        operands = self._buffers(buffers, 0, self.operands, self.view.operand_orders)
        results = self._buffers(buffers, len(self.operands), self.results, self.view.result_orders)
        types, names, values = self._attribute_lists(self.view.attributes)
        null = Val("null", "ptr")
        fields: list[tuple[str, int | Val]] = [
            ("i64", FRAME_BYTES),
            ("ptr", null),
            ("ptr", Val("@hlojit_ffi_api", "ptr")),
            ("ptr", context),
            ("i64", EXECUTE),
        ]
        for types_of, buffers_of, count in (
            (self._types(self.operands), operands, len(self.operands)),
            (self._types(self.results), results, len(self.results)),
        ):
            fields += [("i64", ARGUMENTS_BYTES), ("ptr", null), ("i64", count), ("ptr", types_of), ("ptr", buffers_of)]
        fields += [("i64", ATTRIBUTES_BYTES), ("ptr", null), ("i64", len(self.view.attributes))]
        fields += [("ptr", Val(each, "ptr")) for each in (types, names, values)]
        fields.append(("ptr", null))
        frame = self.b.array("i64", len(fields))
        self._store(frame, fields)
        return frame

    def _store(self, record: Val, fields: Sequence[tuple[str, int | Val]]) -> None:
        """Store fields of eight bytes each, one behind the other."""
        for number, (kind, value) in enumerate(fields):
            place = byte_pointer(self.b, record, Val(str(8 * number), "i64"))
            self.b.line(f"store {kind} {value.text if isinstance(value, Val) else value}, ptr {place.text}, align 8")

    def _types(self, kinds: Sequence[TensorType]) -> Val:
        return Val(self._constant(f"[{len(kinds)} x i32] [{', '.join([f'i32 {_BUFFER}'] * len(kinds))}]"), "ptr")

    def _buffers(self, buffers: Val, first: int, kinds: Sequence[TensorType], orders: Sequence[Order]) -> Val:
        """A list of the addresses of buffer records."""
        b = self.b
        addresses = b.array("i64", max(1, len(kinds)))
        for number, (kind, order) in enumerate(zip(kinds, orders, strict=True)):
            shape = logical(kind, order).shape
            extents = Val(self._constant(f"[{len(shape)} x i64] [{', '.join(f'i64 {each}' for each in shape)}]"), "ptr")
            record = b.array("i64", BUFFER_BYTES // 8)
            data = load_buffer(b, buffers, first + number)
            fields: list[tuple[str, int | Val]] = [("i64", BUFFER_BYTES), ("ptr", Val("null", "ptr"))]
            fields += [
                ("i64", self._data_type(kind.element_type)),
                ("ptr", data),
                ("i64", len(shape)),
                ("ptr", extents),
            ]
            self._store(record, fields)
            place = byte_pointer(b, addresses, Val(str(8 * number), "i64"))
            b.line(f"store ptr {record.text}, ptr {place.text}, align 8")
        return addresses

    def _data_type(self, element: ElementType) -> int:
        if element.name not in DATA_TYPES:
            what = f"custom_call @{self.view.target}"
            raise UnsupportedError(what, "", f"XLA's FFI has no element type {element}", self.location)
        return DATA_TYPES[element.name]

    # ---------------------------------------------------------------------------------------------- the attributes

    def _constant(self, body: str) -> str:
        """A private constant; returns its symbol."""
        return self.b.constant_record(body).text

    def _attribute_lists(self, attributes: Sequence[tuple[str, Attribute]]) -> tuple[str, str, str]:
        """Symbols of the lists of types, of names and of values."""
        made = [(self._span(name), *self._attribute(attribute)) for name, attribute in attributes]
        count = len(made)
        types = self._constant(f"[{count} x i32] [{', '.join(f'i32 {kind}' for _, kind, _ in made)}]")
        names = self._constant(f"[{count} x ptr] [{', '.join(f'ptr {name}' for name, _, _ in made)}]")
        values = self._constant(f"[{count} x ptr] [{', '.join(f'ptr {value}' for _, _, value in made)}]")
        return types, names, values

    def _span(self, text: str) -> str:
        data = text.encode()
        return self._constant(f"{{ ptr, i64 }} {{ ptr {self._bytes(data)}, i64 {len(data)} }}")

    def _bytes(self, content: bytes) -> str:
        """Bytes where any number may begin."""
        text = "".join(f"\\{byte:02X}" for byte in content)
        return self._constant(f'[{len(content)} x i8] c"{text}"')

    def _attribute(self, attribute: Attribute) -> tuple[int, str]:
        """Kind and symbol of one attribute."""
        match attribute:
            case DictAttr(items):
                nested = sorted(items)
                types, names, values = self._attribute_lists(nested)
                head = f"i64 {ATTRIBUTES_BYTES}, ptr null, i64 {len(nested)}"
                return DICTIONARY, self._constant(
                    f"{{ i64, ptr, i64, ptr, ptr, ptr }} {{ {head}, ptr {types}, ptr {names}, ptr {values} }}"
                )
            case StringAttr(value):
                return STRING, self._span(value)
            case BoolAttr(value):
                return SCALAR, self._scalar("i1", bytes([value]))
            case IntegerAttr() | FloatAttr():
                return SCALAR, self._scalar(attribute.type, plain(attribute).tobytes())
        array: Any = plain(attribute)
        assert isinstance(attribute, (DenseArrayAttr, Dense))
        name = attribute.element_type if isinstance(attribute, DenseArrayAttr) else attribute.type.element_type.name
        data = self._bytes(np.ascontiguousarray(array).tobytes())
        return ARRAY, self._constant(f"{{ i32, i64, ptr }} {{ i32 {DATA_TYPES[name]}, i64 {array.size}, ptr {data} }}")

    def _scalar(self, type: str, content: bytes) -> str:
        return self._constant(f"{{ i32, ptr }} {{ i32 {DATA_TYPES[type]}, ptr {self._bytes(content)} }}")
