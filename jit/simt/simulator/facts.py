"""What is known of a simulated kernel besides its code; it lies in the object beside it, so that objects are all there is."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class BufferFacts:
    """One buffer of a kernel: what it is for people, its bytes, and whether the kernel writes it."""

    what: str
    nbytes: int
    itemsize: int
    is_written: bool


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What messages and launches need: ``sites[n]`` says what instruction ``n`` does (0: none)."""

    threads: int
    shared_bytes: int
    buffers: tuple[BufferFacts, ...]
    sites: tuple[str, ...]

    def to_text(self) -> str:
        """As one line of text."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_text(text: str) -> KernelFacts:
        """The facts that ``to_text`` wrote."""
        read = json.loads(text)
        buffers = tuple(BufferFacts(**each) for each in read["buffers"])
        return KernelFacts(read["threads"], read["shared_bytes"], buffers, tuple(read["sites"]))


def facts_symbol(symbol: str) -> str:
    """Symbol of the text that lies beside a kernel."""
    return f"{symbol}.facts"
