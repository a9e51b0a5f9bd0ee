"""Functions of arrays that plugins supply, as kernels of one task: it runs on the thread of the program's call.

What failed before gave no results: no function sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from hlojit.cpu.kernels.update import load_buffer
from hlojit.extensions.calls.array_calls import keywords_of
from hlojit.extensions.functions.array_functions import ArrayFunction, name_of, numbered
from hlojit.extensions.functions.linked_arrays import LinkedArrays, is_library
from hlojit.extensions.functions.native_functions import NUMBERS, Argument
from hlojit.extensions.functions.numba_arrays import compile_arrays
from hlojit.extensions.kernels.forms import TaskFunction
from hlojit.extensions.machines.blas_threads import warn_of_tasks
from hlojit.ir.errors import PluginError
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import HostFunction
from hlojit.ir.scalar.arrays import spare_bits
from hlojit.ir.scalar.calls import STATE_BYTES
from hlojit.ir.types import TensorType
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.kernel_code import kernel_code
from hlojit.lowering.abi import Status
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target
from hlojit.runtime.python_calls import INTERRUPTED, description_of

UNKNOWN_NANOSECONDS: Final = 100_000.0
"""What a function is taken to last: long enough to let other Python threads run."""

_C_TYPES: Final = {"f32": "float", "f64": "double"}
"""Numbers whose types in LLVM have other names."""
_NUMBERS: Final = {_C_TYPES.get(name, name): name for name in NUMBERS}


@dataclass(frozen=True, slots=True)
class FunctionSite:
    """One call of a function: types, what messages call it, where it stands, attributes by name, operands that results lie on.

    ``name`` is that by which ``hlojit.cpu.imports`` finds the function when the program is loaded; without one the program is of
    this process alone.
    """

    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    user: str
    place: str = ""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[tuple[int, int], ...] = ()
    name: str = ""
    cost: float = UNKNOWN_NANOSECONDS


def emit_array_function(function: ArrayFunction, site: FunctionSite, symbol: str) -> KernelCode:
    """One call, in one task; raises ``PluginError`` for a function that cannot take these types."""
    return _Emitter(function, site, symbol).emit()


def emit_task_function(function: TaskFunction, site: FunctionSite, symbol: str) -> KernelCode:
    """A call for each range of tasks; raises ``PluginError`` for a function that cannot take these types."""
    return _TaskEmitter(function, site, symbol).emit()


def emit_array_call(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    """The kernel of an instruction that a custom call of a function of arrays has become."""
    lowering = instruction.op.lowering
    assert isinstance(lowering, HostFunction)
    call, function = lowering.function
    given = instruction.attributes
    site = FunctionSite(
        tuple(value.tensor_type for value in instruction.operands),
        tuple(value.tensor_type for value in instruction.results),
        f"custom call target {call!r}",
        given.get("place", ""),
        keywords_of(given),
        tuple((operand, result) for operand, result in given.get("aliases", ())),
        f"array:{call}",
        UNKNOWN_NANOSECONDS if given.get("cost") is None else float(given["cost"]),
    )
    return emit_array_function(function, site, symbol)


class _Emitter:
    def __init__(self, function: ArrayFunction, site: FunctionSite, symbol: str):
        self.function = function
        self.site = site
        self.symbol = symbol
        self.b = LlvmBuilder()
        self.imports: list[tuple[str, str]] = []
        self.linked: tuple[tuple[str, str], ...] = ()
        self.unkeyable = ""
        self.owner: ArrayFunction | None = None
        self.range: list[Val] = []
        """The first task and the one behind the last, in the function that is emitted."""

    def emit(self) -> KernelCode:
        b = self.b
        parameters = [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]
        with b.function(self.symbol, parameters) as given:
            context, buffers, *self.range = given
            stopped, going, done = (b.fresh_label(stem) for stem in ("stopped", "going", "done"))
            b.declare("hlojit_poll", "declare i32 @hlojit_poll(ptr)")
            status = b.emit("i32", 1, f"call i32 @hlojit_poll(ptr {context.text})")
            b.branch_if(b.emit("i1", 1, f"icmp ne i32 {status.text}, 0"), stopped, going)
            b.begin_block(stopped)
            b.branch(done)
            b.begin_block(going)
            {"numba": self._numba, "python": self._python, "native": self._native}[self.function.trust](
                context, buffers
            )
            b.branch(done)
            b.begin_block(done)
        aliases = self.site.aliases
        code = kernel_code(b, self._phases(), in_place=aliases, updates=bool(aliases), finished=True)
        return replace(
            code,
            pipeline="inline" if self.linked else code.pipeline,
            linked=(*code.linked, *self.linked),
            imports=tuple(self.imports),
            unkeyable=code.unkeyable or self.unkeyable,
            owner=self.owner,
        )

    def _phases(self) -> tuple[Phase, ...]:
        return (Phase(self.symbol, 1, self.site.cost),)

    def _compiled(self) -> tuple[LinkedArrays, str, list[str]]:
        """The code of a numba function, why it has no identity outside of this process, and what it takes behind the arrays."""
        return *compile_arrays(self._bound(), self.site.operands, self.site.results, self.site.user), []

    def _data(self, buffers: Val) -> list[str]:
        count = len(self.site.operands) + len(self.site.results)
        return [f"ptr {load_buffer(self.b, buffers, number).text}" for number in range(count)]

    def _itself(self) -> str:
        """The symbol of the function: of a native one its address, otherwise of the object."""
        symbol = f"hlojit_function_{self.symbol}"
        name = self.site.name
        if not name:
            self.owner = self.function
            name = f"object:{numbered(self.function)}"
            self.unkeyable = self.unkeyable or f"{self.site.user}, a function of this process,"
        self.imports.append((symbol, name))
        return symbol

    def _fail(self, context: Val, status: Status, detail0: str, detail1: str) -> None:
        self.b.declare("hlojit_fail", "declare void @hlojit_fail(ptr, i32, i64, i64)")
        self.b.line(f"call void @hlojit_fail(ptr {context.text}, i32 {int(status)}, i64 {detail0}, i64 {detail1})")

    def _if(self, condition: str) -> str:
        """Begin a block for a condition; the label of what follows is to be branched to, and begun, at its end."""
        then, following = self.b.fresh_label("failed"), self.b.fresh_label("went")
        self.b.branch_if(self.b.emit("i1", 1, condition), then, following)
        self.b.begin_block(then)
        return following

    def _end(self, following: str) -> None:
        self.b.branch(following)
        self.b.begin_block(following)

    # ------------------------------------------------------------------------------------------------------- numba

    def _numba(self, context: Val, buffers: Val) -> None:
        b, site = self.b, self.site
        code, self.unkeyable, more = self._compiled()
        self.linked = ((code.symbol, code.llvm_ir),)
        self.imports += code.imports
        state = b.array("i8", STATE_BYTES)
        b.line(f"store [{STATE_BYTES} x i8] zeroinitializer, ptr {state.text}, align 8")
        b.line(f"store ptr {context.text}, ptr {state.text}, align 8")
        passed = [f"ptr {state.text}", *self._data(buffers), *more]
        b.declare(code.symbol, f"declare i32 @{code.symbol}({', '.join(each.partition(' ')[0] for each in passed)})")
        # Nobody forks while a library with threads of its own is at work.
        gates = ("hlojit_library_enter", "hlojit_library_leave") if any(is_library(n) for _, n in code.imports) else ()
        for gate in gates:
            b.declare(gate, f"declare void @{gate}()")
        for gate in gates[:1]:
            b.line(f"call void @{gate}()")
        if self.function.bounds:
            self._clear_results(passed[1:])
        outcome = b.emit("i32", 1, f"call i32 @{code.symbol}({', '.join(passed)})")
        for gate in gates[1:]:
            b.line(f"call void @{gate}()")
        said = (*code.failures, "it raised an exception")
        for number, failure in enumerate(said, 1):
            value = number if number < len(said) else -2
            following = self._if(f"icmp eq i32 {outcome.text}, {value}")
            self._report(context, f"{site.user}: {failure} in {name_of(self.function)}")
            self._end(following)
        if self.function.bounds:
            self._check_codes(context, passed[1:])

    def _check_codes(self, context: Val, arrays: Sequence[str]) -> None:
        """A code of too many bits ends the call: arrays hold none, whatever decodes them."""
        first = len(self.site.operands)
        for number, kind in self._coded():
            begin, end = self.b.constant("i64", 0), self.b.constant("i64", kind.size)
            self._check_range(context, number, arrays[first + number], begin, end)

    def _coded(self) -> list[tuple[int, TensorType]]:
        """Results in which there can be codes of too many bits, with their numbers."""
        found = enumerate(self.site.results)
        return [(number, kind) for number, kind in found if spare_bits(kind.element_type) and kind.size]

    def _check_range(self, context: Val, number: int, array: str, begin: Val, end: Val) -> None:
        """Look at the elements of a result from ``begin`` to ``end``."""
        b, element = self.b, self.site.results[number].element_type
        bits, width = spare_bits(element), 8 * element.storage.itemsize
        # All codes or-ed: a loop without a branch, which becomes vectors.
        seen = b.local(f"i{width}")
        b.line(f"store i{width} 0, ptr {seen.text}")
        loop = b.begin_loop(begin, end, 1)
        address = b.emit("ptr", 1, f"getelementptr i{width}, {array}, i64 {loop.index.text}")
        code = b.emit(f"i{width}", 1, f"load i{width}, ptr {address.text}")
        before = b.emit(f"i{width}", 1, f"load i{width}, ptr {seen.text}")
        b.line(
            f"store i{width} {b.emit(f'i{width}', 1, f'or i{width} {before.text}, {code.text}').text}, ptr {seen.text}"
        )
        b.end_loop(loop)
        all_codes = b.emit(f"i{width}", 1, f"load i{width}, ptr {seen.text}")
        following = self._if(f"icmp ugt i{width} {all_codes.text}, {(1 << bits) - 1}")
        name = name_of(self.function)
        self._report(context, f"{self.site.user}: a code of result {number} is outside its {bits} bits in {name}")
        self._end(following)

    def _clear_results(self, arrays: Sequence[str]) -> None:
        """What the function does not write is 0, as on ``reference``, and not what another program left in the memory."""
        shared = {result for _, result in self.site.aliases}
        first = len(self.site.operands)
        for number, kind in enumerate(self.site.results):
            if number not in shared and kind.nbytes:
                self.b.declare("hlojit_clear", "declare void @hlojit_clear(ptr, i64)")
                self.b.line(f"call void @hlojit_clear({arrays[first + number]}, i64 {kind.nbytes})")

    def _bound(self) -> ArrayFunction:
        """The function with the attributes of the call as its defaults."""
        if not self.site.keywords:
            return self.function
        from hlojit.extensions.functions.keywords import with_keywords

        count = len(self.site.operands) + len(self.site.results)
        return replace(
            self.function, function=with_keywords(self.function.function, count, self.site.keywords, self.site.user)
        )

    def _report(self, context: Val, message: str) -> None:
        text = message.encode()
        number = self.b.emit("i64", 1, f"ptrtoint ptr {self.b.constant_bytes(text).text} to i64")
        self._fail(context, Status.FUNCTION_FAILED, number.text, str(len(text)))

    # ------------------------------------------------------------------------------------------------------ Python

    def _python(self, context: Val, buffers: Val) -> None:
        b, site = self.b, self.site
        operands = [self._form(kind) for kind in site.operands]
        results = [self._form(kind) for kind in site.results]
        described = description_of(site.user, site.place, operands, results, dict(site.keywords))
        text, outcome = b.constant_bytes(described), b.local("i64")
        function = self._itself()
        b.declare(function, f"@{function} = external global i8")
        b.declare("hlojit_python_call", "declare void @hlojit_python_call(ptr, ptr, i64, ptr, ptr)")
        self.imports.append(("hlojit_python_call", "python:trampoline"))
        b.line(f"store i64 {INTERRUPTED}, ptr {outcome.text}, align 8")
        # Python's code has the floating-point environment of whoever called the program.
        for name in ("hlojit_leave_program", "hlojit_enter_program"):
            b.declare(name, f"declare void @{name}(ptr)")
        b.line(f"call void @hlojit_leave_program(ptr {context.text})")
        b.line(
            f"call void @hlojit_python_call(ptr @{function}, ptr {text.text}, i64 {len(described)}, ptr {buffers.text}, "
            f"ptr {outcome.text})"
        )
        b.line(f"call void @hlojit_enter_program(ptr {context.text})")
        ended = b.emit("i64", 1, f"load i64, ptr {outcome.text}, align 8")
        following = self._if(f"icmp ne i64 {ended.text}, 0")
        self._fail(context, Status.PYTHON_CALL_FAILED, ended.text, "0")
        self._end(following)

    def _form(self, kind: TensorType) -> tuple[str, str, tuple[int, ...], int]:
        element = kind.element_type
        outside = self.function.outside(element, self.site.user)
        return element.storage.name, outside.name, kind.shape, spare_bits(element)

    # ------------------------------------------------------------------------------------------------------ native

    def _native(self, context: Val, buffers: Val) -> None:
        b, given = self.b, self.function.arguments
        data = self._data(buffers)
        passed = [self._argument(each, data) for each in given.arguments]
        symbol = self._itself()
        result = {"status": "i32", "void": "void", "result": self._returned(given.returned)}[given.returns]
        b.declare(symbol, f"declare {result} @{symbol}({', '.join(each.partition(' ')[0] for each in passed)})")
        call = f"call {result} @{symbol}({', '.join(passed)})"
        if given.returned is not None:
            place = data[len(self.site.operands) + given.returned.number]
            b.line(f"store {result} {b.emit(_NUMBERS[result], 1, call).text}, {place}, align 1")
            return
        if result == "void":
            b.line(call)
            return
        status = b.emit("i32", 1, call)
        following = self._if(f"icmp ne i32 {status.text}, 0")
        text = b.constant_bytes(f"{self.site.user}\n{self.site.place}".encode() + b"\0")
        message = b.emit("i64", 1, f"ptrtoint ptr {text.text} to i64")
        wide = b.emit("i64", 1, f"sext i32 {status.text} to i64")
        self._fail(context, Status.NATIVE_CALL_FAILED, message.text, wide.text)
        self._end(following)

    def _returned(self, argument: Argument | None) -> str:
        """The type of what the C function returns as the element of a result."""
        if argument is None:
            return ""
        if argument.number >= len(self.site.results):
            raise self._misfit(argument, f"the call has {counted(len(self.site.results), argument.side)}")
        kind = self.site.results[argument.number]
        name = kind.element_type.name.replace("ui", "i")
        if kind.size != 1 or name not in NUMBERS:
            raise self._misfit(argument, f"a C function returns one number of {', '.join(NUMBERS)}, and it is a {kind}")
        return _C_TYPES.get(name, name)

    def _argument(self, argument: Argument, data: Sequence[str]) -> str:
        """One argument of the C function, with its type."""
        if argument.attribute:
            return self._attribute(argument)
        kinds = self.site.operands if argument.side == "operand" else self.site.results
        if argument.number >= len(kinds):
            raise self._misfit(argument, f"the call has {counted(len(kinds), argument.side)}")
        kind = kinds[argument.number]
        if argument.extent is None:
            return data[argument.number + (len(self.site.operands) if argument.side == "result" else 0)]
        if argument.extent >= kind.rank:
            raise self._misfit(argument, f"it is a {kind}")
        extent = kind.size if argument.extent < 0 else kind.shape[argument.extent]
        return f"{argument.type} {self._integer(extent, argument)}"

    def _attribute(self, argument: Argument) -> str:
        name = argument.attribute
        if name not in self.site.keywords:
            has = ", ".join(self.site.keywords) or "none"
            raise self._misfit(argument, f"the call has no attribute of that name (it has: {has})")
        value = self.site.keywords[name]
        if not isinstance(value, (bool, int, float, np.number, np.bool_)):
            raise self._misfit(argument, f"the attribute is {value!r}, not a number")
        if argument.type in ("f32", "f64"):
            return f"{_C_TYPES[argument.type]} {self.b.constant(argument.type, float(value)).text}"
        if int(value) != value:
            raise self._misfit(argument, f"the attribute is {value!r}, not an integer")
        return f"{argument.type} {self._integer(int(value), argument)}"

    def _integer(self, value: int, argument: Argument) -> int:
        bits = int(argument.type[1:])
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise self._misfit(argument, f"{value} does not fit {argument.type}")
        return value

    def _misfit(self, argument: Argument, reason: str) -> PluginError:
        place = f"\n  at {self.site.place}" if self.site.place else ""
        return PluginError(
            f"{self.site.user}: its signature {self.function.signature!r} takes {argument}: {reason}{place}"
        )


def counted(count: int, what: str) -> str:
    """``1 operand``, ``2 results``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


_CLEARED_BYTES: Final = 1 << 20
"""Bytes of each result that one task clears."""
_CLEARED_NANOSECONDS: Final = 50_000.0
_CHECKED_CODES: Final = 1 << 18
"""Codes of each result that one task looks at."""
_CHECKED_NANOSECONDS: Final = 50_000.0


class _TaskEmitter(_Emitter):
    def __init__(self, tasks: TaskFunction, site: FunctionSite, symbol: str):
        super().__init__(tasks.array_function, site, symbol)
        self.tasks = tasks

    def _phases(self) -> tuple[Phase, ...]:
        work = Phase(self.symbol, self.tasks.tasks, self.tasks.cost)
        largest = max((kind.nbytes for kind in self.site.results), default=0)
        if not self.function.bounds or not largest:
            return (work,)
        checking = (self._checking(),) if self._coded() else ()
        return (self._clearing(largest), work, *checking)

    def _clearing(self, largest: int) -> Phase:
        """A launch of its own that clears the results: no task may clear what another has written already."""
        b, symbol = self.b, f"{self.symbol}.clear"
        parameters = [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]
        with b.function(symbol, parameters) as (_, buffers, *bounds):
            b.declare("hlojit_clear", "declare void @hlojit_clear(ptr, i64)")
            for number, kind in enumerate(self.site.results, len(self.site.operands)):
                memory = load_buffer(b, buffers, number)
                begin, end = (self._offset(each, _CLEARED_BYTES, kind.nbytes) for each in bounds)
                first = b.emit("ptr", 1, f"getelementptr i8, ptr {memory.text}, i64 {begin.text}")
                count = b.emit("i64", 1, f"sub i64 {end.text}, {begin.text}")
                b.line(f"call void @hlojit_clear(ptr {first.text}, i64 {count.text})")
        return Phase(symbol, -(-largest // _CLEARED_BYTES), min(1.0, largest / _CLEARED_BYTES) * _CLEARED_NANOSECONDS)

    def _checking(self) -> Phase:
        """A launch of its own that looks at the codes, when all tasks have written theirs."""
        b, symbol, coded = self.b, f"{self.symbol}.check", self._coded()
        parameters = [("ptr", "context"), ("ptr", "buffers"), ("i64", "begin"), ("i64", "end")]
        with b.function(symbol, parameters) as (context, buffers, *bounds):
            for number, kind in coded:
                memory = load_buffer(b, buffers, len(self.site.operands) + number)
                begin, end = (self._offset(each, _CHECKED_CODES, kind.size) for each in bounds)
                self._check_range(context, number, f"ptr {memory.text}", begin, end)
        most = max(kind.size for _, kind in coded)
        return Phase(symbol, -(-most // _CHECKED_CODES), min(1.0, most / _CHECKED_CODES) * _CHECKED_NANOSECONDS)

    def _offset(self, task: Val, each: int, size: int) -> Val:
        """Where a task begins in a result of a size, of which each task has so much."""
        at = self.b.emit("i64", 1, f"mul i64 {task.text}, {each}")
        inside = self.b.emit("i1", 1, f"icmp ult i64 {at.text}, {size}")
        return self.b.emit("i64", 1, f"select i1 {inside.text}, i64 {at.text}, i64 {size}")

    def _compiled(self) -> tuple[LinkedArrays, str, list[str]]:
        site = self.site
        code, unkeyable = compile_arrays(
            self.function,
            site.operands,
            site.results,
            site.user,
            has_range=True,
            takes_addresses=self.tasks.pointers,
        )
        if self.tasks.tasks > 1 and any(is_library(name) for _, name in code.imports):
            warn_of_tasks(site.user)
        return code, unkeyable, [f"i64 {each.text}" for each in self.range]

    def _clear_results(self, arrays: Sequence[str]) -> None:
        """Nothing: a launch before has done it."""

    def _check_codes(self, context: Val, arrays: Sequence[str]) -> None:
        """Nothing: other tasks have not written yet, a launch behind them looks."""
