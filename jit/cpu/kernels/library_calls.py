"""A call of a library's function for each matrix of a batch: what its parameters are, and the code that makes the calls.

A function of LAPACK takes addresses only, of letters, of integers and of arrays::

    dpotrf(&'U', &n, a, &n, &info)

``Parameters`` collects them in the function's order, asks the library how much scratch memory it wants, and ``emit_calls``
writes a kernel of one task a matrix.  Scratch memory is taken once for the tasks that a thread is given.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from hlojit.cpu.kernels.update import byte_pointer, load_buffer
from hlojit.cpu.lapack_library import query
from hlojit.ir.errors import UnsupportedError
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.lowering.abi import Status
from hlojit.lowering.kernel import KernelCode, Phase

ALIGNMENT: Final = 64
CALL_NANOSECONDS: Final = 400.0
"""Of a call of the library, however small the matrix."""
FLOPS_A_NANOSECOND: Final = 8.0
"""What factorizations reach on one core, about: only the order of magnitude matters."""
LIBRARY_PREFIX: Final = "lapack:"
"""Of the names under which kernels import functions of the library."""
_LARGEST: Final = (1 << 31) - 1
ITEM_BYTES: Final = {"s": 4, "d": 8, "c": 8, "z": 16, "i": 4}


@dataclass(frozen=True, slots=True)
class Text:
    """A letter."""

    letter: str


@dataclass(frozen=True, slots=True)
class Integer:
    """A 32-bit integer."""

    value: int


@dataclass(frozen=True, slots=True)
class Number:
    """A real or complex number, by its bytes."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """A place in one of the kernel's buffers, ``step`` bytes further for each matrix."""

    buffer: int
    step: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory of the call's own; ``copies`` is what it begins with, if anything.  What is asked of the library has no size yet."""

    letter: str
    count: int | None
    copies: Place | None = None

    @property
    def nbytes(self) -> int:
        """Bytes, of whole cache lines."""
        return -(-max(1, self.count or 0) * ITEM_BYTES[self.letter] // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Nothing:
    """A null address."""


@dataclass(frozen=True, slots=True)
class ScratchSize:
    """The count of the scratch parameter in front of it."""


Parameter = Text | Integer | Number | Place | Scratch | ScratchSize | Nothing


@dataclass(slots=True)
class Parameters:
    """The parameters of one function, in its order."""

    function: str
    given: list[Parameter] = field(default_factory=list)
    beside: tuple[Place, ...] = ()
    """Places that the function does not get, and what is done behind it does."""

    def add(self, *parameters: Parameter | str | int) -> Parameters:
        """Append; a string is letters, one parameter each, and a number an integer."""
        for each in parameters:
            if isinstance(each, str):
                self.given += map(Text, each)
            else:
                self.given.append(Integer(each) if isinstance(each, int) else each)
        return self

    def wanted(self, letter: str) -> Parameters:
        """Append scratch memory of as many numbers as the library wants, and their count behind it."""
        return self.add(Scratch(letter, None), ScratchSize())

    def sized(self) -> list[Parameter]:
        """The parameters with the sizes of scratch memory that the library wants, each followed by its count."""
        sized = list(self.given)
        if not any(isinstance(each, ScratchSize) for each in sized):
            return sized
        answers = query(self.function, [_queried(each) for each in sized])
        for number, each in enumerate(sized):
            if isinstance(each, Scratch) and each.count is None:
                count = _count(each.letter, answers[number])
                if count > _LARGEST:
                    raise UnsupportedError(
                        self.function, "", f"{count:,} numbers of scratch memory are more than its integers count"
                    )
                sized[number], sized[number + 1] = replace(each, count=count), Integer(count)
        return sized


def _queried(parameter: Parameter) -> bytes:
    match parameter:
        case Text(letter):
            return letter.encode()
        case Integer(value):
            return struct.pack("=i", value)
        case Number(content):
            return content
        case ScratchSize():
            return struct.pack("=i", -1)
    return b""


def _count(letter: str, answer: bytes) -> int:
    """The number that a query gives, which a short float may have rounded down."""
    if letter == "i":
        return max(1, int(struct.unpack_from("=i", answer)[0]))
    if letter in "sc":
        return max(1, int(np.nextafter(np.frombuffer(answer, np.float32, 1)[0], np.float32(np.inf))) + 1)
    return max(1, int(np.frombuffer(answer, np.float64, 1)[0]))


@dataclass(frozen=True, slots=True)
class Batch:
    """The calls of one kernel: how many matrices, what one costs, and what is done before and behind a call.

    ``before(builder, addresses)`` returns the condition under which the call is made; the addresses are those of the
    parameters.  ``after`` gets those of the places beside, too.
    """

    count: int
    flops: float
    in_place: tuple[tuple[int, int], ...] = ()
    before: Callable[[LlvmBuilder, list[Val]], Val] | None = None
    after: Callable[[LlvmBuilder, list[Val]], None] | None = None


def emit_calls(symbol: str, parameters: Parameters, batch: Batch) -> KernelCode:
    """The kernel that calls the function once for each matrix, its operands and results as buffers."""
    b = LlvmBuilder()
    sized = parameters.sized()
    external = f"hlojit_lapack_{parameters.function}"
    b.declare(external, f"declare void @{external}({', '.join(['ptr'] * len(sized))})")
    with b.function(symbol, [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]) as given:
        context, buffers, begin, end = given
        everything: list[Parameter] = [*sized, *parameters.beside]
        total = sum(each.nbytes for each in sized if isinstance(each, Scratch))
        scratch, done = _take(b, context, total) if total else (Val("null", "ptr"), "")
        places = {
            each.buffer: load_buffer(b, buffers, each.buffer)
            for each in map(_place, everything)
            if isinstance(each, Place)
        }
        loop = b.begin_loop(begin, end)
        addresses = _addresses(b, everything, places, scratch, loop.index)
        _call(b, external, addresses[: len(sized)], batch)
        if batch.after is not None:
            batch.after(b, addresses)
        b.end_loop(loop)
        if total:
            b.line(f"call void @hlojit_release(ptr {scratch.text})")
            b.branch(done)
            b.begin_block(done)
    cost = CALL_NANOSECONDS + batch.flops / FLOPS_A_NANOSECOND
    code = kernel_code(b, (Phase(symbol, batch.count, cost),), in_place=batch.in_place, updates=bool(batch.in_place))
    return replace(code, imports=((external, LIBRARY_PREFIX + parameters.function),))


def _place(parameter: Parameter) -> Parameter | None:
    return parameter.copies if isinstance(parameter, Scratch) else parameter


def _take(b: LlvmBuilder, context: Val, nbytes: int) -> tuple[Val, str]:
    """Scratch memory; where there is none the call fails, and the kernel ends at the label."""
    b.declare("hlojit_allocate", "declare ptr @hlojit_allocate(i64)")
    b.declare("hlojit_release", "declare void @hlojit_release(ptr)")
    b.declare("hlojit_fail", "declare void @hlojit_fail(ptr, i32, i64, i64)")
    memory = b.emit("ptr", 1, f"call ptr @hlojit_allocate(i64 {nbytes})")
    refused, taken, done = (b.fresh_label(stem) for stem in ("refused", "taken", "done"))
    b.branch_if(b.emit("i1", 1, f"icmp eq ptr {memory.text}, null"), refused, taken)
    b.begin_block(refused)
    b.line(f"call void @hlojit_fail(ptr {context.text}, i32 {int(Status.OUT_OF_MEMORY)}, i64 {nbytes}, i64 0)")
    b.branch(done)
    b.begin_block(taken)
    return memory, done


def _addresses(
    b: LlvmBuilder, parameters: list[Parameter], places: dict[int, Val], scratch: Val, matrix: Val
) -> list[Val]:
    found: list[Val] = []
    offset = 0
    for each in parameters:
        match each:
            case Text(letter):
                found.append(b.constant_bytes(letter.encode()))
            case Integer(value):
                found.append(b.constant_table("i32", (value,)))
            case Number(content):
                found.append(b.constant_bytes(content))
            case Place():
                found.append(_at(b, each, places, matrix))
            case Scratch():
                address = byte_pointer(b, scratch, b.constant("i64", offset))
                offset += each.nbytes
                if each.copies is not None:
                    _copy(b, address, _at(b, each.copies, places, matrix), each)
                found.append(address)
            case _:
                found.append(Val("null", "ptr"))
    return found


def _at(b: LlvmBuilder, place: Place, places: dict[int, Val], matrix: Val) -> Val:
    offset = b.add(b.mul(matrix, b.constant("i64", place.step)), b.constant("i64", place.offset))
    return byte_pointer(b, places[place.buffer], offset)


def _copy(b: LlvmBuilder, target: Val, source: Val, scratch: Scratch) -> None:
    nbytes = (scratch.count or 0) * ITEM_BYTES[scratch.letter]
    b.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    b.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.text}, ptr {source.text}, i64 {nbytes}, i1 false)")


def _call(b: LlvmBuilder, external: str, addresses: list[Val], batch: Batch) -> None:
    condition = batch.before(b, addresses) if batch.before is not None else None
    call = f"call void @{external}({', '.join(f'ptr {each.text}' for each in addresses)})"
    gate = ("hlojit_library_enter", "hlojit_library_leave")
    for name in gate:
        b.declare(name, f"declare void @{name}()")
    lines = (f"call void @{gate[0]}()", call, f"call void @{gate[1]}()")
    made, skipped = b.fresh_label("call"), b.fresh_label("skip")
    if condition is not None:
        b.branch_if(condition, made, skipped)
        b.begin_block(made)
    for line in lines:
        b.line(line)
    if condition is not None:
        b.branch(skipped)
        b.begin_block(skipped)
