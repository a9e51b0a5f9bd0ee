"""Attribute values: plain immutable Python values where the op record names a kind, small records where it does not.

An instruction keeps two dictionaries.  ``attributes`` holds what its op record declares, already converted: ``int``,
``bool``, ``str``, ``float``, tuples of them, enum members as their keyword (``"LT"``), ``Dense`` for constants, the
records below for dimension numbers.  ``discardable`` holds everything else as generic MLIR attributes, kept and printed
back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hlojit.ir.frozen import immutable_array
from hlojit.ir.types import FunctionType, TensorType, Type


@dataclass(frozen=True, slots=True)
class Attribute:
    """Base of the generic MLIR attributes (those that no op record converts)."""


@dataclass(frozen=True, slots=True)
class UnitAttr(Attribute):
    """``unit``: present or absent."""


@dataclass(frozen=True, slots=True)
class BoolAttr(Attribute):
    """``true`` or ``false``."""

    value: bool


@dataclass(frozen=True, slots=True)
class IntegerAttr(Attribute):
    """``3 : i64``."""

    value: int
    type: str = "i64"


@dataclass(frozen=True, slots=True)
class FloatAttr(Attribute):
    """``1.5 : f32``."""

    value: float
    type: str = "f64"


@dataclass(frozen=True, slots=True)
class StringAttr(Attribute):
    """``"text"``."""

    value: str


@dataclass(frozen=True, slots=True)
class SymbolAttr(Attribute):
    """``@name`` or ``@name::@nested`` (without the first ``@``)."""

    name: str


@dataclass(frozen=True, slots=True)
class ArrayAttr(Attribute):
    """``[a, b]``."""

    elements: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class DenseArrayAttr(Attribute):
    """``array<i64: 1, 2>``."""

    element_type: str
    values: tuple[int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class DictAttr(Attribute):
    """``{a = 1, b}`` as pairs in the order of the text."""

    items: tuple[tuple[str, Attribute], ...]

    def as_dict(self) -> dict[str, Attribute]:
        """The entries as a dictionary."""
        return dict(self.items)


@dataclass(frozen=True, slots=True)
class TypeAttr(Attribute):
    """A type as an attribute."""

    type: Type | FunctionType


@dataclass(frozen=True, slots=True)
class OpaqueAttr(Attribute):
    """``#dialect.name<...>`` of a dialect that hlojit does not know, kept as its text."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Dense(Attribute):
    """The elements of a constant: ``type`` and an array of the type's storage dtype over memory that nobody can write.

    A splat is stored as an array of strides 0, so that memory stays proportional to the text.  Equality compares bits,
    so that -0.0 differs from 0.0 and NaN equals itself.
    """

    type: TensorType
    array: np.ndarray[Any, Any] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", immutable_array(self.array))

    @property
    def is_splat(self) -> bool:
        """Whether all elements are one value in memory."""
        return self.array.size > 0 and all(s == 0 or n == 1 for s, n in zip(self.array.strides, self.array.shape))

    @property
    def splat_value(self) -> Any:
        """The one element of a splat, as a NumPy scalar."""
        return self.array[(0,) * self.array.ndim]

    @property
    def splat_element(self) -> np.ndarray[Any, Any]:
        """The one element of a splat, as an array without dimensions: NumPy's scalars lose the bits of narrow NaNs."""
        return self.array[(slice(0, 1),) * self.array.ndim].reshape(())

    def tobytes(self) -> bytes:
        """Bits of the elements; of a splat, of one of them."""
        return self.splat_element.tobytes() if self.is_splat else self.array.tobytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dense) or self.type is not other.type:
            return False
        if self.is_splat == other.is_splat:
            return self.tobytes() == other.tobytes()
        return self.array.tobytes() == other.array.tobytes()

    def __hash__(self) -> int:
        return hash((self.type, np.asarray(self.array.flat[:16]).tobytes()))


@dataclass(frozen=True, slots=True)
class ElidedElements(Attribute):
    """``dense_resource<__elided__>``: what MLIR prints in the place of a large constant's elements, of which the type is left."""

    type: TensorType


@dataclass(frozen=True, slots=True)
class DotDimensionNumbers(Attribute):
    """``#stablehlo.dot``: which dimensions of each side are batched and contracted."""

    lhs_batching: tuple[int, ...] = ()
    rhs_batching: tuple[int, ...] = ()
    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DotAlgorithm(Attribute):
    """``#stablehlo.dot_algorithm``: the precision in which a dot is to be computed (names of element types)."""

    lhs_precision_type: str
    rhs_precision_type: str
    accumulation_type: str
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


@dataclass(frozen=True, slots=True)
class ResultAccuracy(Attribute):
    """``#stablehlo.result_accuracy``: how far elements may be off: ``atol + rtol * |exact| + ulps`` units in the last place
    where ``mode`` is ``TOLERANCE``; as far as is usual (``DEFAULT``), or as little as there is code for (``HIGHEST``).
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0
    mode: str = "DEFAULT"


@dataclass(frozen=True, slots=True)
class ConvDimensionNumbers(Attribute):
    """``#stablehlo.conv``: the position of batch, feature and spatial dimensions in input, kernel and output."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GatherDimensionNumbers(Attribute):
    """``#stablehlo.gather``."""

    offset_dims: tuple[int, ...] = ()
    collapsed_slice_dims: tuple[int, ...] = ()
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()
    start_index_map: tuple[int, ...] = ()
    index_vector_dim: int = 0


@dataclass(frozen=True, slots=True)
class ScatterDimensionNumbers(Attribute):
    """``#stablehlo.scatter``."""

    update_window_dims: tuple[int, ...] = ()
    inserted_window_dims: tuple[int, ...] = ()
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()
    scatter_dims_to_operand_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0


@dataclass(frozen=True, slots=True)
class ChannelHandle(Attribute):
    """``#stablehlo.channel_handle``."""

    handle: int
    type: int = 0


@dataclass(frozen=True, slots=True)
class OutputOperandAlias(Attribute):
    """``#stablehlo.output_operand_alias``: a result of a custom call, or a part of one, is the memory of an operand's part."""

    output_tuple_indices: tuple[int, ...]
    operand_index: int
    operand_tuple_indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RaggedDotDimensionNumbers(Attribute):
    """``#chlo.ragged_dot``: the numbers of a dot_general, the dimension of lhs that is ragged and that of rhs by group."""

    lhs_batching: tuple[int, ...] = ()
    rhs_batching: tuple[int, ...] = ()
    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_ragged: tuple[int, ...] = ()
    rhs_group: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AxisRef(Attribute):
    """``#stablehlo.axis_ref``: an axis of a mesh, or the part of one of ``size`` behind parts of ``pre_size`` in all."""

    name: str
    pre_size: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class MeshAxis(Attribute):
    """``#stablehlo.mesh_axis``: name and size of an axis of a mesh."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Mesh(Attribute):
    """``#stablehlo.mesh``: a grid of devices; ``axes`` are (name, size), ``device_ids`` numbers its places in row-major order."""

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MeshAxes(Attribute):
    """``#stablehlo.replica_group_mesh_axes``: groups of devices that differ along ``axes`` of a mesh, or of one by name."""

    mesh: Mesh | str
    axes: tuple[AxisRef, ...]


AttributeValue = Any
"""What an op record's converted attribute may be: int, bool, float, str, tuples of them, or an ``Attribute``."""
