"""Which instructions of a block become one kernel: the plan that instruction fusion carries out.

Instructions are visited from the last to the first, so that all users of a value are planned before the value itself.
A producer joins the one group that reads it, is duplicated into several when that is cheap, or becomes one more root of
a group over the same iteration space when somebody else needs it as well; otherwise it starts a group of its own.

**Order.**  Every group has a ``place``: the position, in the block as it stands, at which its kernel will run.  A
group changes only if its inputs are computed before its place and its results are read after it.  So no circle can
arise, and a check costs as many steps as the group has inputs and users, both of which are bounded: the plan is
linear.

**Contexts.**  A member is evaluated once for every distinct index at which the group reads it: pointwise users pass on
their own index, movement makes a new one.  A *context* is such an index function; it knows how often it is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.definition import Cost, Trait
from hlojit.ir.ops.views import DimensionsView
from hlojit.ir.passes.anchored_fusion import take_in_anchors
from hlojit.ir.passes.column_fusion import merge_columns
from hlojit.ir.passes.fusion_cost import (
    Role,
    evaluations_per_element,
    is_expensive,
    is_free_copy,
    is_worth_duplicating,
    role_of,
)
from hlojit.ir.passes.fusion_limits import FusionLimits, FusionPolicy
from hlojit.ir.passes.prologue_fusion import take_in_prologues
from hlojit.ir.passes.row_fusion import merge_rows

MOST_USERS: Final = 32
"""A value with more users is kept in memory: looking at all of them again and again would not be linear."""


@dataclass(eq=False)
class Group:
    """Instructions that become one kernel.

    ``space`` is the iteration space: the shape of loop roots or of the reductions' inputs, and the reduced dimensions
    (None for a loop).
    """

    space: tuple[tuple[int, ...], tuple[int, ...] | None]
    place: int
    roots: list[Instruction]
    members: dict[Instruction, frozenset[int]] = field(default_factory=dict)
    inputs: dict[Value, None] = field(default_factory=dict)
    evaluations: int = 0
    rows: bool = False
    """Whether groups over the same rows came together: members read results of other members' reductions."""
    columns: bool = False
    """Whether members reduce the columns of all these rows."""
    anchor: Instruction | None = None
    """The member that has a kernel of its own."""

    @property
    def kind(self) -> str:
        """The ``kind`` attribute of the fusion instruction."""
        if self.rows:
            return "row"
        if self.anchor is not None:
            return "anchor"
        return "loop" if self.space[1] is None else "reduction"


class FusionPlan:
    """The groups of one block."""

    def __init__(self, block: Block, limits: FusionLimits, policy: FusionPolicy | None = None):
        self.limits = limits
        self.policy = policy
        self.steps = 0
        self.groups: dict[Group, None] = {}
        self.groups_of: dict[Instruction, list[Group]] = {}
        self._block = block
        self._instructions = list(block)
        self._position = {instruction: i for i, instruction in enumerate(self._instructions)}
        self._roles = {instruction: role_of(instruction) for instruction in self._instructions}
        self._contexts: dict[Any, int] = {}
        self._counts: list[float] = []

    @property
    def block(self) -> Block:
        """The block that is planned."""
        return self._block

    def role_of(self, instruction: Instruction) -> Role:
        """What an instruction, of this block or an outer one, can be in a fusion."""
        role = self._roles.get(instruction)
        if role is None:
            role = self._roles[instruction] = role_of(instruction)
        return role

    def is_root(self, instruction: Instruction) -> bool:
        """Whether a group writes the results of an instruction to memory."""
        return any(instruction in group.roots for group in self.groups_of.get(instruction, ()))

    def make(self) -> FusionPlan:
        """Decide for every instruction and return the plan."""
        for instruction in reversed(self._instructions):
            role = self._roles[instruction]
            if role is not Role.OPAQUE and role is not Role.SPLAT:
                self._place(instruction, role)
        self._merge_siblings()
        if self.limits.rows:
            merge_rows(self)
        if self.limits.rows and self.limits.longest_summed_row:
            merge_columns(self)
            # What stood between two row kernels may be a part of one of them now.
            merge_rows(self)
        self._shed_reshapes()
        if self.limits.anchors:
            take_in_anchors(self)
        if self.limits.prologues:
            take_in_prologues(self)
        return self

    # -- one instruction -------------------------------------------------------------------------------------------

    def _place(self, instruction: Instruction, role: Role) -> None:
        outside, targets = self._readers(instruction)
        joined = False
        if role is not Role.REDUCTION and targets:
            if is_reshape(instruction) and (outside or not self._may_pull_through(instruction)):
                return
            accepting = [group for group in targets if self._accepts(group, instruction)]
            everywhere = not outside and len(accepting) == len(targets)
            if everywhere and (
                len(targets) == 1
                or is_worth_duplicating(instruction, len(targets), expensive=self._is_expensive(instruction))
            ):
                for group in accepting:
                    self._join(group, instruction)
                return
            if everywhere and self._join_merged(instruction, accepting):
                return
            if accepting and is_free_copy(instruction):
                for group in accepting:
                    self._join(group, instruction)
                joined = True
            elif self._join_as_root(instruction, accepting):
                return
        elif not targets and not outside:
            return
        if is_reshape(instruction):
            return
        if not (joined and not outside and len(accepting) == len(targets)):
            self._start(instruction, role)

    def _readers(self, instruction: Instruction) -> tuple[bool, list[Group]]:
        """Whether somebody reads the result from memory in any case, and the groups that read it."""
        outside = False
        targets: dict[Group, None] = {}
        for result in instruction.results:
            if len(result.users) > MOST_USERS:
                return True, []
            for user in result.users:
                self.steps += 1
                groups = self.groups_of.get(user)
                if groups is None:
                    outside = True
                else:
                    targets.update(dict.fromkeys(groups))
        return outside, list(targets)

    def _may_pull_through(self, reshape: Instruction) -> bool:
        """Whether fusing the reshape lets its producer be fused too; otherwise it stays an alias of memory."""
        producer = reshape.operands[0].producer
        if producer is None or self._roles.get(producer) not in (Role.POINTWISE, Role.MOVEMENT):
            return False
        users = producer.results[0].users
        # Other users of the producer are in the one group that reads the reshape, too.
        groups = {tuple(self.groups_of.get(user, ())) for user in {*users, *reshape.results[0].users} - {reshape}}
        return len(users) == 1 or (len(groups) == 1 and all(len(each) == 1 for each in groups))

    def _accepts(self, group: Group, producer: Instruction) -> bool:
        """Whether the group can compute ``producer`` itself, and should."""
        limits = self.limits
        contexts = self._contexts_in(group, producer)
        if contexts is None or len(contexts) > limits.contexts:
            return False
        decided = self.policy.fuses_into(producer, tuple(group.members)) if self.policy is not None else None
        if decided is not None:
            return decided
        if len(group.members) + 1 > limits.instructions or group.evaluations + len(contexts) > limits.evaluations:
            return False
        fresh = sum(1 for operand in set(producer.operands) if self._is_input(group, operand))
        if len(group.inputs) - 1 + fresh > limits.operands:
            return False
        size = producer.results[0].tensor_type.size
        repeats = sum(self._counts[context] for context in contexts) / max(1, size)
        if repeats <= 1.001 or (size <= 1 and not self._is_expensive(producer)):
            return True
        if self._is_expensive(producer):
            return False
        # Reading something small again is what a broadcast is; computing it again is only right for a single op.
        return self._roles[producer] is Role.MOVEMENT or (repeats <= 4.0 and len(contexts) > 1)

    def forbids(self, producer: Instruction, group: Group) -> bool:
        """Whether the back end wants a producer kept out of a group."""
        return self.policy is not None and self.policy.fuses_into(producer, tuple(group.members)) is False

    def _is_expensive(self, instruction: Instruction) -> bool:
        cost = self.policy.element_cost(instruction) if self.policy is not None else None
        return is_expensive(instruction) if cost is None else cost is Cost.EXPENSIVE

    def _contexts_in(self, group: Group, producer: Instruction) -> frozenset[int] | None:
        """The contexts in which the group's members read ``producer``; None if one cannot read a computed value."""
        found: set[int] = set()
        value = producer.results[0]
        for user in value.users:
            theirs = group.members.get(user)
            if theirs is None:
                continue
            role = self._roles[user]
            for number, operand in enumerate(user.operands):
                self.steps += 1
                if operand is not value:
                    continue
                if role is Role.REDUCTION and number >= len(user.results):
                    return None
                if role is Role.REDUCTION or (role is Role.POINTWISE and operand.type is _shape_of(user, operand)):
                    found |= theirs
                else:
                    rate = evaluations_per_element(user, number)
                    found.update(
                        self._context((user, number, context), self._counts[context] * rate) for context in theirs
                    )
        return frozenset(found)

    def _context(self, key: Any, count: float) -> int:
        number = self._contexts.get(key)
        if number is None:
            number = self._contexts[key] = len(self._counts)
            self._counts.append(count)
        return number

    def root_context(self, shape: tuple[int, ...]) -> int:
        """The context in which roots of this shape are evaluated: their own index."""
        size = 1
        for extent in shape:
            size *= extent
        return self._context(shape, float(size))

    def _is_input(self, group: Group, value: Value) -> bool:
        """Whether the group would read ``value`` from memory and does not do so yet."""
        if value in group.inputs:
            return False
        owner = value.owner
        return not isinstance(owner, Instruction) or (
            owner not in group.members and self.role_of(owner) is not Role.SPLAT
        )

    def _join(self, group: Group, instruction: Instruction) -> None:
        contexts = self._contexts_in(group, instruction)
        assert contexts is not None
        self._add(group, instruction, contexts)

    def _add(self, group: Group, instruction: Instruction, contexts: frozenset[int]) -> None:
        group.members[instruction] = contexts
        group.evaluations += len(contexts)
        for result in instruction.results:
            group.inputs.pop(result, None)
        for operand in instruction.operands:
            if self._is_input(group, operand):
                group.inputs[operand] = None
        self.groups_of.setdefault(instruction, []).append(group)

    def _start(self, instruction: Instruction, role: Role) -> None:
        if role is Role.REDUCTION:
            shape = instruction.operands[0].tensor_type.shape
            space: Any = (shape, DimensionsView.of(instruction).dimensions)
        else:
            shape = instruction.results[0].tensor_type.shape
            space = (shape, None)
        group = Group(space, self._position[instruction], [instruction])
        self._add(group, instruction, frozenset({self.root_context(shape)}))
        self.groups[group] = None

    # -- several roots ---------------------------------------------------------------------------------------------

    def _join_as_root(self, instruction: Instruction, accepting: list[Group]) -> bool:
        """Make a producer that is also needed elsewhere one more root of the first group that reads it."""
        shape = instruction.results[0].tensor_type.shape
        root = self.root_context(shape)
        for group in sorted(accepting, key=lambda group: group.place):
            if group.space[0] != shape or len(group.roots) >= self.limits.roots:
                continue
            contexts = self._contexts_in(group, instruction)
            if contexts is None or root not in contexts:
                continue
            if all(self._place_of(user) > group.place for user in self._users_outside(instruction, group)):
                self._add(group, instruction, contexts)
                group.roots.append(instruction)
                return True
        return False

    def _join_merged(self, instruction: Instruction, accepting: list[Group]) -> bool:
        """Make two loops over one space that read a producer element by element one loop, which computes it itself.

        Otherwise one of them would write the producer for the other one, which reads what the first one reads once more.
        """
        shape = instruction.results[0].tensor_type.shape
        here = frozenset({self.root_context(shape)})
        if len(accepting) != 2 or any(
            group.space != (shape, None) or group.rows or self._contexts_in(group, instruction) != here
            for group in accepting
        ):
            return False
        first, second = sorted(accepting, key=lambda group: group.place)
        if len(first.members | second.members) >= self.limits.instructions or not self._merge(first, second):
            return False
        self._join(first, instruction)
        return True

    def _users_outside(self, instruction: Instruction, group: Group) -> Iterable[Instruction]:
        for result in instruction.results:
            for user in result.users:
                self.steps += 1
                groups = self.groups_of.get(user)
                if groups is None or groups != [group]:
                    yield user

    def _place_of(self, user: Instruction) -> int:
        """Where the instruction, or the one of this block that holds it, runs first."""
        groups = self.groups_of.get(user)
        if groups:
            return min(group.place for group in groups)
        while user.block is not self._block:
            assert user.block is not None and isinstance(user.block.parent, Instruction)
            user = user.block.parent
        return self._position[user]

    def _merge_siblings(self) -> None:
        """Let groups over one iteration space that read the same large value read it once."""
        readers: dict[Any, list[Group]] = {}
        for group in self.groups:
            for value in group.inputs:
                if value.tensor_type.shape == group.space[0]:
                    readers.setdefault((value, group.space), []).append(group)
        merged_into: dict[Group, Group] = {}
        for groups in readers.values():
            if len(groups) == 1:
                continue
            current: Group | None = None
            for group in sorted(dict.fromkeys(_final(merged_into, group) for group in groups), key=lambda g: g.place):
                if current is not None and self._merge(current, group):
                    merged_into[group] = current
                else:
                    current = group

    def _merge(self, first: Group, second: Group) -> bool:
        """Make two groups that do not read each other one, at the place of either; return whether that is possible."""
        if any(value.owner in first.roots for value in second.inputs):
            return False
        return self.join_groups(first, second)

    def join_groups(self, first: Group, second: Group) -> bool:
        """Make ``second``, which may read ``first``, a part of it, at the place of either; return whether that works.

        Roots that nobody else reads are roots no longer.
        """
        limits = self.limits
        members = first.members | second.members
        if any(self.forbids(root, second) for root in first.roots):
            return False
        if len(members) > limits.instructions or len(first.roots) + len(second.roots) > limits.roots:
            return False
        if first.evaluations + second.evaluations > limits.evaluations:
            return False
        if any(member in first.roots for member in second.members) or any(r in first.members for r in second.roots):
            return False
        inputs = {value: None for value in first.inputs | second.inputs if value.owner not in members}
        place = self._common_place(first, second) if len(inputs) <= limits.operands else None
        if place is None:
            return False
        for member, contexts in second.members.items():
            first.members[member] = first.members.get(member, frozenset()) | contexts
            groups = [group for group in self.groups_of[member] if group is not second and group is not first]
            self.groups_of[member] = [*groups, first]
        second_reads = frozenset(value.owner for value in second.inputs)
        kept = [root for root in first.roots if root not in second_reads or self._is_read_outside(root, first)]
        first.roots = kept + second.roots
        first.inputs = inputs
        first.evaluations = sum(map(len, first.members.values()))
        first.place = place
        del self.groups[second]
        return True

    def take_in(self, group: Group, anchor: Instruction, aliases: Sequence[Instruction]) -> bool:
        """Make ``anchor``, whose result the group reads through ``aliases`` at its own index, a member; whether that works.

        A result that others read as well becomes one more root.
        """
        inside: set[object] = {*aliases, anchor}
        outside = [user for user in self._users_outside(anchor, group) if user not in inside]
        added = {value: None for value in anchor.operands if self._is_input(group, value)}
        kept = [value for value in group.inputs if value.owner not in inside]
        first, limits = self._position[anchor], self.limits
        if all(self._place_of(user) > group.place for user in outside):
            place = group.place
        elif all(self._computed_at(value) < first for value in kept):
            place = first
        else:
            return False
        if len(kept) + len(added) > limits.operands or len(group.members) + len(inside) > limits.instructions:
            return False
        if outside and len(group.roots) >= limits.roots:
            return False
        here = frozenset({self.root_context(group.space[0])})
        for member in (*aliases, anchor):
            self._add(group, member, here)
        group.anchor, group.place = anchor, place
        if outside:
            group.roots.append(anchor)
        return True

    def start_anchor(self, anchor: Instruction) -> Group:
        """Begin a group of an op with a kernel of its own."""
        shape = anchor.result.tensor_type.shape
        group = Group((shape, None), self._position[anchor], [anchor], anchor=anchor)
        self._add(group, anchor, frozenset({self.root_context(shape)}))
        self.groups[group] = None
        return group

    def _is_read_outside(self, root: Instruction, group: Group) -> bool:
        return any(True for _ in self._users_outside(root, group))

    def _common_place(self, first: Group, second: Group) -> int | None:
        """The place of one of the groups at which all inputs of both are there and nobody needs their results yet."""
        if all(self._computed_at(value) < first.place for value in second.inputs if value.owner not in first.members):
            return first.place
        users = [user for root in first.roots for result in root.results for user in result.users]
        self.steps += len(users)
        if len(users) <= MOST_USERS and all(
            self._place_of(user) > second.place
            for user in users
            if any(group is not first and group is not second for group in self.groups_of.get(user, (None,)))
        ):
            return second.place
        return None

    def _computed_at(self, value: Value) -> int:
        """The place at which a value is in memory; -1 for what exists before the block runs."""
        self.steps += 1
        owner = value.owner
        if not isinstance(owner, Instruction) or owner not in self._position:
            return -1
        for group in self.groups_of.get(owner, ()):
            if owner in group.roots:
                return group.place
        return self._position[owner]

    # -- reshapes --------------------------------------------------------------------------------------------------

    def _shed_reshapes(self) -> None:
        """Take reshapes of what is in memory out of the groups again: outside they are aliases and cost nothing."""
        for group in self.groups:
            for member in sorted(group.members, key=self._position.__getitem__):
                if is_reshape(member) and member not in group.roots and member.operands[0].owner not in group.members:
                    self._shed(group, member)

    def _shed(self, group: Group, reshape: Instruction) -> None:
        del group.members[reshape]
        self.groups_of[reshape].remove(group)
        group.inputs[reshape.results[0]] = None


def is_reshape(instruction: Instruction) -> bool:
    """Whether the instruction renames elements without moving them: an alias when its operand is in memory."""
    return Trait.BITCAST in instruction.op.traits


def _shape_of(user: Instruction, operand: Value) -> Any:
    """``operand``'s own type if it has the shape of the user's result, otherwise None."""
    return operand.type if operand.tensor_type.shape == user.results[0].tensor_type.shape else None


def _final(merged_into: dict[Group, Group], group: Group) -> Group:
    while group in merged_into:
        group = merged_into[group]
    return group
