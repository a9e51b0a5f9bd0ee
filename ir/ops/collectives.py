"""Ops among several processes, which become movement and ordinary ops (``collective_expansion``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.formats import element_type
from hlojit.ir.ops import collective_semantics as semantics
from hlojit.ir.ops.attribute_kinds import I64, I64_MATRIX, UNIT
from hlojit.ir.ops.collective_expansion import (
    expand_all_gather,
    expand_all_reduce,
    expand_all_to_all,
    expand_collective_broadcast,
    expand_collective_permute,
    expand_collective_reduce,
    expand_cross_replica_sum,
    expand_partition_id,
    expand_reduce_scatter,
    expand_replica_id,
)
from hlojit.ir.ops.definition import (
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.process_groups import (
    CHANNEL,
    GLOBAL_IDS,
    REPLICA_GROUPS,
    along_one_axis,
    along_one_axis_or_global,
    covering_rules,
    empty_groups,
    global_ids_need_channel,
    group_size,
    pairs_complaint,
    some_rules,
    spanning,
    written_pairs,
)
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    combined_elements,
    combiner_is,
    compatible,
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
DYNAMIC_ROOT = AttributeSpec("has_dynamic_root", UNIT, optional=True, default=False)


def _is_divisible(extent: int, count: int | None) -> bool:
    return extent == DYNAMIC or count is None or extent % count == 0


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


def _gathers(call: OpCall) -> str | None:
    dimension = call.attributes["all_gather_dim"]
    for type in operand_tensors(call):
        if type.shape[dimension] == 0:
            return f"dimension {dimension} of {type}, along which operands are gathered, is empty"
    return None


def _gathered_types(instruction: Instruction) -> str | None:
    """Results are a multiple of the operands along the dimension: how many times may be for the grid to say.

    StableHLO's own verifier does not ask for as many as a group has members, even where groups say it.
    """
    operands, results, dimension = (
        operand_tensors(instruction),
        instruction.result_types,
        instruction.attributes["all_gather_dim"],
    )
    if len(operands) != len(results):
        return f"there are {len(results)} results, expected {len(operands)}, one for each operand"
    for operand, result in zip(operands, results):
        expected = operand.with_shape([DYNAMIC if d == dimension else n for d, n in enumerate(operand.shape)])
        if not isinstance(result, TensorType) or not compatible(result, expected):
            return f"result has type {result}, expected {expected}"
        if (
            DYNAMIC not in (result.shape[dimension], operand.shape[dimension])
            and result.shape[dimension] % operand.shape[dimension]
        ):
            return f"dimension {dimension} of {result} is not a multiple of that of {operand}"
    return None


def _divides(label: str, name: str, count: Callable[[OpCall], int | None]) -> Constraint:
    def check(call: OpCall) -> str | None:
        for type in operand_tensors(call):
            extent = type.shape[call.attributes[name]]
            if not _is_divisible(extent, count(call)):
                return f"dimension {call.attributes[name]} of {type} is not divisible by {count(call)}"
        return None

    return Constraint(label, check)


def _scaled(type: TensorType, factors: dict[int, tuple[int | None, int | None]]) -> TensorType:
    """The type with some dimensions multiplied and divided; by what is not known (None), the dimension is not either."""
    shape = list(type.shape)
    for d, (times, by) in factors.items():
        known = shape[d] != DYNAMIC and times is not None and by is not None
        shape[d] = shape[d] * (times or 1) // (by or 1) if known else DYNAMIC
    return type.with_shape(shape)


def _spanned(call: OpCall) -> int | None:
    return group_size(call, spanning)


# all_gather, all_reduce, reduce_scatter, all_to_all

ALL_GATHER_RULES = (
    _dimension("C1", "all_gather_dim"),
    Constraint("C6", _gathers),
    *covering_rules("C2", "C3", "C4", spanning, even=True),
    Constraint("C5", global_ids_need_channel),
)

ALL_GATHER = define(
    OpDefinition(
        "stablehlo.all_gather",
        operands=(Operand("operands", variadic=True),),
        attributes=(AttributeSpec("all_gather_dim", I64), REPLICA_GROUPS, CHANNEL, GLOBAL_IDS),
        infer=checked(
            ALL_GATHER_RULES,
            lambda r: [
                _scaled(type, {r.attributes["all_gather_dim"]: (_spanned(r), 1)}) for type in operand_tensors(r)
            ],
        ),
        constraints=(*ALL_GATHER_RULES, Constraint("C6", _gathered_types, compares_results=True)),
        reference=semantics.all_gather,
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Expand(expand_all_gather),
        summary="concatenates the operands of a group of processes",
    )
)

ALL_REDUCE_RULES = (
    *covering_rules("C1", "C2", "C3", spanning),
    Constraint("C4", global_ids_need_channel),
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
        reference=semantics.all_reduce,
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Expand(expand_all_reduce),
        summary="combines the operands of a group of processes",
    )
)

REDUCE_SCATTER_RULES = (
    _dimension("C2", "scatter_dimension"),
    _divides("C1", "scatter_dimension", _spanned),
    *covering_rules("C3", "C4", "C5", spanning, even=True),
    Constraint("C6", global_ids_need_channel),
    _computation_is("C7"),
)


def _infer_reduce_scatter(request: InferenceRequest) -> Sequence[Type]:
    type = _scaled(operand_tensor(request, 0), {request.attributes["scatter_dimension"]: (1, _spanned(request))})
    return [tensor(type.shape, combined_elements(request.regions[0])[0])]


def _scattered_shape(instruction: Instruction) -> str | None:
    dimension = instruction.attributes["scatter_dimension"]
    expected = _scaled(operand_tensor(instruction, 0), {dimension: (1, _spanned(instruction))})
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
        reference=semantics.reduce_scatter,
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Expand(expand_reduce_scatter),
        summary="combines the operands of a group and gives each process a part",
    )
)


def _split_count(call: OpCall) -> int:
    return int(call.attributes["split_count"])


def _split_is_group(call: OpCall) -> str | None:
    if empty_groups(call):
        return f"replica_groups are empty, expected groups of split_count {_split_count(call)} members"
    count = group_size(call, along_one_axis)
    if count in (None, _split_count(call)):
        return None
    return f"replica_groups have {count} members each, expected split_count {_split_count(call)}"


ALL_TO_ALL_RULES = (
    Constraint("C4", lambda c: positive("split_count", (_split_count(c),))),
    _dimension("C1", "split_dimension"),
    _divides("C2", "split_dimension", _split_count),
    _dimension("C3", "concat_dimension"),
    *covering_rules("C5", "C6", "C7", along_one_axis, even=True),
    Constraint("C8", _split_is_group),
)


def _infer_all_to_all(request: InferenceRequest) -> Sequence[Type]:
    split, concat = request.attributes["split_dimension"], request.attributes["concat_dimension"]
    count = _split_count(request)
    factors: dict[int, tuple[int | None, int | None]] = {}
    if split != concat:
        factors = {split: (1, count), concat: (count, 1)}
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
        reference=semantics.all_to_all,
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Expand(expand_all_to_all),
        summary="exchanges parts of the operands within a group",
    )
)

# collective_permute


def _pairs_are_pairs(call: OpCall) -> str | None:
    if all(len(pair) == 2 for pair in written_pairs(call)):
        return None
    return f"source_target_pairs {show(written_pairs(call))} must have 2 columns"


def _distinct_column(name: str, column: int) -> Callable[[OpCall], str | None]:
    def check(call: OpCall) -> str | None:
        values = [pair[column] for pair in written_pairs(call)]
        return None if len(set(values)) == len(values) else f"{name} {show(values)} repeat a process"

    return check


def _pairs_in_range(call: OpCall) -> str | None:
    found = written_pairs(call)
    if not all(member >= 0 for pair in found for member in pair):
        return f"source_target_pairs {show(found)} must not be negative"
    return pairs_complaint(call)


PAIR_RULES = (
    Constraint("C1", _pairs_are_pairs),
    Constraint("C2", _distinct_column("sources", 0)),
    Constraint("C3", _distinct_column("targets", 1)),
    Constraint("C4", _pairs_in_range),
)


COLLECTIVE_PERMUTE = define(
    OpDefinition(
        "stablehlo.collective_permute",
        operands=(Operand("operands", variadic=True),),
        attributes=(AttributeSpec("source_target_pairs", I64_MATRIX), CHANNEL),
        infer=checked(PAIR_RULES, lambda request: request.operand_types),
        constraints=(*PAIR_RULES, inferred("C5")),
        reference=semantics.collective_permute,
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Expand(expand_collective_permute),
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
    *some_rules("C1", "C2", along_one_axis),
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
        reference=semantics.collective_broadcast,
        traits=ASYNCHRONOUS_EFFECT,
        lowering=Expand(expand_collective_broadcast),
        summary="sends the operands of one process to its group",
    )
)

COLLECTIVE_REDUCE_RULES = (
    *some_rules("C1", "C2", along_one_axis_or_global),
    Constraint("C3", _static_root),
    Constraint("C3", _dynamic_root),
    _computation_is("C4"),
    Constraint("channel", global_ids_need_channel),
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
        reference=semantics.collective_reduce,
        traits=EFFECT,
        lowering=Expand(expand_collective_reduce),
        summary="combines the operands of a group at one process",
    )
)

CROSS_REPLICA_SUM = define(
    OpDefinition(
        "stablehlo.cross-replica-sum",
        operands=(Operand("operand"),),
        attributes=(REPLICA_GROUPS,),
        infer=lambda request: request.operand_types,
        constraints=(*some_rules("groups", "groups", spanning)[:2], inferred("result")),
        reference=semantics.cross_replica_sum,
        traits=EFFECT,
        lowering=Expand(expand_cross_replica_sum),
        summary="sums over a group of processes",
    )
)

# ids


def _own_id(name: str, read: Callable[[ReferenceCall], Any], expand: Callable[..., Any], summary: str) -> OpDefinition:
    return define(
        OpDefinition(
            f"stablehlo.{name}",
            infer=lambda request: [tensor((), element_type("ui32"))],
            constraints=(inferred("result"),),
            reference=read,
            syntax="pretty-result-type",
            lowering=Expand(expand),
            summary=summary,
        )
    )


PARTITION_ID = _own_id("partition_id", semantics.partition_id, expand_partition_id, "the partition of this process")
REPLICA_ID = _own_id("replica_id", semantics.replica_id, expand_replica_id, "the replica of this process")
