"""What is known of a simulated kernel besides its code; it lies in the object beside it, so that objects are all there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class BufferFacts:
    """One buffer of a kernel: what it is for people, its bytes, and whether the kernel writes it."""

    what: str
    nbytes: int
    itemsize: int
    is_written: bool


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What messages and launches need: ``sites[n]`` says what instruction ``n`` does (0: none).

    ``members[n]`` is the number of the fusion's instruction for which it does that; -1: of none, or of none that is known.
    """

    threads: int
    shared_bytes: int
    buffers: tuple[BufferFacts, ...]
    sites: tuple[str, ...]
    members: tuple[int, ...] = ()

    def to_text(self) -> str:
        """As one line of text."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_text(text: str) -> KernelFacts:
        """The facts that ``to_text`` wrote."""
        read = json.loads(text)
        buffers = tuple(BufferFacts(**each) for each in read["buffers"])
        sites, members = tuple(read["sites"]), tuple(read["members"])
        return KernelFacts(read["threads"], read["shared_bytes"], buffers, sites, members)

    def named(self, names: Sequence[str]) -> KernelFacts:
        """The facts whose sites name the instructions of a fusion."""
        sites = [
            f"{site} for {names[member]}" if 0 <= member < len(names) else site
            for site, member in zip(self.sites, self.members)
        ]
        return replace(self, sites=tuple(sites) or self.sites)


def facts_symbol(symbol: str) -> str:
    """Symbol of the text that lies beside a kernel."""
    return f"{symbol}.facts"
