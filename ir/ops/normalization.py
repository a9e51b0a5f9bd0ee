"""Batch normalization, by the decomposition that the specification gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.ops.attribute_kinds import F32, I64
from hlojit.ir.ops.definition import (
    Array,
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
from hlojit.ir.ops.pointwise import FLOAT, QUANTIZED, takes
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    compatible_extents,
    in_range,
    inferred,
    operand_tensor,
    operand_tensors,
    same_baselines,
    same_shapes,
)
from hlojit.ir.types import DYNAMIC, TensorType, Type

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

ATTRIBUTES = (AttributeSpec("epsilon", F32), AttributeSpec("feature_index", I64))


def _feature_range(call: OpCall) -> str | None:
    return in_range("feature_index", (call.attributes["feature_index"],), operand_tensor(call, 0).rank)


def _one_element_type(instruction: Any) -> str | None:
    types = [type for type in instruction.operand_types if isinstance(type, TensorType)]
    types += [type for type in getattr(instruction, "result_types", ()) if isinstance(type, TensorType)]
    return same_baselines("operands and results", types)


def _per_feature(label: str, name: str, position: int) -> Constraint:
    def check(call: OpCall) -> str | None:
        features = operand_tensor(call, 0).shape[call.attributes["feature_index"]]
        type = operand_tensor(call, position)
        if type.rank == 1 and compatible_extents(type.shape[0], features):
            return None
        return f"{name} has type {type}, expected {features} elements, one for each feature"

    return Constraint(label, check)


def _result_per_feature(label: str, name: str, position: int) -> Constraint:
    def check(instruction: Instruction) -> str | None:
        features = operand_tensor(instruction, 0).shape[instruction.attributes["feature_index"]]
        type = instruction.results[position].tensor_type
        if type.rank == 1 and compatible_extents(type.shape[0], features):
            return None
        return f"{name} has type {type}, expected {features} elements, one for each feature"

    return Constraint(label, check)


# references: the decomposition on arrays; the interpreter rounds what comes out


def _spread(values: Array, operand: Array, feature: int) -> Array:
    shape = [1] * operand.ndim
    shape[feature] = len(values)
    return values.reshape(shape)


def _other_axes(operand: Array, feature: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(operand.ndim) if axis != feature)


def _inference(call: ReferenceCall, operand: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
    feature, epsilon = call.attributes["feature_index"], operand.dtype.type(call.attributes["epsilon"])
    centered = operand - _spread(mean, operand, feature)
    deviation = np.sqrt(_spread(variance, operand, feature) + epsilon)
    normalized = _spread(scale, operand, feature) * (centered / deviation)
    return np.asarray(normalized + _spread(offset, operand, feature))


def _training(call: ReferenceCall, operand: Array, scale: Array, offset: Array) -> tuple[Array, Array, Array]:
    feature = call.attributes["feature_index"]
    axes = _other_axes(operand, feature)
    mean = operand.mean(axis=axes, dtype=operand.dtype)
    centered = operand - _spread(mean, operand, feature)
    variance = (centered * centered).mean(axis=axes, dtype=operand.dtype)
    return _inference(call, operand, scale, offset, mean, variance), mean, variance


def _grad(
    call: ReferenceCall, operand: Array, scale: Array, mean: Array, variance: Array, grad_output: Array
) -> tuple[Array, Array, Array]:
    feature, epsilon = call.attributes["feature_index"], operand.dtype.type(call.attributes["epsilon"])
    axes = _other_axes(operand, feature)
    count = operand.dtype.type(operand.size // max(operand.shape[feature], 1))
    centered = operand - _spread(mean, operand, feature)
    spread = _spread(variance, operand, feature) + epsilon
    deviation = np.sqrt(spread)
    grad_offset = grad_output.sum(axis=axes, dtype=operand.dtype)
    projection = (grad_output * centered).sum(axis=axes, dtype=operand.dtype)
    inner = grad_output * count - _spread(grad_offset, operand, feature)
    inner = inner - _spread(projection, operand, feature) * centered / spread
    grad_operand = _spread(scale, operand, feature) / deviation / count * inner
    grad_scale = (grad_output * (centered / deviation)).sum(axis=axes, dtype=operand.dtype)
    return grad_operand, grad_scale, grad_offset


# expansions


class _Expansion:
    """Builds the ops of one batch norm instruction."""

    def __init__(self, builder: Any, instruction: Instruction):
        self.builder = builder
        self.type = operand_tensor(instruction, 0)
        self.feature = instruction.attributes["feature_index"]
        self.epsilon = instruction.attributes["epsilon"]
        self.others = tuple(axis for axis in range(self.type.rank) if axis != self.feature)

    def spread(self, values: Value) -> Value:
        """Values of the features in the operand's shape."""
        found: Value = self.builder.broadcast_in_dim(values, self.type, (self.feature,))
        return found

    def with_epsilon(self, variance: Value) -> Value:
        """``variance + epsilon`` for each feature."""
        found: Value = self.builder.add(variance, self.builder.constant(self.epsilon, variance.tensor_type))
        return found

    def sum(self, values: Value) -> Value:
        """Sums over everything but the feature."""
        zero = self.builder.constant(0, self.type.with_shape(()))
        body = self.builder.combiner("add", self.type.element_type)
        found: Value = self.builder.reduce([values], [zero], body, dimensions=self.others)
        return found

    @property
    def count(self) -> int:
        """Elements of each feature."""
        features = self.type.shape[self.feature]
        return self.type.size // features if features else 0

    def mean(self, values: Value) -> Value:
        """Means over everything but the feature."""
        total = self.sum(values)
        found: Value = self.builder.divide(total, self.builder.constant(self.count, total.tensor_type))
        return found

    def inference(self, operand: Value, scale: Value, offset: Value, mean: Value, variance: Value) -> Value:
        """Normalize with known mean and variance."""
        b = self.builder
        deviation = self.spread(b.sqrt(self.with_epsilon(variance)))
        normalized = b.divide(b.subtract(operand, self.spread(mean)), deviation)
        found: Value = b.add(b.multiply(self.spread(scale), normalized), self.spread(offset))
        return found

    def training(self, operand: Value, scale: Value, offset: Value) -> list[Value]:
        """Normalize with the batch's own mean and variance."""
        mean = self.mean(operand)
        centered = self.builder.subtract(operand, self.spread(mean))
        variance = self.mean(self.builder.multiply(centered, centered))
        return [self.inference(operand, scale, offset, mean, variance), mean, variance]

    def grad(self, operand: Value, scale: Value, mean: Value, variance: Value, grad_output: Value) -> list[Value]:
        """The gradients of training."""
        b = self.builder
        centered = b.subtract(operand, self.spread(mean))
        per_feature = self.with_epsilon(variance)
        deviation = self.spread(b.sqrt(per_feature))
        count = b.constant(self.count, self.type)
        grad_offset = self.sum(grad_output)
        projection = self.sum(b.multiply(grad_output, centered))
        inner = b.subtract(b.multiply(grad_output, count), self.spread(grad_offset))
        correction = b.divide(b.multiply(self.spread(projection), centered), self.spread(per_feature))
        inner = b.subtract(inner, correction)
        grad_operand = b.multiply(b.divide(b.divide(self.spread(scale), deviation), count), inner)
        grad_scale = self.sum(b.multiply(grad_output, b.divide(centered, deviation)))
        return [grad_operand, grad_scale, grad_offset]


def _expand(name: str) -> Expand:
    def rule(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
        if any(DYNAMIC in type.shape for type in operand_tensors(instruction)):
            return None
        build: Callable[..., Any] = getattr(_Expansion(builder, instruction), name)
        built = build(*instruction.operands)
        return built if isinstance(built, list) else [built]

    return Expand(rule)


_OF_FLOATS = takes("I1", 0, "operand", (FLOAT, QUANTIZED))

INFERENCE_RULES = (
    _OF_FLOATS,
    Constraint("C1", _feature_range),
    Constraint("C2", _one_element_type),
    _per_feature("C3", "scale", 1),
    _per_feature("C4", "offset", 2),
    _per_feature("C5", "mean", 3),
    _per_feature("C6", "variance", 4),
)

BATCH_NORM_INFERENCE = define(
    OpDefinition(
        "stablehlo.batch_norm_inference",
        operands=tuple(map(Operand, ("operand", "scale", "offset", "mean", "variance"))),
        attributes=ATTRIBUTES,
        infer=checked(INFERENCE_RULES, lambda request: (request.operand_types[0],)),
        constraints=(*INFERENCE_RULES, inferred("C7")),
        reference=_inference,
        traits=frozenset({Trait.DEQUANTIZES}),
        lowering=_expand("inference"),
        summary="normalizes with known means and variances",
    )
)

TRAINING_RULES = INFERENCE_RULES[:5]


def _infer_training(request: InferenceRequest) -> Sequence[Type]:
    return request.operand_types[0], request.operand_types[1], request.operand_types[1]


def _output_type(instruction: Instruction) -> str | None:
    return same_shapes("operand and output", [operand_tensor(instruction, 0), instruction.results[0].tensor_type])


BATCH_NORM_TRAINING = define(
    OpDefinition(
        "stablehlo.batch_norm_training",
        operands=tuple(map(Operand, ("operand", "scale", "offset"))),
        attributes=ATTRIBUTES,
        infer=checked(TRAINING_RULES, _infer_training),
        constraints=(
            *TRAINING_RULES,
            _result_per_feature("C5", "batch_mean", 1),
            _result_per_feature("C6", "batch_var", 2),
            Constraint("C7", _output_type),
        ),
        reference=_training,
        traits=frozenset({Trait.DEQUANTIZES}),
        lowering=_expand("training"),
        summary="normalizes with the means and variances of the batch",
    )
)


def _grad_operand_shapes(call: Any) -> str | None:
    types = [operand_tensor(call, 0), operand_tensor(call, 4)]
    types += [result.tensor_type for result in getattr(call, "results", ())[:1]]
    return same_shapes("operand, grad_output and grad_operand", types)


def _grad_feature_shapes(call: Any) -> str | None:
    types = operand_tensors(call, 1, 4)
    types += [result.tensor_type for result in getattr(call, "results", ())[1:]]
    return same_shapes("scale, mean, variance, grad_scale and grad_offset", types)


GRAD_RULES = (
    _OF_FLOATS,
    Constraint("C1", _feature_range),
    Constraint("C2", _one_element_type),
    Constraint("C3", _grad_operand_shapes),
    Constraint("C4", _grad_feature_shapes),
    _per_feature("C5", "scale", 1),
)

BATCH_NORM_GRAD = define(
    OpDefinition(
        "stablehlo.batch_norm_grad",
        operands=tuple(map(Operand, ("operand", "scale", "mean", "variance", "grad_output"))),
        attributes=ATTRIBUTES,
        infer=checked(GRAD_RULES, _infer_training),
        constraints=GRAD_RULES,
        reference=_grad,
        traits=frozenset({Trait.DEQUANTIZES}),
        lowering=_expand("grad"),
        summary="the gradients of batch_norm_training",
    )
)
