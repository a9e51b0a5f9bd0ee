"""One region of a construct while its part of the source runs: what is recorded, and what the source did besides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from hlojit.ir.blocks import Block
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.checks import Checks
from hlojit.tracing.flow.failures import note_unknown_path
from hlojit.tracing.flow.journal import Journal
from hlojit.tracing.flow.mutations import Known
from hlojit.tracing.frames import Frame, recording
from hlojit.tracing.operations import Operations
from hlojit.tracing.rewriting import Site

if TYPE_CHECKING:
    from hlojit.tracing.flow.runtime import TracedRuntime

CODE_TYPE = tensor((), "i32")


@final
class Region:
    """A path through a construct."""

    def __init__(self, site: Site, frame: Frame, known: Known, labels: dict[int, str], *, may_end: bool):
        self.site = site
        self.frame = frame
        self.known = known
        """The objects of Python that there were before."""
        self.journal = Journal(labels)
        """Those of them that it changes."""
        self.may_end = may_end
        """Whether it may not run, so that what it raises is raised where it does."""
        self.ended = False
        """Whether it has come to a ``raise``: nothing follows, and its state means nothing."""

    def require_noted(self, runtime: TracedRuntime) -> None:
        """Raise ``TracingError`` of what was changed unseen, by a library's function or by reading it."""
        for thing in self.known.changed():
            if id(thing) not in self.journal.entries:
                runtime.refuse_change(self.site, thing)


@contextmanager
def region(runtime: TracedRuntime, site: Site, block: Block, *, may_end: bool = True) -> Iterator[Region]:
    """Record into a block; ``runtime.regions`` holds it meanwhile."""
    with recording(runtime.ops, block) as frame:
        made = Region(site, frame, Known.now(), runtime.labels, may_end=may_end)
        runtime.regions.append(made)
        try:
            yield made
            made.require_noted(runtime)
        except Exception as error:
            note_unknown_path(error)
            raise
        finally:
            runtime.regions.pop()
            made.journal.restore()


@contextmanager
def behind(ops: Operations, frame: Frame) -> Iterator[Builder]:
    """Build at the end of a region that was recorded."""
    outer, checks = ops.builder, ops.checks
    ops.builder = Builder(frame.block, location=outer.location)
    ops.checks = Checks(checks.made)
    ops.checks.running = frame.code
    ops.frames.append(frame)
    carries, ops.carries = ops.carries, True
    try:
        with frame.again():
            yield ops.builder
    finally:
        ops.carries = carries
        frame.code = ops.checks.running
        ops.frames.pop()
        ops.builder, ops.checks = outer, checks


def code_of(ops: Operations, frame: Frame) -> Value:
    """The number of the check that failed in a region, in its own block."""
    return frame.code if frame.code is not None else ops.builder.constant(0, CODE_TYPE)
