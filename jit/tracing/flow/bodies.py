"""The body of a loop, once it has been recorded for one round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

from hlojit.ir.blocks import Block
from hlojit.ir.graph import Value
from hlojit.tracing.arrays.storage import Storage
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.joining import Ending, storages_of
from hlojit.tracing.flow.regions import Region
from hlojit.tracing.rewriting import Site
from hlojit.tracing.tracer import Tracer


@final
class Body:
    """One round, recorded."""

    def __init__(
        self,
        made: Region,
        block: Block,
        given: dict[Storage, Value],
        extras: Sequence[Value],
        ending: Ending,
        arrays: Mapping[str, Sequence[Storage]],
        number: int,
    ):
        self.frame = made.frame
        self.block = block
        self.given = given
        self.extras = list(extras)
        self.ending = ending
        self.number = number
        """How many containers had been noted when it began."""
        self.going: Value | None = None
        self.arrays = arrays
        """What comes from the round before, by variables."""

    @property
    def passes_on(self) -> bool:
        """Whether a variable ends a round with an array that comes from the round before, or with one of outside."""
        if self.ending.region.ended:
            return True
        left = [storage for each in self.ending.leaves.values() for storage in storages_of(each) if storage is not None]
        before = {each for several in self.arrays.values() for each in several}
        # And what these may be: an array that a branch of the body gives may be the one that it found.
        left += [ally for storage in left for ally, _ in storage.allies]
        return any(storage in before or storage.frame is not self.frame for storage in left)

    @property
    def writes_to_carried(self) -> bool:
        """Whether it writes an array that comes from the round before."""
        return any(storage.version for several in self.arrays.values() for storage in several)

    def require_no_alias(self, site: Site, carried: Iterable[str], written: Sequence[Storage]) -> None:
        """Refuse bodies whose second round would have arrays that are one memory, if one of them is written."""
        if self.ending.region.ended:
            return
        seen: dict[Storage, str] = {}
        for name in carried:
            for leaf in self.ending.leaves[name].traced if name in self.ending.leaves else ():
                if type(leaf) is not Tracer or leaf.is_scalar:
                    continue
                storage = leaf.window.storage
                is_outer = storage.frame is not self.frame
                again = storage in seen and self.ending.values[name] is not self.ending.values[seen[storage]]
                writes = self.writes_to_carried
                if (is_outer and (writes or storage in written)) or (again and writes):
                    raise TracingError(
                        f"{site} {site.label(name)} is at the end of a round the memory of "
                        f"{'an array of outside' if is_outer else site.label(seen[storage])}, and the body writes arrays: "
                        "it is not known what a write changes; copy it (.copy())"
                    )
                seen[storage] = name
