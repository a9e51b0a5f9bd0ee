"""Ops on their way out of StableHLO that old programs still hold: broadcast, einsum, torch_index_select."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.attributes import DotDimensionNumbers, GatherDimensionNumbers
from hlojit.ir.errors import TypeInferenceError
from hlojit.ir.ops.attribute_kinds import I64, I64_ARRAY, STRING
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    OpDefinition,
    Operand,
    ReferenceCall,
    define,
)
from hlojit.ir.ops.rules import OpCall, checked, in_range, inferred, not_negative, operand_tensor, operand_tensors
from hlojit.ir.types import Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

# broadcast


def _sizes_in_front(call: OpCall) -> tuple[int, ...]:
    return tuple(call.attributes["broadcast_sizes"])


def _infer_broadcast(request: InferenceRequest) -> Sequence[Type]:
    operand = operand_tensor(request, 0)
    return [operand.with_shape((*_sizes_in_front(request), *operand.shape))]


def _expand_broadcast(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    sizes, operand = _sizes_in_front(instruction), operand_tensor(instruction, 0)
    if not operand.is_static:
        return None
    dimensions = range(len(sizes), len(sizes) + operand.rank)
    return [builder.broadcast_in_dim(instruction.operands[0], (*sizes, *operand.shape), tuple(dimensions))]


BROADCAST_RULES = (Constraint("broadcast_sizes", lambda c: not_negative("broadcast_sizes", _sizes_in_front(c))),)

BROADCAST = define(
    OpDefinition(
        "stablehlo.broadcast",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("broadcast_sizes", I64_ARRAY),),
        infer=checked(BROADCAST_RULES, _infer_broadcast),
        constraints=(*BROADCAST_RULES, inferred("result")),
        reference=lambda call, operand: np.broadcast_to(operand, (*_sizes_in_front(call.instruction), *operand.shape)),
        syntax="broadcast",
        lowering=Expand(_expand_broadcast),
        summary="repeats the operand in new leading dimensions",
    )
)

# einsum


def _without_dots(call: OpCall, terms: list[str], output: str) -> tuple[list[str], str]:
    """With letters of their own, the last ones of a row, in place of dots, which stand for all dimensions without a letter."""
    counts = [type.rank - len(term) + 3 for term, type in zip(terms, operand_tensors(call)) if "..." in term]
    most_dots = max(counts, default=0)
    letters = "".join(letter for letter in ascii_letters if letter not in "".join(terms) + output)[:most_dots]
    if not counts or min(counts) < 0 or len(letters) < most_dots:
        return terms, output
    spelt = [
        term.replace("...", letters[most_dots - (type.rank - len(term) + 3) :] if type.rank - len(term) + 3 else "")
        for term, type in zip(terms, operand_tensors(call))
    ]
    return spelt, output.replace("...", letters)


def _terms(call: OpCall) -> tuple[list[str], str]:
    """The letters of each operand and of the result."""
    inputs, arrow, output = call.attributes["einsum_config"].replace(" ", "").partition("->")
    terms = inputs.split(",")
    if arrow and len(terms) == len(call.operand_types):
        terms, output = _without_dots(call, terms, output)
        inputs = ",".join(terms)
    if arrow and len(terms) == len(call.operand_types) and "." not in inputs + output:
        return terms, output
    raise TypeInferenceError(f"einsum_config {call.attributes['einsum_config']!r} does not fit the operands")


def _sizes(call: OpCall) -> dict[str, int]:
    sizes: dict[str, int] = {}
    terms, _ = _terms(call)
    for term, type in zip(terms, operand_tensors(call)):
        if len(term) != type.rank:
            raise TypeInferenceError(f"einsum_config has {len(term)} letters for {type}")
        for letter, extent in zip(term, type.shape):
            if sizes.setdefault(letter, extent) != extent:
                raise TypeInferenceError(f"einsum_config gives {letter} the sizes {sizes[letter]} and {extent}")
    return sizes


def _infer_einsum(request: InferenceRequest) -> Sequence[Type]:
    sizes, (_, output) = _sizes(request), _terms(request)
    if not set(output) <= set(sizes):
        raise TypeInferenceError(f"einsum_config {request.attributes['einsum_config']!r} has unknown letters")
    return [tensor([sizes[letter] for letter in output], operand_tensor(request, 0).element_type)]


def _expand_einsum(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """One dot_general and a transpose, where each letter stands once in an operand and none is summed alone."""
    (lhs, rhs), output = _terms(instruction)
    shared = [letter for letter in lhs if letter in rhs]
    single = set(lhs + rhs) - set(shared)
    if len(set(lhs)) < len(lhs) or len(set(rhs)) < len(rhs) or not single <= set(output):
        return None
    batch = [letter for letter in shared if letter in output]
    summed = [letter for letter in shared if letter not in output]
    product = builder.dot_general(
        *instruction.operands,
        DotDimensionNumbers(
            tuple(map(lhs.index, batch)),
            tuple(map(rhs.index, batch)),
            tuple(map(lhs.index, summed)),
            tuple(map(rhs.index, summed)),
        ),
    )
    order = [*batch, *(c for c in lhs if c not in shared), *(c for c in rhs if c not in shared)]
    if order == list(output):
        return [product]
    return [builder.transpose(product, tuple(map(order.index, output)))]


def _einsum_reference(call: ReferenceCall, *operands: Array) -> Array:
    return np.asarray(np.einsum(call.attributes["einsum_config"], *operands))


EINSUM = define(
    OpDefinition(
        "stablehlo.einsum",
        operands=(Operand("lhs"), Operand("rhs")),
        attributes=(AttributeSpec("einsum_config", STRING),),
        infer=_infer_einsum,
        widens=True,
        constraints=(inferred("result"),),
        reference=_einsum_reference,
        syntax="einsum",
        lowering=Expand(_expand_einsum),
        summary="a product by Einstein's notation",
    )
)


def _expand_unary_einsum(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    (term,), output = _terms(instruction)
    if len(set(term)) < len(term):
        return None  # a diagonal
    operand = instruction.operands[0]
    summed = tuple(d for d, letter in enumerate(term) if letter not in output)
    left = [letter for letter in term if letter in output]
    if summed:
        zero = builder.constant(0, operand.tensor_type.with_shape(()))
        body = builder.combiner("add", operand.tensor_type.element_type)
        operand = builder.reduce([operand], [zero], body, dimensions=summed)
    return [operand if left == list(output) else builder.transpose(operand, tuple(map(left.index, output)))]


UNARY_EINSUM = define(
    OpDefinition(
        "stablehlo.unary_einsum",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("einsum_config", STRING),),
        infer=_infer_einsum,
        constraints=(inferred("result"),),
        reference=_einsum_reference,
        syntax="unary_einsum",
        lowering=Expand(_expand_unary_einsum),
        summary="sums and transposes by Einstein's notation",
    )
)

# torch_index_select


def _select_range(call: OpCall) -> str | None:
    dim, batch = call.attributes["dim"], call.attributes["batch_dims"]
    rank = operand_tensor(call, 0).rank
    if 0 <= batch <= dim and batch <= operand_tensor(call, 1).rank:
        return in_range("dim", (dim,), rank)
    return f"batch_dims {batch} must lie in [0, {dim}], the selected dimension"


INDEX_SELECT_RULES = (Constraint("dim", _select_range),)


def _infer_index_select(request: InferenceRequest) -> Sequence[Type]:
    operand, index = operand_tensor(request, 0), operand_tensor(request, 1)
    dim, batch = request.attributes["dim"], request.attributes["batch_dims"]
    return [operand.with_shape((*operand.shape[:dim], *index.shape[batch:], *operand.shape[dim + 1 :]))]


def _expand_index_select(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    operand, index = operand_tensor(instruction, 0), operand_tensor(instruction, 1)
    dim, batch = instruction.attributes["dim"], instruction.attributes["batch_dims"]
    if not (operand.is_static and index.is_static):
        return None
    chosen = range(dim, dim + index.rank - batch)
    rank = operand.rank - 1 + index.rank - batch
    dims = GatherDimensionNumbers(
        offset_dims=tuple(d for d in range(batch, rank) if d not in chosen),
        collapsed_slice_dims=(dim,),
        operand_batching_dims=tuple(range(batch)),
        start_indices_batching_dims=tuple(range(batch)),
        start_index_map=(dim,),
        index_vector_dim=index.rank,
    )
    sizes = tuple(1 if d < batch or d == dim else extent for d, extent in enumerate(operand.shape))
    return [builder.gather(*instruction.operands, dims, sizes)]


def _index_select_reference(call: ReferenceCall, operand: Array, index: Array) -> Array:
    dim, batch = call.attributes["dim"], call.attributes["batch_dims"]
    limit = max(operand.shape[dim] - 1, 0)
    index = np.clip(index, 0, limit)
    if not batch:
        return np.take(operand, index, axis=dim)
    shape = operand.shape[:batch]
    parts = [np.take(operand[at], index[at], axis=dim - batch) for at in np.ndindex(shape)]
    return np.stack(parts).reshape(*shape, *parts[0].shape)


TORCH_INDEX_SELECT = define(
    OpDefinition(
        "stablehlo.torch_index_select",
        operands=(Operand("operand"), Operand("index")),
        attributes=(AttributeSpec("dim", I64), AttributeSpec("batch_dims", I64)),
        infer=checked(INDEX_SELECT_RULES, _infer_index_select),
        constraints=(*INDEX_SELECT_RULES, inferred("result")),
        reference=_index_select_reference,
        lowering=Expand(_expand_index_select),
        summary="slices at indices, as torch.index_select",
    )
)
