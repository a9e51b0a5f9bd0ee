"""``SimtBuilder``: LLVM IR text of one thread of many.  Lanes of its vectors are elements of the thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, final

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import FloatFormat
from hlojit.llvm.builder import LlvmBuilder, Loop
from hlojit.llvm.text import Val
from hlojit.lowering.grid_matrix_plan import MatrixInput, MatrixInputs
from hlojit.lowering.matrix_layout import MatrixLayout
from hlojit.lowering.target import KIND_BITS
from hlojit.simt.c_library import without_c_library
from hlojit.simt.dialect import Dialect, Memory, MemoryAccess, Use
from hlojit.simt.portable_matrices import Fragments
from hlojit.simt.status import WORD, ThreadCalls, status_bytes

_NAMES = re.compile(r"%[\w.]+")


@final
class SimtBuilder(LlvmBuilder):
    """``LlvmBuilder`` with what threads have: numbers, barriers, shuffles, shared memory."""

    def __init__(self, dialect: Dialect):
        super().__init__()
        self.dialect = dialect.for_module()
        self.foreign: ThreadCalls = ThreadCalls(self)
        self.thread: Val
        """Number of the thread in its block (i32)."""
        self.block: Val
        """Number of the block (i32)."""
        self.shared_bytes = 0
        """Shared memory that the kernel under construction has taken."""
        self.threads = 0
        self.at_once = 1
        """Blocks of the kernel that a multiprocessor should have registers for: what is unrolled must not take them all."""
        self.buffers: tuple[Memory, ...] = ()
        """The buffers of the kernel under construction."""
        self.member: Callable[[], int] = lambda: -1
        """The number of the fusion's instruction for which memory is accessed now, for messages."""
        self._numbers = 0
        self._memories: dict[str, Memory] = {}
        """What pointers point into, by their names.  Others are private: constants, the thread's own stack."""

    @contextmanager
    def kernel(self, symbol: str, buffers: Sequence[Memory], threads: int, *, at_once: int = 1) -> Iterator[list[Val]]:
        """Emit a kernel function; gives the addresses of its buffers."""
        self.shared_bytes, self.threads, self.at_once = 0, threads, at_once
        self.buffers = tuple(replace(memory, number=number) for number, memory in enumerate(buffers))
        self._memories = {}
        self._numbers = 0
        self.foreign.begin_kernel()
        with self.dialect.kernel(self, symbol, len(buffers), threads) as addresses:
            for memory, address in zip(self.buffers, addresses, strict=True):
                self._memories[address.text] = replace(memory, base=address)
            self.thread = self.dialect.thread(self)
            self.block = self.dialect.block(self)
            yield addresses

    def status(self) -> Val:
        """Address of the kernel's status (``status.py``), one more of its parameters: asked for once a kernel."""
        return self.dialect.status(self, len(self.buffers))

    def number(self) -> Val:
        """A number (i64), one more parameter; a kernel that takes numbers has no status."""
        assert not self.foreign.has_status
        self._numbers += 1
        return self.dialect.number(self, len(self.buffers) + self._numbers - 1)

    @property
    def all_buffers(self) -> tuple[Memory, ...]:
        """What the kernel's parameters are: its buffers, and its status if it has one; numbers are no bytes anywhere."""
        if self._numbers:
            first = len(self.buffers)
            return (*self.buffers, *(Memory("a number", 0, number=first + each) for each in range(self._numbers)))
        if not self.foreign.has_status:
            return self.buffers
        return (*self.buffers, Memory("the status", status_bytes(self.foreign.reports), WORD, len(self.buffers)))

    def module_text(self) -> str:
        """Declarations, constants and all functions, in the dialect's form."""
        return self.dialect.finish(self, super().module_text())

    # -------------------------------------------------------- threads together

    def barrier(self) -> None:
        """Wait for all threads of the block; none may be missing."""
        self.dialect.barrier(self)

    def shared(self, kind: str, count: int) -> Val:
        """Address of ``count`` elements in the block's shared memory, aligned to 16 bytes."""
        offset = -(-self.shared_bytes // 16) * 16
        itemsize = max(8, KIND_BITS[kind]) // 8
        self.shared_bytes = offset + count * itemsize
        base = self.dialect.shared(self, offset)
        what = f"shared memory from byte {offset} on ({count} x {kind})"
        self._memories[base.text] = Memory(what, count * itemsize, itemsize, offset=offset, base=base)
        return base

    def shared_again(self, kind: str, count: int) -> Val:
        """Address of ``count`` elements in the shared memory that the kernel has taken so far, from its beginning on."""
        taken, self.shared_bytes = self.shared_bytes, 0
        base = self.shared(kind, count)
        self.shared_bytes = max(taken, self.shared_bytes)
        return base

    def global_thread(self) -> Val:
        """Number of the thread among those of all blocks (i64)."""
        first = self.mul(self.zext(self.block, "i64"), self.constant("i64", self.threads))
        return self.add(first, self.zext(self.thread, "i64"))

    def sync_warp(self) -> None:
        """Wait for all lanes of the warp, and see what they wrote."""
        self.dialect.sync_warp(self)

    def ballot(self, predicate: Val) -> Val:
        """The predicates of the warp's lanes as the bits of an integer (``Dialect.vote_kind``)."""
        return self.dialect.ballot(self, predicate)

    def shuffle_xor(self, value: Val, mask: int) -> Val:
        """The value of the lane whose number differs in ``mask``; in every lane of the warp, a scalar of any kind."""
        return self._shuffled(value, lambda word: self.dialect.shuffle(self, word, mask))

    def shuffle_from(self, value: Val, lane: Val) -> Val:
        """The value of the lane of a number (i32); in every lane of the warp, a scalar of any kind."""
        return self._shuffled(value, lambda word: self.dialect.shuffle_from(self, word, lane))

    def matrix_fragments(self, layout: MatrixLayout, base: Val, first: Val, *, is_left: bool) -> Fragments:
        """What lanes read of an operand's steps in shared memory; ``first`` (i32) is the warp's first row."""
        return self.dialect.matrix_fragments(self, layout, base, first, is_left=is_left)

    def matrix_multiply(
        self, inputs: MatrixInputs, left: Sequence[Val], right: Sequence[Val], sums: Sequence[Val], exchange: Val | None
    ) -> list[Val]:
        """The lane's four sums after multiplying 16 rows by 8 columns; all lanes of the warp take part."""
        return self.dialect.matrix_multiply(self, inputs, left, right, sums, exchange)

    def matrix_elements(self, stored: Val, format: FloatFormat, input: MatrixInput) -> Val | None:
        """What stands in memory as elements of a type that matrix instructions take, where there is a short way."""
        return self.dialect.matrix_elements(self, stored, format, input)

    def _shuffled(self, value: Val, shuffle: Callable[[Val], Val]) -> Val:
        """Shuffle a scalar by 32-bit words."""
        assert value.lanes == 1
        if value.kind in ("f32", "f64"):
            bits = self.bitcast(value, "i32" if value.kind == "f32" else "i64")
            return self.bitcast(self._shuffled(bits, shuffle), value.kind)
        if value.kind == "i64":
            low = shuffle(self.trunc(value, "i32"))
            high = shuffle(self.trunc(self.lshr(value, self.constant("i64", 32)), "i32"))
            upper = self.shl(self.zext(high, "i64"), self.constant("i64", 32))
            return self.or_(upper, self.zext(low, "i64"))
        if value.kind == "i32":
            return shuffle(value)
        return self.trunc(shuffle(self.zext(value, "i32")), value.kind)

    def extremum(self, a: Val, b: Val, *, is_maximum: bool) -> Val | None:
        """IEEE 754-2019 maximum or minimum, where the machine has an instruction for it."""
        return self.dialect.extremum(self, a, b, is_maximum=is_maximum)

    def encoded(self, value: Val, format: FloatFormat) -> Val | None:
        """What stands in memory for a value rounded to a format, where the machine has instructions for it."""
        return self.dialect.encoded(self, value, format)

    def decoded(self, stored: Val, format: FloatFormat) -> Val | None:
        """The value of what stands in memory, where the machine has instructions for it."""
        return self.dialect.decoded(self, stored, format)

    # ---------------------------------------------------------------- memory

    def emit(self, kind: str, lanes: int, text: str) -> Val:
        """Append an instruction; an address that is made of another one points into the same memory."""
        value = super().emit(kind, lanes, text)
        if kind == "ptr":
            made_of = {self._memories[name] for name in _NAMES.findall(text) if name in self._memories}
            assert len(made_of) <= 1, f"{text} points into several memories"
            self._memories.update((value.text, memory) for memory in made_of)
        return value

    def begin_loop(
        self, start: Val, end: Val, step: int = 1, carried: Sequence[Val] = (), *, guarded: bool | None = None
    ) -> Loop:
        """``LlvmBuilder.begin_loop``; addresses that it carries stay in their memory."""
        loop = super().begin_loop(start, end, step, carried, guarded=guarded)
        for outside, inside in zip(carried, loop.carried):
            if outside.text in self._memories:
                self._memories[inside.text] = self._memories[outside.text]
        return loop

    def _check(self, pointer: Val, lanes: int, kind: str, use: Use, *, mask: Val | None = None, align: int = 0) -> None:
        memory = self._memories.get(pointer.text)
        if memory is not None:
            align = align or max(8, KIND_BITS[kind]) // 8
            member = self.member() if not memory.is_shared else -1
            self.dialect.check(self, MemoryAccess(memory, pointer, lanes, kind, mask, use, align, member))

    def load(self, kind: str, pointer: Val, *, vector: bool = False, flags: str = "", align: int = 0) -> Val:
        """Load one element, or (``vector``) the builder's lanes of consecutive ones."""
        self._check(pointer, self.lanes if vector else 1, kind, Use.LOAD, align=align)
        return super().load(kind, pointer, vector=vector, flags=flags, align=align)

    def store(self, value: Val, pointer: Val, *, flags: str = "", align: int = 0) -> None:
        """Store a value (all its lanes, consecutively)."""
        self._check(pointer, value.lanes, value.kind, Use.STORE, align=align)
        super().store(value, pointer, flags=flags, align=align)

    def copy_async(self, kind: str, lanes: int, target: Val, source: Val, exists: Val | None = None) -> None:
        """Begin to copy neighbours from a buffer to shared memory: 4, 8 or 16 bytes, aligned to as many.

        Where ``exists`` is false nothing is read, and zeros are written.  Nobody may touch the target until the thread has
        waited for the copy, other threads until a barrier after that.
        """
        nbytes = lanes * max(8, KIND_BITS[kind]) // 8
        assert nbytes in (4, 8, 16)
        self._check(source, lanes, kind, Use.LOAD, align=nbytes)
        self._check(target, lanes, kind, Use.COPY, align=nbytes)
        access = MemoryAccess(self._memories[target.text], target, lanes, kind, None, Use.COPY, nbytes)
        self.dialect.copy_async(self, access, source, exists)

    def commit_copies(self) -> None:
        """What the thread has begun to copy since it was here last is one group (which may be empty)."""
        self.dialect.commit_copies(self)

    def wait_for_copies(self, left: int) -> None:
        """Wait for all of the thread's groups of copies but the last ``left`` ones."""
        self.dialect.wait_for_copies(self, left)

    def gather(self, kind: str, pointers: Val, mask: Val | None = None) -> Val:
        """Load from a vector of addresses; lanes whose mask is 0 are not read and give 0."""
        self._check(pointers, pointers.lanes, kind, Use.LOAD, mask=mask)
        return super().gather(kind, pointers, mask)

    def scatter(self, value: Val, pointers: Val, mask: Val | None = None) -> None:
        """Store to a vector of addresses where the mask is 1."""
        self._check(pointers, pointers.lanes, value.kind, Use.STORE, mask=mask)
        super().scatter(value, pointers, mask)

    def masked_load(self, kind: str, pointer: Val, mask: Val) -> Val:
        """Load consecutive elements; lanes whose mask is 0 are not read and give 0."""
        self._check(pointer, mask.lanes, kind, Use.LOAD, mask=mask)
        return super().masked_load(kind, pointer, mask)

    def masked_store(self, value: Val, pointer: Val, mask: Val) -> None:
        """Store consecutive elements where the mask is 1."""
        self._check(pointer, mask.lanes, value.kind, Use.STORE, mask=mask)
        super().masked_store(value, pointer, mask)

    def atomic(self, operation: str, pointer: Val, value: Val) -> Val:
        """``atomicrmw`` of a scalar (``add``, ``fadd``, ``umax`` ...), in no order with others; returns what was there."""
        self._check(pointer, 1, value.kind, Use.ATOMIC)
        text = f"atomicrmw {operation} ptr {pointer.text}, {self.type_of(value)} {value.text}{self._scope} monotonic"
        return self.emit(value.kind, 1, text)

    def compare_exchange(self, pointer: Val, expected: Val, value: Val) -> Val:
        """Store an integer where what is there is the expected one; returns what was there."""
        self._check(pointer, 1, value.kind, Use.ATOMIC)
        kind = self.type_of(value)
        text = (
            f"cmpxchg ptr {pointer.text}, {kind} {expected.text}, {kind} {value.text}{self._scope} monotonic monotonic"
        )
        self.line(f"{(pair := self.name())} = {text}")
        return self.emit(value.kind, 1, f"extractvalue {{ {kind}, i1 }} {pair}, 0")

    @property
    def _scope(self) -> str:
        """Of atomic instructions: no other device and not the host looks at what a kernel is writing."""
        return f' syncscope("{self.dialect.device_scope}")' if self.dialect.device_scope else ""

    # ------------------------------------------------------------ control flow

    def when(self, condition: Val, body: Callable[[], None]) -> None:
        """Run ``body`` where the (scalar) condition holds."""
        inside, after = self.fresh_label("when"), self.fresh_label("after")
        self.branch_if(condition, inside, after)
        self.begin_block(inside)
        body()
        self.branch(after)
        self.begin_block(after)

    def either(self, condition: Val, then: Callable[[], Sequence[Val]], otherwise: Sequence[Val]) -> list[Val]:
        """What ``then`` gives where the (scalar) condition holds, run only there, and other values elsewhere."""
        inside, after, before = self.fresh_label("when"), self.fresh_label("after"), self.label
        # A phi stands behind both blocks: other values are spread over lanes before they part.
        place = len(self.lines)
        self.branch_if(condition, inside, after)
        branch = self.lines.pop()
        self.begin_block(inside)
        values = list(then())
        end, lines = self.label, self.lines[place:]
        del self.lines[place:]
        others = [self.splat(other, value.lanes) for value, other in zip(values, otherwise, strict=True)]
        self.lines += [branch, *lines]
        self.branch(after)
        self.begin_block(after)
        return [
            self.phi(value.kind, value.lanes, [(value, end), (other, before)]) for value, other in zip(values, others)
        ]

    def choose(self, condition: Val, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Run one of two bodies."""
        labels = [self.fresh_label(stem) for stem in ("then", "else", "join")]
        self.branch_if(condition, labels[0], labels[1])
        for label, body in zip(labels, (then, otherwise)):
            self.begin_block(label)
            body()
            self.branch(labels[2])
        self.begin_block(labels[2])

    def call(
        self,
        function: Callable[..., Any],
        kinds: tuple[str, ...],
        result_kind: str,
        arguments: tuple[Val, ...],
        user: str,
    ) -> Val:
        """A plugin's function, lane by lane; refused by name if it needs the C library."""
        _, missing = without_c_library(self._functions.get(function, kinds, result_kind, user).llvm_ir)
        if missing:
            reason = f"its function calls {missing}, for which there is no code on machines with threads"
            raise UnsupportedError(user, "", reason)
        return super().call(function, kinds, result_kind, arguments, user)

    def rare(self, condition: Val, slow: Callable[..., Val], arguments: Sequence[Val], fast: Val) -> Val:
        """``slow`` where the condition holds: a branch for each element, since stack memory is far away."""
        lanes = max(value.lanes for value in (condition, fast, *arguments))
        if lanes == 1:
            return super().rare(condition, slow, arguments, fast)
        result = Val("poison", fast.kind, lanes)
        vectors = [self.splat(value, lanes) for value in (condition, fast, *arguments)]
        for lane in range(lanes):
            where, quick, *scalars = (self.extract(vector, lane) for vector in vectors)
            result = self.insert(result, lane, super().rare(where, slow, scalars, quick))
        return result
