"""Which processes act together in a collective op: its strategy, the groups that follow from the grid, and their rules."""

from __future__ import annotations

import enum
from collections.abc import Callable

from hlojit.ir.attributes import ChannelHandle, Mesh, MeshAxes
from hlojit.ir.blocks import Instruction
from hlojit.ir.errors import Fault, VerificationError
from hlojit.ir.graph import Module
from hlojit.ir.meshes import axes_complaint, groups_of, is_defined, mesh_complaint, mesh_of
from hlojit.ir.ops.attribute_kinds import GROUPS, UNIT, RecordKind
from hlojit.ir.ops.definition import AttributeSpec, Constraint
from hlojit.ir.ops.rules import OpCall, in_range, show
from hlojit.ir.process_grid import Groups, ProcessGrid, grid_of

REPLICA_GROUPS = AttributeSpec("replica_groups", GROUPS)
CHANNEL = AttributeSpec("channel_handle", RecordKind(ChannelHandle), optional=True)
GLOBAL_IDS = AttributeSpec("use_global_device_ids", UNIT, optional=True, default=False)


class Strategy(enum.Enum):
    """What the ids in a program's groups are of; the names are the specification's."""

    CROSS_REPLICA = "replicas"
    CROSS_PARTITION = "partitions"
    CROSS_REPLICA_AND_PARTITION = "replicas with all their partitions"
    FLATTENED_IDS = "processes"

    def count(self, grid: ProcessGrid) -> int:
        """How many ids there are."""
        if self is Strategy.CROSS_PARTITION:
            return grid.partitions
        return grid.processes if self is Strategy.FLATTENED_IDS else grid.replicas

    def groups(self, grid: ProcessGrid, ids: Groups) -> Groups:
        """Groups of processes."""
        found: Groups = getattr(grid, self.name.lower())(ids)
        return found


StrategyOf = Callable[[OpCall], Strategy]


def _has_channel(call: OpCall) -> bool:
    channel = call.attributes.get("channel_handle")
    return channel is not None and channel.handle > 0


def spanning(call: OpCall) -> Strategy:
    """Of ops whose groups may hold replicas and partitions."""
    if not _has_channel(call):
        return Strategy.CROSS_REPLICA
    is_global = bool(call.attributes.get("use_global_device_ids"))
    return Strategy.FLATTENED_IDS if is_global else Strategy.CROSS_REPLICA_AND_PARTITION


def along_one_axis(call: OpCall) -> Strategy:
    """Of ops whose groups hold replicas, or, with a channel, partitions."""
    return Strategy.CROSS_PARTITION if _has_channel(call) else Strategy.CROSS_REPLICA


def along_one_axis_or_global(call: OpCall) -> Strategy:
    """Of ops that may name all processes by their numbers as well."""
    return Strategy.FLATTENED_IDS if call.attributes.get("use_global_device_ids") else along_one_axis(call)


def _module_of(call: OpCall) -> Module | None:
    function = call.function if isinstance(call, Instruction) else None
    return function.module if function is not None else None


def written_groups(call: OpCall) -> Groups | None:
    """The ids that are written, or those along axes of a mesh that is known; -1 fills up groups of different sizes."""
    found = call.attributes["replica_groups"]
    return groups_of(found, _module_of(call)) if isinstance(found, MeshAxes) else tuple(map(tuple, found))


def _mesh_groups_complaint(call: OpCall) -> str | None:
    """What is wrong with groups that are written as axes of a mesh."""
    found = call.attributes["replica_groups"]
    if not isinstance(found, MeshAxes):
        return None
    mesh, module = found.mesh, _module_of(call)
    if isinstance(mesh, str):
        if module is None:
            return None
        if not is_defined(module, mesh):
            return f"replica_groups: there is no mesh @{mesh} in the module"
        known = mesh_of(module, mesh)
        if known is None:
            return None  # something of another dialect, whose axes are not known here
        mesh = known
    assert isinstance(mesh, Mesh)
    complaint = mesh_complaint(mesh) or axes_complaint(mesh, found.axes)
    return f"replica_groups: {complaint}" if complaint else None


MESH_RULE = Constraint("mesh", _mesh_groups_complaint)
"""Groups written as axes of a mesh name one of the module, or hold one, and axes that it has."""


def group_size(call: OpCall, strategy: StrategyOf) -> int | None:
    """Members of a process group; None where only the grid tells."""
    found = written_groups(call)
    if not found or strategy(call) is Strategy.CROSS_REPLICA_AND_PARTITION:
        return None
    return len(found[0]) or None


def empty_groups(call: OpCall) -> bool:
    """Whether there are no groups in the program: everybody is one then."""
    return written_groups(call) == ()


def process_groups(instruction: Instruction, strategy: StrategyOf, *, covers: bool = True) -> Groups:
    """Groups of processes, by the module's grid (by default of one process).

    Raises ``VerificationError`` for ids that the grid does not have, and, with ``covers``, for those that are missing.
    """
    grid = grid_of(instruction) or ProcessGrid()
    found = written_groups(instruction)
    complaint = _complaint(instruction, strategy, grid, covers=covers)
    if found is None:
        complaint = _mesh_groups_complaint(instruction) or "replica_groups: nothing is known of the axes of its mesh"
    if complaint or found is None:
        raise VerificationError(
            [Fault(instruction.name, "mesh" if found is None else "", str(complaint), instruction.location)]
        )
    return strategy(instruction).groups(grid, found)


def _members(call: OpCall) -> list[int]:
    return [member for group in written_groups(call) or () for member in group if member != -1]


def _shown(call: OpCall) -> str:
    return show(written_groups(call) or ())


def _complaint(call: OpCall, strategy: StrategyOf, grid: ProcessGrid, *, covers: bool) -> str | None:
    return _beyond(call, strategy, grid) or (_missing(call, strategy, grid) if covers else None)


def _beyond(call: OpCall, strategy: StrategyOf, grid: ProcessGrid) -> str | None:
    chosen = strategy(call)
    count = chosen.count(grid)
    if all(0 <= member < count for member in _members(call)):
        return None
    return f"replica_groups {_shown(call)} name {chosen.value} beyond the {count} of {grid}"


def _missing(call: OpCall, strategy: StrategyOf, grid: ProcessGrid) -> str | None:
    chosen, members = strategy(call), _members(call)
    count = chosen.count(grid)
    if members and len(members) != count:
        return f"replica_groups {_shown(call)} name {len(members)} {chosen.value}, not all {count} of {grid}"
    return None


def _unique_members(call: OpCall) -> str | None:
    members = _members(call)
    return None if len(set(members)) == len(members) else f"replica_groups {_shown(call)} repeat a process"


def _nobody(call: OpCall) -> str | None:
    if any(member == -1 for group in written_groups(call) or () for member in group):
        return f"replica_groups {_shown(call)} must all have one size; -1 is in one"
    return None


def _no_gaps(call: OpCall) -> str | None:
    # Where the module says nothing of its grid, a gap in the ids shows all the same.
    members = _members(call)
    return in_range("replica_groups", members, len(members), "number of processes in them")


def _stated_grid(call: OpCall) -> ProcessGrid | None:
    return grid_of(call) if isinstance(call, Instruction) else None


def covering_rules(
    distinct: str, sizes: str, bounds: str, strategy: StrategyOf, *, even: bool = False
) -> tuple[Constraint, ...]:
    """Groups hold every id once; ``even``: all are of one size, so that nothing fills any up."""

    def check_bounds(call: OpCall) -> str | None:
        if even and (complaint := _nobody(call)):
            return complaint
        grid = _stated_grid(call)
        return _no_gaps(call) if grid is None else _beyond(call, strategy, grid)

    def check_sizes(call: OpCall) -> str | None:
        grid = _stated_grid(call)
        if grid is None:
            return _no_gaps(call)
        # Ids beyond the grid are one fault, told under their own label.
        return None if _beyond(call, strategy, grid) else _missing(call, strategy, grid)

    return (
        MESH_RULE,
        Constraint(distinct, _unique_members),
        Constraint(bounds, check_bounds),
        Constraint(sizes, check_sizes),
    )


def some_rules(distinct: str, bounds: str, strategy: StrategyOf) -> tuple[Constraint, ...]:
    """Groups hold ids once; some may be missing."""

    def check(call: OpCall) -> str | None:
        if any(member < 0 for member in _members(call)):
            return f"replica_groups {_shown(call)} must not be negative"
        grid = _stated_grid(call)
        return None if grid is None else _complaint(call, strategy, grid, covers=False)

    return (MESH_RULE, Constraint(distinct, _unique_members), Constraint(bounds, check))


def global_ids_need_channel(call: OpCall) -> str | None:
    """Ids of all processes cross partitions, which takes a channel."""
    if not call.attributes.get("use_global_device_ids") or _has_channel(call):
        return None
    return "use_global_device_ids needs a channel_handle with a positive handle"


# pairs


def written_pairs(call: OpCall) -> Groups:
    """(source, target) pairs as they are written."""
    return tuple(map(tuple, call.attributes.get("source_target_pairs") or ()))


def pairs_complaint(call: OpCall) -> str | None:
    """What is wrong with the pairs on the grid that the module states."""
    grid = _stated_grid(call)
    return None if grid is None else _pairs_complaint(call, grid)


def _pairs_complaint(call: OpCall, grid: ProcessGrid) -> str | None:
    chosen, found = along_one_axis(call), written_pairs(call)
    count = chosen.count(grid)
    if all(0 <= member < count for pair in found for member in pair):
        return None
    return f"source_target_pairs {show(found)} name {chosen.value} beyond the {count} of {grid}"


def process_pairs(instruction: Instruction) -> Groups:
    """Pairs of processes, by the module's grid; raises ``VerificationError`` for ids that it does not have."""
    grid, found = grid_of(instruction) or ProcessGrid(), written_pairs(instruction)
    complaint = _pairs_complaint(instruction, grid)
    if complaint:
        raise VerificationError([Fault(instruction.name, "C4", complaint, instruction.location)])
    return along_one_axis(instruction).groups(grid, found) if found else ()
