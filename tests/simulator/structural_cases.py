"""Programs of one op that moves, combines or orders elements, for every kind of shape; ``T`` stands for the element type."""

from __future__ import annotations

import re
from dataclasses import dataclass

ONE = "func.func @main({}) -> {} {{\n  %r = {}\n  return %r : {}\n}}"


@dataclass(frozen=True)
class Template:
    """A program with ``T`` as the element type of its data; ``numbers_only`` where predicates are not taken."""

    name: str
    text: str
    numbers_only: bool = False

    def program(self, element: str) -> str:
        """The text for one element type."""
        return re.sub(r"\bT\b|(?<=x)T\b", element, self.text)


def _one(name: str, arguments: str, result: str, text: str, numbers_only: bool = False) -> Template:
    return Template(name, ONE.format(arguments, result, text, result), numbers_only)


def _movements() -> list[Template]:
    made = []
    for source, permutation, result in (
        ("3x5", (1, 0), "5x3"), ("64x33", (1, 0), "33x64"), ("2x3x4", (2, 0, 1), "4x2x3"), ("1x7", (1, 0), "7x1"),
        ("0x4", (1, 0), "4x0"), ("2x1x3x2x1x2", (5, 4, 3, 2, 1, 0), "2x1x2x3x1x2"), ("32x2x32", (2, 1, 0), "32x2x32"),
    ):  # fmt: skip
        text = f"stablehlo.transpose %x, dims = {list(permutation)} : (tensor<{source}xT>) -> tensor<{result}xT>"
        made.append(_one(f"transpose {source}", f"%x: tensor<{source}xT>", f"tensor<{result}xT>", text))
    for source, result in (("3x4", "12"), ("7", "1x7x1"), ("", "1"), ("1x1", ""), ("0x3", "5x0"), ("2x3x5", "5x6")):
        kind, target = f"tensor<{source}{'x' if source else ''}T>", f"tensor<{result}{'x' if result else ''}T>"
        made.append(_one(f"reshape {source}", f"%x: {kind}", target, f"stablehlo.reshape %x : ({kind}) -> {target}"))
    for source, dims, result in (("", (), "3x37"), ("37", (1,), "3x37"), ("3x1", (0, 1), "3x8"), ("5", (0,), "5x0"),
                                 ("4", (2,), "2x3x4"), ("1", (0,), "64")):  # fmt: skip
        kind = f"tensor<{source}{'x' if source else ''}T>"
        text = f"stablehlo.broadcast_in_dim %x, dims = {list(dims)} : ({kind}) -> tensor<{result}xT>"
        made.append(_one(f"broadcast {source or 'scalar'} {result}", f"%x: {kind}", f"tensor<{result}xT>", text))
    for source, dims in (("37", (0,)), ("3x8", (1,)), ("3x8", (0, 1)), ("0", (0,)), ("1x1", (0,))):
        kind = f"tensor<{source}xT>"
        made.append(
            _one(f"reverse {source} {dims}", f"%x: {kind}", kind, f"stablehlo.reverse %x, dims = {list(dims)} : {kind}")
        )
    for source, where, result in (
        ("37", "3:36:3", "11"), ("3x8", "1:3, 0:8:2", "2x4"), ("5", "5:5", "0"), ("2x3x4", "0:2, 2:3, 1:4", "2x1x3"),
    ):  # fmt: skip
        text = f"stablehlo.slice %x [{where}] : (tensor<{source}xT>) -> tensor<{result}xT>"
        made.append(_one(f"slice {source} {result}", f"%x: tensor<{source}xT>", f"tensor<{result}xT>", text))
    for source, low, high, interior, result in (
        ("5", [2], [3], [1], "14"), ("3x4", [-1, 0], [2, -2], [0, 0], "4x2"), ("0", [2], [1], [4], "3"),
        ("2x3x2", [1, 0, 0], [0, 0, 1], [0, 2, 0], "3x7x3"),
    ):  # fmt: skip
        text = (
            f"stablehlo.pad %x, %y, low = {low}, high = {high}, interior = {interior} : "
            f"(tensor<{source}xT>, tensor<T>) -> tensor<{result}xT>"
        )
        made.append(_one(f"pad {source}", f"%x: tensor<{source}xT>, %y: tensor<T>", f"tensor<{result}xT>", text))
    for first, second, dim, result in (("5", "3", 0, "8"), ("2x3", "2x5", 1, "2x8"), ("0x2", "3x2", 0, "3x2"),
                                       ("1x1x1", "1x1x1", 2, "1x1x2"), ("40x7", "24x7", 0, "64x7")):  # fmt: skip
        text = (
            f"stablehlo.concatenate %x, %y, %x, dim = {dim} : (tensor<{first}xT>, tensor<{second}xT>, tensor<{first}xT>) "
            f"-> tensor<{_longer(result, first, dim)}xT>"
        )
        made.append(
            _one(f"concatenate {first} {second}", f"%x: tensor<{first}xT>, %y: tensor<{second}xT>",
                 f"tensor<{_longer(result, first, dim)}xT>", text)
        )  # fmt: skip
    return made


def _longer(shape: str, other: str, dim: int) -> str:
    extents = [int(extent) for extent in shape.split("x")]
    extents[dim] += int(other.split("x")[dim])
    return "x".join(map(str, extents))


def _indexed() -> list[Template]:
    made = [
        _one("iota", "", "tensor<5x7xT>", "stablehlo.iota dim = 1 : tensor<5x7xT>", True),
        _one("iota of a line", "", "tensor<37xT>", "stablehlo.iota dim = 0 : tensor<37xT>", True),
        _one("dimension size", "%x: tensor<5x7xT>", "tensor<i32>",
             "stablehlo.get_dimension_size %x, dim = 1 : (tensor<5x7xT>) -> tensor<i32>"),
        _one("bits", "%x: tensor<5x8xi32>", "tensor<5x8x4xi8>",
             "stablehlo.bitcast_convert %x : (tensor<5x8xi32>) -> tensor<5x8x4xi8>"),
    ]  # fmt: skip
    for source, sizes, count in (("9", (4,), 1), ("6x7", (2, 7), 2), ("1x1", (1, 1), 2), ("5x3x4", (5, 1, 2), 3)):
        scalars = ", ".join(f"%i{n}: tensor<i32>" for n in range(count))
        names, kinds = ", ".join(f"%i{n}" for n in range(count)), ", ".join(["tensor<i32>"] * count)
        kind, part = f"tensor<{source}xT>", f"tensor<{'x'.join(map(str, sizes))}xT>"
        text = f"stablehlo.dynamic_slice %x, {names}, sizes = {list(sizes)} : ({kind}, {kinds}) -> {part}"
        made.append(_one(f"dynamic_slice {source}", f"%x: {kind}, {scalars}", part, text))
        text = f"stablehlo.dynamic_update_slice %x, %u, {names} : ({kind}, {part}, {kinds}) -> {kind}"
        made.append(_one(f"dynamic_update_slice {source}", f"%x: {kind}, %u: {part}, {scalars}", kind, text))
    for rows, columns, count in ((9, 4, 5), (1, 1, 3), (7, 33, 64), (5, 3, 0)):
        kind, part = f"tensor<{rows}x{columns}xT>", f"tensor<{count}x{columns}xT>"
        made.append(
            _one(f"gather {rows}x{columns} {count}", f"%x: {kind}, %i: tensor<{count}x1xi32>", part,
                 '"stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
                 f"collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, {columns}>, "
                 f"indices_are_sorted = false}} : ({kind}, tensor<{count}x1xi32>) -> {part}")
        )  # fmt: skip
        for combine in ("maximum", "overwrite"):
            body = f"%c = stablehlo.{combine} %p, %q : tensor<T>" if combine != "overwrite" else ""
            made.append(
                _one(f"scatter {combine} {rows}x{columns} {count}", f"%x: {kind}, %i: tensor<{count}x1xi32>, %u: {part}", kind,
                     '"stablehlo.scatter"(%x, %i, %u) ({\n^bb0(%p: tensor<T>, %q: tensor<T>):\n' + body +
                     f"\nstablehlo.return {'%c' if body else '%q'} : tensor<T>\n}}) {{scatter_dimension_numbers = "
                     "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
                     "index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : "
                     f"({kind}, tensor<{count}x1xi32>, {part}) -> {kind}", bool(body))
            )  # fmt: skip
    return made


def _combining() -> list[Template]:
    made = []
    for shape, axes, result in (
        ("37", [0], ""), ("5x7", [1], "5"), ("5x7", [0], "7"), ("5x7", [0, 1], ""), ("0x4", [0], "4"), ("4x0", [0], "0"),
        ("1x1", [1], "1"), ("2x3x4", [0, 2], "3"), ("2x3x4", [1], "2x4"), ("3x130", [1], "3"), ("130x3", [0], "3"), ("2x64", [1], "2"),
    ):  # fmt: skip
        kind, target = f"tensor<{shape}xT>", f"tensor<{result}{'x' if result else ''}T>"
        for name in ("maximum", "minimum"):
            text = f"stablehlo.reduce(%x init: %y) applies stablehlo.{name} across dimensions = {axes} : ({kind}, tensor<T>) -> {target}"
            made.append(_one(f"reduce {name} {shape} {axes}", f"%x: {kind}, %y: tensor<T>", target, text))
    for shape, window, strides, padding, result in (
        ("9", [3], [2], [[1, 1]], "5"), ("4x6", [2, 3], [1, 2], [[0, 0], [1, 1]], "3x3"), ("7", [7], [1], [[6, 0]], "7"),
        ("3x5", [1, 5], [1, 1], [[0, 0], [4, 0]], "3x5"), ("1", [1], [1], [[0, 0]], "1"),
    ):  # fmt: skip
        kind, target = f"tensor<{shape}xT>", f"tensor<{result}xT>"
        made.append(
            _one(f"reduce_window {shape}", f"%x: {kind}, %y: tensor<T>", target,
                 '"stablehlo.reduce_window"(%x, %y) ({\n^bb0(%p: tensor<T>, %q: tensor<T>):\n%c = stablehlo.maximum %p, %q : tensor<T>\n'
                 "stablehlo.return %c : tensor<T>\n}) {"
                 f"window_dimensions = array<i64: {_list(window)}>, window_strides = array<i64: {_list(strides)}>, "
                 f"padding = dense<{padding}> : tensor<{len(window)}x2xi64>}} : ({kind}, tensor<T>) -> {target}")
        )  # fmt: skip
    for length in ("1", "37", "0", "3x70", "300"):
        kind, dim = f"tensor<{length}xT>", length.count("x")
        made.append(
            _one(f"sort {length}", f"%x: {kind}", kind,
                 '"stablehlo.sort"(%x) ({\n^bb0(%p: tensor<T>, %q: tensor<T>):\n%c = stablehlo.compare GT, %p, %q : '
                 f"(tensor<T>, tensor<T>) -> tensor<i1>\nstablehlo.return %c : tensor<i1>\n}}) {{dimension = {dim} : i64, "
                 f"is_stable = true}} : ({kind}) -> {kind}")
        )  # fmt: skip
    for left, right, text, result in (
        ("3x4", "4x5", "contracting_dims = [1] x [0]", "3x5"), ("7", "7", "contracting_dims = [0] x [0]", ""),
        ("2x3x4", "2x4x5", "batching_dims = [0] x [0], contracting_dims = [2] x [1]", "2x3x5"),
        ("1x1", "1x1", "contracting_dims = [1] x [0]", "1x1"), ("3x0", "0x2", "contracting_dims = [1] x [0]", "3x2"),
        ("33x6", "6x17", "contracting_dims = [1] x [0]", "33x17"), ("5", "4", "contracting_dims = [] x []", "5x4"),
    ):  # fmt: skip
        first, second = f"tensor<{left}xT>", f"tensor<{right}xT>"
        target = f"tensor<{result}{'x' if result else ''}T>"
        made.append(
            _one(f"dot_general {left} {right}", f"%x: {first}, %y: {second}", target,
                 f"stablehlo.dot_general %x, %y, {text} : ({first}, {second}) -> {target}", True)
        )  # fmt: skip
    for image, kernel, result in (("1x5x6x2", "3x2x2x3", "1x3x5x3"), ("2x1x1x1", "1x1x1x4", "2x1x1x4")):
        first, second, target = f"tensor<{image}xT>", f"tensor<{kernel}xT>", f"tensor<{result}xT>"
        made.append(
            _one(f"convolution {image}", f"%x: {first}, %y: {second}", target,
                 "stablehlo.convolution(%x, %y) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} "
                 f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({first}, {second}) -> {target}", True)
        )  # fmt: skip
    return made


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


CONTROL = Template("control flow", """
func.func private @twice(%x: tensor<5xT>) -> tensor<5xT> {
  %0 = stablehlo.maximum %x, %x : tensor<5xT>
  return %0 : tensor<5xT>
}
func.func @main(%x: tensor<5xT>, %y: tensor<5xT>, %p: tensor<i1>, %n: tensor<i32>) -> (tensor<5xT>, tensor<5xT>, tensor<5xT>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y) : tensor<i32>, tensor<5xT>, tensor<5xT>
   cond {
    %q = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %q : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %c = "stablehlo.if"(%p) ({
      stablehlo.return %b : tensor<5xT>
    }, {
      %m = func.call @twice(%a) : (tensor<5xT>) -> tensor<5xT>
      stablehlo.return %m : tensor<5xT>
    }) : (tensor<i1>) -> tensor<5xT>
    stablehlo.return %j, %b, %c : tensor<i32>, tensor<5xT>, tensor<5xT>
  }
  %s = "stablehlo.case"(%n) ({
    stablehlo.return %r#1 : tensor<5xT>
  }, {
    stablehlo.return %r#2 : tensor<5xT>
  }, {
    %m = stablehlo.minimum %r#1, %r#2 : tensor<5xT>
    stablehlo.return %m : tensor<5xT>
  }) : (tensor<i32>) -> tensor<5xT>
  %t = stablehlo.tuple %s, %r#0 : tuple<tensor<5xT>, tensor<i32>>
  %u = stablehlo.get_tuple_element %t[0] : (tuple<tensor<5xT>, tensor<i32>>) -> tensor<5xT>
  %v = stablehlo.optimization_barrier %u : tensor<5xT>
  return %v, %r#1, %r#2, %r#0 : tensor<5xT>, tensor<5xT>, tensor<5xT>, tensor<i32>
}
""")  # fmt: skip

TEMPLATES = [*_movements(), *_indexed(), *_combining(), CONTROL]
