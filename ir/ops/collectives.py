"""Ops among several processes.  The reference knows one process: groups of one member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import ChannelHandle
from hlojit.ir.errors import ExecutionError
from hlojit.ir.formats import element_type
from hlojit.ir.ops.attribute_kinds import I64, I64_MATRIX, UNIT, RecordKind
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    InferenceRequest,
    Kernel,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    combined_elements,
    combiner_is,
    compatible_lists,
    in_range,
    inferred,
    operand_tensor,
    operand_tensors,
    positive,
    show,
    spell,
)
from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

EFFECT = frozenset({Trait.EFFECT})
ASYNCHRONOUS_EFFECT = EFFECT | {Trait.ASYNCHRONOUS}
REPLICA_GROUPS = AttributeSpec("replica_groups", I64_MATRIX)
CHANNEL = AttributeSpec("channel_handle", RecordKind(ChannelHandle), optional=True)
GLOBAL_IDS = AttributeSpec("use_global_device_ids", UNIT, optional=True, default=False)
DYNAMIC_ROOT = AttributeSpec("has_dynamic_root", UNIT, optional=True, default=False)


def groups(call: OpCall) -> tuple[tuple[int, ...], ...]:
    """The replica groups; -1 fills up groups of different sizes."""
    return tuple(map(tuple, call.attributes["replica_groups"]))


def group_size(call: OpCall) -> int:
    """Members of a process group."""
    found = groups(call)
    return len(found[0]) if found else 1


def _members(call: OpCall) -> list[int]:
    return [member for group in groups(call) for member in group if member != -1]


def _unique_members(call: OpCall) -> str | None:
    members = _members(call)
    return None if len(set(members)) == len(members) else f"replica_groups {show(groups(call))} repeat a process"


def _members_in_range(call: OpCall) -> str | None:
    # How many processes there are is known when the program is compiled; a gap in the ids shows earlier.
    members = _members(call)
    return in_range("replica_groups", members, len(members), "number of processes in them")


def _global_ids_need_channel(call: OpCall) -> str | None:
    channel = call.attributes.get("channel_handle")
    if not call.attributes.get("use_global_device_ids") or (channel is not None and channel.handle > 0):
        return None
    return "use_global_device_ids needs a channel_handle with a positive handle"


def _group_rules(distinct: str, sizes: str, bounds: str) -> tuple[Constraint, ...]:
    rules = (Constraint(distinct, _unique_members), Constraint(bounds, _members_in_range))
    return (*rules, Constraint(sizes, _members_in_range)) if sizes else rules


def _computation_is(label: str, region: int = 0) -> Constraint:
    def check(call: OpCall) -> str | None:
        for type in operand_tensors(call)[: 1 if call.operand_types else 0]:
            return combiner_is("computation", call.regions[region], [type.element_type])
        return None

    return Constraint(label, check)


def _dimension(label: str, name: str) -> Constraint:
    def check(call: OpCall) -> str | None:
        for type in operand_tensors(call):
            complaint = in_range(name, (call.attributes[name],), type.rank)
            if complaint:
                return complaint
        return None

    return Constraint(label, check)


def _divides(label: str, name: str, count: Callable[[OpCall], int]) -> Constraint:
    def check(call: OpCall) -> str | None:
        for type in operand_tensors(call):
            extent = type.shape[call.attributes[name]]
            if extent != DYNAMIC and extent % count(call):
                return f"dimension {call.attributes[name]} of {type} is not divisible by {count(call)}"
        return None

    return Constraint(label, check)


def alone(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """A reference for one process; a group with more members is an error."""

    def reference(call: ReferenceCall, *values: Any) -> Any:
        if group_size(call.instruction) != 1:
            at = call.instruction
            raise ExecutionError(f"{at.name} at {at.location} needs {group_size(at)} processes; the reference has one")
        return evaluate(call, *values)

    return reference


def _same(call: ReferenceCall, *values: Array) -> tuple[Array, ...]:
    return values


def _scaled(type: TensorType, factors: dict[int, tuple[int, int]]) -> TensorType:
    """The type with some dimensions multiplied and divided."""
    shape = list(type.shape)
    for d, (times, by) in factors.items():
        shape[d] = shape[d] if shape[d] == DYNAMIC else shape[d] * times // by
    return type.with_shape(shape)


# all_gather, all_reduce, reduce_scatter, all_to_all

ALL_GATHER_RULES = (
    _dimension("C1", "all_gather_dim"),
    *_group_rules("C2", "C3", "C4"),
    Constraint("C5", _global_ids_need_channel),
)

ALL_GATHER = define(
    OpDefinition(
        "stablehlo.all_gather",
        operands=(Operand("operands", variadic=True),),
        attributes=(AttributeSpec("all_gather_dim", I64), REPLICA_GROUPS, CHANNEL, GLOBAL_IDS),
        infer=checked(
            ALL_GATHER_RULES,
            lambda r: [
                _scaled(type, {r.attributes["all_gather_dim"]: (group_size(r), 1)}) for type in operand_tensors(r)
            ],
        ),
        constraints=(*ALL_GATHER_RULES, inferred("C6")),
        reference=alone(_same),
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Kernel("all_gather"),
        summary="concatenates the operands of a group of processes",
    )
)

ALL_REDUCE_RULES = (
    *_group_rules("C1", "C2", "C3"),
    Constraint("C4", _global_ids_need_channel),
    _computation_is("C5"),
)


def _infer_all_reduce(request: InferenceRequest) -> Sequence[Type]:
    element = combined_elements(request.regions[0])[0]
    return [tensor(type.shape, element) for type in operand_tensors(request)]


def _shapes_kept(instruction: Instruction) -> str | None:
    expected = [tensor(type.shape, "i1") for type in operand_tensors(instruction)]
    found = [tensor(type.shape, "i1") for type in instruction.result_types if isinstance(type, TensorType)]
    if compatible_lists(found, expected):
        return None
    return f"result types are {spell(instruction.result_types)}, expected the shapes of {spell(expected)}"


ALL_REDUCE = define(
    OpDefinition(
        "stablehlo.all_reduce",
        operands=(Operand("operands", variadic=True),),
        attributes=(REPLICA_GROUPS, CHANNEL, GLOBAL_IDS),
        regions=("computation",),
        infer=checked(ALL_REDUCE_RULES, _infer_all_reduce),
        constraints=(*ALL_REDUCE_RULES, Constraint("C6", _shapes_kept), inferred("C7")),
        reference=alone(_same),
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Kernel("all_reduce"),
        summary="combines the operands of a group of processes",
    )
)

REDUCE_SCATTER_RULES = (
    _dimension("C2", "scatter_dimension"),
    _divides("C1", "scatter_dimension", group_size),
    *_group_rules("C3", "C4", "C5"),
    Constraint("C6", _global_ids_need_channel),
    _computation_is("C7"),
)


def _infer_reduce_scatter(request: InferenceRequest) -> Sequence[Type]:
    type = _scaled(operand_tensor(request, 0), {request.attributes["scatter_dimension"]: (1, group_size(request))})
    return [tensor(type.shape, combined_elements(request.regions[0])[0])]


def _scattered_shape(instruction: Instruction) -> str | None:
    dimension = instruction.attributes["scatter_dimension"]
    expected = _scaled(operand_tensor(instruction, 0), {dimension: (1, group_size(instruction))})
    found = instruction.results[0].tensor_type
    if compatible_lists([found.with_element_type("i1")], [expected.with_element_type("i1")]):
        return None
    return f"result has type {found}, expected shape {show(expected.shape)}"


REDUCE_SCATTER = define(
    OpDefinition(
        "stablehlo.reduce_scatter",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("scatter_dimension", I64), REPLICA_GROUPS, CHANNEL, GLOBAL_IDS),
        regions=("computation",),
        infer=checked(REDUCE_SCATTER_RULES, _infer_reduce_scatter),
        constraints=(*REDUCE_SCATTER_RULES, Constraint("C8", _scattered_shape), inferred("C9")),
        reference=alone(_same),
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Kernel("reduce_scatter"),
        summary="combines the operands of a group and gives each process a part",
    )
)


def _split_count(call: OpCall) -> int:
    return int(call.attributes["split_count"])


def _split_is_group(call: OpCall) -> str | None:
    if group_size(call) == _split_count(call):
        return None
    return f"replica_groups have {group_size(call)} members each, expected split_count {_split_count(call)}"


ALL_TO_ALL_RULES = (
    Constraint("C4", lambda c: positive("split_count", (_split_count(c),))),
    _dimension("C1", "split_dimension"),
    _divides("C2", "split_dimension", _split_count),
    _dimension("C3", "concat_dimension"),
    *_group_rules("C5", "C6", "C7"),
    Constraint("C8", _split_is_group),
)


def _infer_all_to_all(request: InferenceRequest) -> Sequence[Type]:
    split, concat = request.attributes["split_dimension"], request.attributes["concat_dimension"]
    count = _split_count(request)
    factors = {} if split == concat else {split: (1, count), concat: (count, 1)}
    return [_scaled(type, factors) for type in operand_tensors(request)]


ALL_TO_ALL = define(
    OpDefinition(
        "stablehlo.all_to_all",
        operands=(Operand("operands", variadic=True),),
        attributes=(
            AttributeSpec("split_dimension", I64),
            AttributeSpec("concat_dimension", I64),
            AttributeSpec("split_count", I64),
            REPLICA_GROUPS,
            CHANNEL,
        ),
        infer=checked(ALL_TO_ALL_RULES, _infer_all_to_all),
        constraints=(*ALL_TO_ALL_RULES, inferred("C9")),
        reference=alone(_same),
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Kernel("all_to_all"),
        summary="exchanges parts of the operands within a group",
    )
)

# collective_permute


def pairs(call: OpCall) -> tuple[tuple[int, ...], ...]:
    """(source, target) pairs."""
    return tuple(map(tuple, call.attributes.get("source_target_pairs") or ()))


def _pairs_are_pairs(call: OpCall) -> str | None:
    if all(len(pair) == 2 for pair in pairs(call)):
        return None
    return f"source_target_pairs {show(pairs(call))} must have 2 columns"


def _distinct_column(name: str, column: int) -> Callable[[OpCall], str | None]:
    def check(call: OpCall) -> str | None:
        values = [pair[column] for pair in pairs(call)]
        return None if len(set(values)) == len(values) else f"{name} {show(values)} repeat a process"

    return check


def _pairs_in_range(call: OpCall) -> str | None:
    if all(member >= 0 for pair in pairs(call) for member in pair):
        return None
    return f"source_target_pairs {show(pairs(call))} must not be negative"


PAIR_RULES = (
    Constraint("C1", _pairs_are_pairs),
    Constraint("C2", _distinct_column("sources", 0)),
    Constraint("C3", _distinct_column("targets", 1)),
    Constraint("C4", _pairs_in_range),
)


def _permute_reference(call: ReferenceCall, *values: Array) -> tuple[Array, ...]:
    own = call.replica
    sources = [source for source, target in pairs(call.instruction) if target == own]
    if sources and sources[0] != own:
        at = call.instruction
        raise ExecutionError(f"{at.name} at {at.location} reads process {sources[0]}; the reference has one process")
    return values if sources else tuple(np.zeros_like(value) for value in values)


COLLECTIVE_PERMUTE = define(
    OpDefinition(
        "stablehlo.collective_permute",
        operands=(Operand("operands", variadic=True),),
        attributes=(AttributeSpec("source_target_pairs", I64_MATRIX), CHANNEL),
        infer=checked(PAIR_RULES, lambda request: request.operand_types),
        constraints=(*PAIR_RULES, inferred("C5")),
        reference=_permute_reference,
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Kernel("collective_permute"),
        summary="sends operands from process to process",
    )
)

# collective_broadcast, collective_reduce


def _payload(call: OpCall) -> tuple[Type, ...]:
    return call.operand_types[:-1] if call.attributes.get("has_dynamic_root") else call.operand_types


def _static_root(call: OpCall) -> str | None:
    if call.attributes.get("has_dynamic_root") or call.operand_types:
        return None
    return "there must be at least one operand"


def _dynamic_root(call: OpCall) -> str | None:
    if not call.attributes.get("has_dynamic_root"):
        return None
    count = len(call.operand_types) - 1
    if count >= 1 and call.operand_types[-1] is tensor((count,), "i32"):
        return None
    return f"with has_dynamic_root the last operand must be tensor<{max(count, 1)}xi32>"


BROADCAST_RULES = (
    Constraint("C1", _unique_members),
    Constraint("C2", _members_in_range),
    Constraint("C3", _static_root),
    Constraint("C4", _dynamic_root),
)

COLLECTIVE_BROADCAST = define(
    OpDefinition(
        "stablehlo.collective_broadcast",
        operands=(Operand("operands", variadic=True),),
        attributes=(REPLICA_GROUPS, CHANNEL, DYNAMIC_ROOT),
        infer=checked(BROADCAST_RULES, _payload),
        constraints=(*BROADCAST_RULES, inferred("C5")),
        reference=alone(lambda call, *values: values[: len(call.instruction.results)]),
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Kernel("collective_broadcast"),
        summary="sends the operands of one process to its group",
    )
)

COLLECTIVE_REDUCE_RULES = (
    Constraint("C1", _unique_members),
    Constraint("C2", _members_in_range),
    Constraint("C3", _static_root),
    Constraint("C3", _dynamic_root),
    _computation_is("C4"),
    Constraint("", _global_ids_need_channel),
)

COLLECTIVE_REDUCE = define(
    OpDefinition(
        "stablehlo.collective_reduce",
        operands=(Operand("operands", variadic=True),),
        attributes=(REPLICA_GROUPS, CHANNEL, GLOBAL_IDS, DYNAMIC_ROOT),
        regions=("computation",),
        infer=checked(
            COLLECTIVE_REDUCE_RULES,
            lambda r: [
                tensor(type.shape, combined_elements(r.regions[0])[0])
                for type in _payload(r)
                if isinstance(type, TensorType)
            ],
        ),
        constraints=(*COLLECTIVE_REDUCE_RULES, inferred("C3")),
        reference=alone(lambda call, *values: values[: len(call.instruction.results)]),
        traits=EFFECT,
        lowering=Kernel("collective_reduce"),
        summary="combines the operands of a group at one process",
    )
)

CROSS_REPLICA_SUM = define(
    OpDefinition(
        "stablehlo.cross-replica-sum",
        operands=(Operand("operand"),),
        attributes=(REPLICA_GROUPS,),
        infer=lambda request: request.operand_types,
        constraints=(Constraint("", _unique_members), inferred("")),
        reference=alone(lambda call, value: value),
        traits=EFFECT,
        lowering=Kernel("all_reduce"),
        summary="sums over a group of processes",
    )
)

# ids


def _own_id(name: str, read: Callable[[ReferenceCall], int], summary: str) -> OpDefinition:
    return define(
        OpDefinition(
            f"stablehlo.{name}",
            infer=lambda request: [tensor((), element_type("ui32"))],
            constraints=(inferred(""),),
            reference=lambda call: np.uint32(read(call)),
            syntax="pretty-result-type",
            lowering=Kernel(name),
            summary=summary,
        )
    )


PARTITION_ID = _own_id("partition_id", lambda call: call.partition, "the partition of this process")
REPLICA_ID = _own_id("replica_id", lambda call: call.replica, "the replica of this process")
