"""What is wrong with a kernel, said in words."""

from __future__ import annotations

from typing import final

from hlojit.ir.errors import ExecutionError
from hlojit.simt.simulator.facts import KernelFacts
from hlojit.simt.simulator.records import MOST_COPIES, SEVERAL_BLOCKS, FaultKind


@final
class KernelFaultError(ExecutionError):
    """A simulated kernel did what no kernel may do; nothing was read or written out of range.

    ``kind`` is what, ``kernel`` its symbol, ``block`` and ``thread`` say who.
    """

    def __init__(self, kind: FaultKind, kernel: str, block: int, thread: int, message: str):
        self.kind = kind
        self.kernel = kernel
        self.block = block
        self.thread = thread
        super().__init__(message)


def fault_of(noted: dict[str, int], facts: KernelFacts, kernel: str, what: str) -> KernelFaultError:
    """The exception for what a launch record says; ``what`` says for people which instruction the kernel is."""
    kind = FaultKind(noted["kind"])
    head = f"kernel {kernel}{f' ({what})' if what else ''}"
    message = f"{head}, block {noted['block']}, thread {noted['thread']}: {_text(kind, noted, facts)}"
    if kind is FaultKind.LAUNCH:
        message = f"{head}: {_text(kind, noted, facts)}"
    return KernelFaultError(kind, kernel, noted["block"], noted["thread"], message)


def _text(kind: FaultKind, noted: dict[str, int], facts: KernelFacts) -> str:
    site, other_site = (_site(facts, noted[name]) for name in ("site", "other_site"))
    thread, other = noted["thread"], noted["other_thread"]
    if kind is FaultKind.OUTSIDE:
        return f"{site} at byte {noted['offset']:,}, outside of it"
    if kind is FaultKind.MISALIGNED:
        return f"{site} at byte {noted['offset']:,}, which is no multiple of what the instruction promises"
    if kind is FaultKind.SHARED_RACE:
        copied = any(each.startswith("asynchronous") for each in (site, other_site))
        return (
            f"{site} races with the {other_site} by thread {other}: both touch byte {noted['offset']:,} of the block's shared "
            "memory, one of them writes, and no barrier lies between them"
            f"{', or the thread of the copy has not waited for it' if copied else ''}"
        )
    if kind is FaultKind.COPIES:
        return f"{site}: {MOST_COPIES} copies of the thread are under way, and it has waited for none of them"
    if kind is FaultKind.BUFFER_RACE:
        by = f"thread {other} of block {noted['other_block']}"
        if noted["other_block"] == SEVERAL_BLOCKS:
            by = "threads of several blocks"
        return (
            f"{site} at byte {noted['offset']:,} races with {by}, which {'wrote' if noted['other_site'] else 'read'} the same "
            "element: nothing orders them"
        )
    if kind is FaultKind.DIVERGED:
        where = f"is at {other_site}" if noted["other_site"] else "has ended"
        return f"waits at {site}, where thread {other} never comes: it {where}"
    if kind is FaultKind.PARTIAL_WARP:
        return f"{site} needs all lanes of a warp, this one has the threads {thread} to {other - 1} only"
    return (
        f"it is made for blocks of {facts.threads} threads and at least {facts.shared_bytes:,} bytes of shared memory, "
        f"and was launched with {noted['threads']} threads and {noted['shared_bytes']:,} bytes"
    )


def _site(facts: KernelFacts, number: int) -> str:
    return facts.sites[number] if number < len(facts.sites) else "access"
