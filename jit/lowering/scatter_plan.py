"""What is decided about a scatter: which dimensions its windows have, and whether updates may come in any order."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlojit.ir.attributes import ScatterDimensionNumbers
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.views import ScatterView
from hlojit.ir.types import TensorType


@dataclass(frozen=True)
class ScatterPlan:
    """Shapes of a scatter: ``count`` inputs, indices, ``count`` updates; an update is a window at a place."""

    count: int
    input: TensorType
    indices: TensorType
    updates: TensorType
    numbers: ScatterDimensionNumbers
    window_dims: tuple[int, ...]
    """Of the updates: dimensions along a window."""
    scatter_dims: tuple[int, ...]
    """Of the updates: dimensions that count windows."""
    operand_window_dims: tuple[int, ...]
    """Of the inputs: where the windows' dimensions go."""
    is_unique: bool
    """Whether the program promises that no element is updated twice."""

    @staticmethod
    def of(instruction: Instruction) -> ScatterPlan:
        """The plan of a scatter instruction."""
        count = len(instruction.results)
        view = ScatterView.of(instruction)
        input, indices, updates = (instruction.operands[n].tensor_type for n in (0, count, count + 1))
        numbers = view.numbers
        absent = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
        return ScatterPlan(
            count,
            input,
            indices,
            updates,
            numbers,
            numbers.update_window_dims,
            tuple(d for d in range(updates.rank) if d not in numbers.update_window_dims),
            tuple(d for d in range(input.rank) if d not in absent),
            view.unique_indices,
        )

    @property
    def scatter_shape(self) -> tuple[int, ...]:
        """How many windows there are, by dimension."""
        return tuple(self.updates.shape[d] for d in self.scatter_dims)

    @property
    def window_shape(self) -> tuple[int, ...]:
        """The extents of a window."""
        return tuple(self.updates.shape[d] for d in self.window_dims)

    @property
    def windows(self) -> int:
        """Number of windows."""
        return math.prod(self.scatter_shape)

    @property
    def window_size(self) -> int:
        """Elements of a window."""
        return math.prod(self.window_shape)

    @property
    def index_strides(self) -> tuple[int, ...]:
        """Elements between neighbouring windows' indices, by scatter dimension."""
        vector = self.numbers.index_vector_dim
        return tuple(stride for d, stride in enumerate(self.indices.strides) if d != vector)

    @property
    def component_stride(self) -> int:
        """Elements between the components of one index."""
        vector = self.numbers.index_vector_dim
        return self.indices.strides[vector] if vector < self.indices.rank else 0

    @property
    def batch_positions(self) -> dict[int, int]:
        """Batching dimensions of the inputs, with the scatter dimension that counts along each."""
        numbers = self.numbers
        vector = numbers.index_vector_dim
        return {
            dimension: index_dimension - (index_dimension > vector)
            for dimension, index_dimension in zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims)
        }

    @property
    def windows_are_lines(self) -> bool:
        """Whether no index moves a window along its own dimensions: each of its elements has its own line of the inputs."""
        return not set(self.numbers.scatter_dims_to_operand_dims) & set(self.operand_window_dims)

    @property
    def windows_are_side_by_side(self) -> bool:
        """Whether the elements along a window's last dimension are neighbours in the inputs and in the updates."""
        last = self.operand_window_dims[-1]
        return self.input.strides[last] == 1 and self.updates.strides[self.window_dims[-1]] == 1

    @property
    def window_extent(self) -> tuple[int, ...]:
        """How far a window reaches in every dimension of the inputs."""
        extents = [1] * self.input.rank
        for dimension, extent in zip(self.operand_window_dims, self.window_shape):
            extents[dimension] = extent
        return tuple(extents)
