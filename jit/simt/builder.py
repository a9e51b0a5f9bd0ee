"""``SimtBuilder``: LLVM IR text of one thread of many.  Lanes of its vectors are elements of the thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import final

from hlojit.llvm.builder import LlvmBuilder
from hlojit.llvm.text import Val
from hlojit.lowering.target import KIND_BITS
from hlojit.simt.dialect import Dialect


@final
class SimtBuilder(LlvmBuilder):
    """``LlvmBuilder`` with what threads have: numbers, barriers, shuffles, shared memory."""

    def __init__(self, dialect: Dialect):
        super().__init__()
        self.dialect = dialect
        self.thread: Val
        """Number of the thread in its block (i32)."""
        self.block: Val
        """Number of the block (i32)."""
        self.shared_bytes = 0
        """Shared memory that the kernel under construction has taken."""
        self.threads = 0

    @contextmanager
    def kernel(self, symbol: str, buffers: int, threads: int) -> Iterator[list[Val]]:
        """Emit a kernel function; gives the addresses of its buffers."""
        self.shared_bytes, self.threads = 0, threads
        with self.dialect.kernel(self, symbol, buffers, threads) as addresses:
            self.thread = self.dialect.thread(self)
            self.block = self.dialect.block(self)
            yield addresses

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
        self.shared_bytes = offset + count * max(8, KIND_BITS[kind]) // 8
        return self.dialect.shared(self, offset)

    def shuffle_xor(self, value: Val, mask: int) -> Val:
        """The value of the lane whose number differs in ``mask``; in every lane of the warp, a scalar of any kind."""
        assert value.lanes == 1
        if value.kind in ("f32", "f64"):
            bits = self.bitcast(value, "i32" if value.kind == "f32" else "i64")
            return self.bitcast(self.shuffle_xor(bits, mask), value.kind)
        if value.kind == "i64":
            low = self.shuffle_xor(self.trunc(value, "i32"), mask)
            high = self.shuffle_xor(self.trunc(self.lshr(value, self.constant("i64", 32)), "i32"), mask)
            upper = self.shl(self.zext(high, "i64"), self.constant("i64", 32))
            return self.or_(upper, self.zext(low, "i64"))
        return self.trunc(self.dialect.shuffle(self, self.zext(value, "i32"), mask), value.kind)

    # ------------------------------------------------------------ control flow

    def when(self, condition: Val, body: Callable[[], None]) -> None:
        """Run ``body`` where the (scalar) condition holds."""
        inside, after = self.fresh_label("when"), self.fresh_label("after")
        self.branch_if(condition, inside, after)
        self.begin_block(inside)
        body()
        self.branch(after)
        self.begin_block(after)

    def choose(self, condition: Val, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Run one of two bodies."""
        labels = [self.fresh_label(stem) for stem in ("then", "else", "join")]
        self.branch_if(condition, labels[0], labels[1])
        for label, body in zip(labels, (then, otherwise)):
            self.begin_block(label)
            body()
            self.branch(labels[2])
        self.begin_block(labels[2])

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
