"""How what follows a convolution goes over its results: by output rows of a batch element, features and positions in them."""

from __future__ import annotations

from hlojit.ir.ops.views import ConvolutionView
from hlojit.llvm.epilogue import Epilogue, Walk
from hlojit.llvm.product_elements import Elements
from hlojit.lowering.anchored_body import AnchoredBody
from hlojit.lowering.convolution_problem import ConvolutionProblem
from hlojit.lowering.index import Index, delinearized, linear_index, variable
from hlojit.lowering.target import Target


def window_epilogue(
    group: AnchoredBody, target: Target, problem: ConvolutionProblem, sums: Elements, *, columns: bool
) -> Epilogue | None:
    """What follows, over boxes of positions x features, or (``columns``) of features x positions; None if it cannot be."""
    last = problem.spatial[-1]
    line = [axis.output for axis in problem.spatial[:-1]]
    lines = problem.positions // last.output
    batch = variable("batch", 0, problem.batch - 1)
    feature = variable("group", 0, problem.groups - 1) * problem.features + variable("feature", 0, problem.features - 1)
    places = (*delinearized(variable("line", 0, lines - 1), line), variable("position", 0, last.output - 1))
    index = _in_result(group, batch, feature, places)
    row, column = ("feature", "position") if columns else ("position", "feature")
    return Epilogue.of(group, target, sums, Walk(("batch", "group", "line"), row, column, index))


def _in_result(group: AnchoredBody, batch: Index, feature: Index, places: tuple[Index, ...]) -> tuple[Index, ...]:
    """The index of the roots of an element of the convolution."""
    numbers, result = ConvolutionView.of(group.anchor).numbers, group.anchor.result.tensor_type
    index = [Index(0)] * result.rank
    index[numbers.output_batch], index[numbers.output_feature] = batch, feature
    for dimension, place in zip(numbers.output_spatial, places):
        index[dimension] = place
    shape = group.sums.tensor_type.shape
    return tuple(index) if shape == result.shape else delinearized(linear_index(index, result.strides), shape)
