"""Liveness of buffers over the steps of a program: from which position to which each one holds data.

Every step has a position; a loop spans those of its condition and body.  A buffer lives from its first write to its last
read.  What is read in a loop and was written before it lives until the loop's end, for the next iteration reads it again:

    copy a -> t            1          t: 1 .. 5
    loop                   2 .. 5
      launch p = f t       3
    while p                4

The target and the source of a transfer or collective live until it is waited for, and so does all that a body uses which
somebody else runs.  Buffers whose addresses a loop exchanges live as long as either cell is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hlojit.lowering.program import (
    Begin,
    Branch,
    Buffer,
    BufferKind,
    Collective,
    Loop,
    PointCell,
    Program,
    Step,
    Swap,
    Transfer,
    Wait,
)


@dataclass(slots=True)
class Life:
    """First and last position, and whether some read may see memory that nothing has written."""

    start: int
    end: int
    is_read_unwritten: bool = False


@dataclass(slots=True, eq=False)
class _Scope:
    """One list of steps that is being walked: the construct that holds it, and what was written in it."""

    steps: Iterator[Step]
    owner: _Construct | None = None
    written: list[Buffer] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Construct:
    """A loop, branch or body of somebody else's that is being walked."""

    step: Loop | Branch | Begin
    start: int
    lists: Iterator[list[Step]]
    extended: list[Buffer] = field(default_factory=list)
    """Buffers that must live until a loop's end."""
    written: list[set[Buffer]] = field(default_factory=list)
    """What each list of steps wrote for those that come after it in the same construct."""


class Liveness:
    """Lives of all buffers that steps of ``program`` touch."""

    def __init__(self, program: Program):
        self.lives: dict[Buffer, Life] = {}
        self.end = 0
        """Last position."""
        self.spans: dict[int, tuple[int, int]] = {}
        """First and last position of every loop, by its identity."""
        self._definitions: dict[Buffer, list[int]] = {}
        """For every buffer, in how many loops its valid writes stand, the innermost last."""
        self._loops: list[_Construct] = []
        self._targets = _targets(program)
        self._pending: dict[int, tuple[Buffer, ...]] = {}
        self._scopes: list[_Scope] = [_Scope(iter(program.steps))]
        for buffer in program.inputs:
            self._definitions[buffer] = [0]
        while self._scopes:
            self._next(self._scopes[-1])

    # ------------------------------------------------------------------ walk

    def _next(self, scope: _Scope) -> None:
        step = next(scope.steps, None)
        if step is None:
            self._leave(scope)
            return
        self.end += 1
        if isinstance(step, (Loop, Branch, Begin)):
            if isinstance(step, Branch):
                self._read(step.index)
            elif isinstance(step, Begin):
                self._pending[step.event] = _used(step)
            construct = _Construct(step, self.end, iter(step.nested))
            if isinstance(step, Loop):
                self._loops.append(construct)
            self._enter(construct)
        else:
            self._touch(step)

    def _touch(self, step: Step) -> None:
        if isinstance(step, PointCell):
            # The memory is the cell's from now on, whether or not it holds anything yet.
            self._write(step.target)
            self._cover(step.cell, self.end)
            return
        for buffer in step.reads:
            self._read(buffer)
        for buffer in step.writes:
            self._write(buffer)
        if isinstance(step, (Transfer, Collective)) and step.event is not None:
            self._pending[step.event] = (step.source, step.target)
        elif isinstance(step, Wait):
            for buffer in self._pending.get(step.event, ()):
                self._keep(buffer)

    def _enter(self, construct: _Construct) -> None:
        """Begin the construct's next list of steps, or end the construct."""
        steps = next(construct.lists, None)
        if steps is not None:
            self._scopes.append(_Scope(iter(steps), construct))
            return
        self.end += 1
        if isinstance(construct.step, Loop):
            self._loops.pop()
            self.spans[id(construct.step)] = construct.start, self.end
            for buffer in construct.extended:
                self._cover(buffer, self.end)
            # The condition has run at least once, and the body has not.
            after = construct.written[0]
        else:
            after = set.intersection(*construct.written) if construct.written else set()
        for buffer in after:
            self._write(buffer, touch=False)

    def _leave(self, scope: _Scope) -> None:
        self._scopes.pop()
        construct = scope.owner
        if construct is None:
            return
        is_condition = isinstance(construct.step, Loop) and not construct.written
        if is_condition:
            assert isinstance(construct.step, Loop)
            self._read(construct.step.predicate)
        construct.written.append(set(scope.written))
        if is_condition:
            # What the condition wrote is there in the body, and is given up after it.
            steps = next(construct.lists)
            self._scopes.append(_Scope(iter(steps), construct, scope.written))
            return
        for buffer in scope.written:
            self._definitions[buffer].pop()
        self._enter(construct)

    # ---------------------------------------------------------------- access

    def _cover(self, buffer: Buffer, position: int) -> Life:
        life = self.lives.get(buffer)
        if life is None:
            life = self.lives[buffer] = Life(position, position)
        life.start = min(life.start, position)
        life.end = max(life.end, position)
        return life

    def _keep(self, buffer: Buffer) -> None:
        """What has been read or written before was used until now."""
        if buffer.kind is BufferKind.SWAPPED:
            self._use_cell(buffer)
        else:
            self._cover(buffer, self.end)

    def _read(self, buffer: Buffer) -> None:
        if buffer.kind is BufferKind.SWAPPED:
            self._use_cell(buffer)
            return
        life = self._cover(buffer, self.end)
        definitions = self._definitions.get(buffer)
        depth = definitions[-1] if definitions else 0
        if not definitions and buffer.kind not in (BufferKind.CONSTANT, BufferKind.INPUT) and buffer.nbytes:
            life.is_read_unwritten = True
        if depth < len(self._loops):
            outermost = self._loops[depth]
            life.start = min(life.start, outermost.start) if not definitions else life.start
            outermost.extended.append(buffer)

    def _write(self, buffer: Buffer, *, touch: bool = True) -> None:
        if buffer.kind is BufferKind.SWAPPED:
            self._use_cell(buffer)
            return
        if touch:
            self._cover(buffer, self.end)
        scope = self._scopes[-1]
        definitions = self._definitions.setdefault(buffer, [])
        if scope.owner is not None or not definitions:
            definitions.append(len(self._loops))
            scope.written.append(buffer)

    def _use_cell(self, cell: Buffer) -> None:
        """One of the buffers that a cell may point to is read or written: all must be there, and keep what they hold."""
        self._cover(cell, self.end)
        for target in self._targets.get(cell, ()):
            self._read(target)


def _used(begin: Begin) -> tuple[Buffer, ...]:
    """All that somebody else reads or writes."""
    return tuple(dict.fromkeys(buffer for step in begin.lent for buffer in (*step.reads, *step.writes)))


def _targets(program: Program) -> dict[Buffer, list[Buffer]]:
    """Which buffers a cell may point to: its own and, once they have been exchanged, its partner's."""
    groups: dict[Buffer, tuple[list[Buffer], list[Buffer]]] = {}
    """Cells that are exchanged with each other, and their targets."""
    for step in program.walk():
        if isinstance(step, PointCell):
            groups.setdefault(step.cell, ([step.cell], []))[1].append(step.target)
    for step in program.walk():
        if isinstance(step, Swap):
            first, second = (groups.setdefault(cell, ([cell], [])) for cell in (step.first, step.second))
            if first is not second:
                first[0].extend(second[0])
                first[1].extend(second[1])
                groups.update(dict.fromkeys(second[0], first))
    return {cell: targets for cell, (_, targets) in groups.items()}
