"""Kernels that compute something else than their group, each in its own way: the kit has to find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlojit import testing
from hlojit.extensions import AnchorPattern, ArrayFunction, Declined, Kernel, OpPattern, TaskFunction

from .plugins import TINY

Check = Callable[[], testing.Report]
DOT = "stablehlo.dot_general"


def names(group: Any) -> list[str]:
    return [each.op.name for each in group.instructions]


def is_plain_dot(group: Any) -> bool:
    kinds = [*group.operand_types, *group.result_types]
    return all(kind.rank <= 2 and kind.element_type.name == "f32" for kind in kinds) and len(group.result_types) == 1


def with_bias(x: Any, y: Any, bias: Any, r: Any) -> None:
    """Without the maximum behind it."""
    for i in range(x.shape[0]):
        for j in range(y.shape[1]):
            total = bias[j]
            for k in range(x.shape[1]):
                total += x[i, k] * y[k, j]
            r[i, j] = total


def bias_by_rows(x: Any, y: Any, bias: Any, r: Any) -> None:
    """The bias of a row in the place of a column's."""
    for i in range(x.shape[0]):
        for j in range(y.shape[1]):
            total = bias[i % bias.shape[0]]
            for k in range(x.shape[1]):
                total += x[i, k] * y[k, j]
            r[i, j] = max(total, 0.0)


def first_transposed(x: Any, y: Any, r: Any) -> None:
    """Takes the second operand as if it lay transposed."""
    for i in range(x.shape[0]):
        for j in range(y.shape[1]):
            total = 0.0
            for k in range(x.shape[1]):
                at = j * x.shape[1] + k
                total += x[i, k] * y[at // y.shape[1], at % y.shape[1]]
            r[i, j] = total


def _epilogue(function: Any) -> Callable[[], testing.Report]:
    def build(group: Any) -> Any:
        if not is_plain_dot(group) or len(group.operand_types) != 3 or "stablehlo.maximum" not in names(group):
            return Declined("a product with bias and maximum is wanted")
        return ArrayFunction(function)

    kernel = Kernel("kit.linear", backend="cpu", pattern=AnchorPattern(DOT), build=build)
    return lambda: testing.check_kernel(kernel, budget=TINY, isolate=False)


def _alone(function: Any) -> Callable[[], testing.Report]:
    def build(group: Any) -> Any:
        if not is_plain_dot(group) or len(group.operand_types) != 2:
            return Declined("a product is wanted")
        return ArrayFunction(function)

    kernel = Kernel("kit.product", backend="cpu", pattern=OpPattern(DOT), build=build)
    return lambda: testing.check_kernel(kernel, budget=TINY, isolate=False)


def _tasks(function: Any, tasks: int) -> Callable[[], testing.Report]:
    def build(group: Any) -> Any:
        (kind,) = group.operand_types
        if kind.rank != 1 or kind.element_type.name != "f32":
            return Declined("a vector is wanted")
        return TaskFunction(function, tasks=tasks)

    kernel = Kernel("kit.tasks", backend="cpu", pattern=OpPattern("stablehlo.negate"), build=build)
    return lambda: testing.check_kernel(kernel, budget=TINY, isolate=False)


def a_quarter_each(x: Any, r: Any, begin: int, end: int) -> None:
    """Four tasks for so many elements that divide by four."""
    part = x.size // 4
    for task in range(begin, end):
        for i in range(task * part, (task + 1) * part):
            r[i] = -x[i]


def in_place_of(x: Any, r: Any) -> None:
    for i in range(x.size):
        if x[i] != 0:
            r[i] = -x[i]


def _negate(function: Any) -> Callable[[], testing.Report]:
    def build(group: Any) -> Any:
        (kind,) = group.operand_types
        is_vector = kind.rank == 1 and kind.element_type.name == "f32"
        return ArrayFunction(function, bounds=False) if is_vector else Declined("a vector is wanted")

    kernel = Kernel("kit.negate", backend="cpu", pattern=OpPattern("stablehlo.negate"), build=build)
    return lambda: testing.check_kernel(kernel, budget=TINY, isolate=False)


def without_initial(x: Any, r: Any) -> None:
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j]
        r[i] = total


def _reduction() -> testing.Report:
    def build(group: Any) -> Any:
        shapes = [kind.shape for kind in group.operand_types]
        is_sum = len(group.result_types) == 1 and group.result_types[0].shape == shapes[0][:1] and len(shapes[0]) == 2
        return ArrayFunction(without_initial) if is_sum and len(shapes) == 1 else Declined("sums of rows are wanted")

    text = """func.func @main(%x: tensor<9x7xf32>) -> tensor<9xf32> {
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %r = stablehlo.reduce(%x init: %one) applies stablehlo.add across dimensions = [1] : (tensor<9x7xf32>, tensor<f32>) -> tensor<9xf32>
      return %r : tensor<9xf32>
    }"""
    kernel = Kernel("kit.sum", backend="cpu", pattern=OpPattern("stablehlo.reduce"), build=build)
    return testing.check_kernel(kernel, [text], budget=TINY, isolate=False)


KERNELS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "a kernel that ignores what follows its product": (_epilogue(with_bias), (DOT,)),
    "a kernel that spreads its bias wrongly": (_epilogue(bias_by_rows), (DOT,)),
    "a kernel that reads an operand transposed": (_alone(first_transposed), (DOT,)),
    "a kernel whose tasks leave the rest": (_tasks(a_quarter_each, 4), ("nobody has written",)),
    "a kernel that takes memory for zeros": (_negate(in_place_of), ("nobody has written",)),
    "a kernel that begins its sums with 0": (_reduction, ("stablehlo.reduce",)),
}
