"""Rules on updates in place: equal results with starts out of range, and one update where one is enough."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.ir import evaluate

STARTS = (-(2**31), -1, 0, 1, 2, 5, 2**31 - 1)
LAYOUT = "x: tensor<4x3x5xi32>, %v: tensor<i32>, %i: tensor<i32>, %j: tensor<i32>"


def updates(text: str) -> int:
    """How many updates are left after all passes."""
    return str(hlojit.lower(text)).count("stablehlo.dynamic_update_slice")


def assert_same(text: str, starts: tuple[int, ...] = STARTS) -> None:
    """The compiled program computes what the interpreter says, wherever the update is to be."""
    x = np.arange(60, dtype=np.int32).reshape(4, 3, 5)
    module, executable = hlojit.parse(text), hlojit.compile(text)
    for i in starts:
        for j in starts:
            arguments = (x, np.int32(-7), np.int32(i), np.int32(j))
            (expected,) = evaluate(module, *arguments)
            np.testing.assert_array_equal(executable(*arguments), expected, err_msg=f"at {i}, {j}")


def program(body: str) -> str:
    return f"""func.func @main(%{LAYOUT}) -> tensor<4x3x5xi32> {{
      %0 = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.constant dense<2> : tensor<i32>
      {body}
      return %r : tensor<4x3x5xi32>
    }}"""


COLUMN = program("""
  %c = stablehlo.slice %x [0:4, 1:2, 2:3] : (tensor<4x3x5xi32>) -> tensor<4x1x1xi32>
  %d = stablehlo.reshape %c : (tensor<4x1x1xi32>) -> tensor<4xi32>
  %u = stablehlo.reshape %v : (tensor<i32>) -> tensor<1xi32>
  %w = stablehlo.dynamic_update_slice %d, %u, %i : (tensor<4xi32>, tensor<1xi32>, tensor<i32>) -> tensor<4xi32>
  %t = stablehlo.reshape %w : (tensor<4xi32>) -> tensor<4x1x1xi32>
  %r = stablehlo.dynamic_update_slice %x, %t, %0, %1, %2 :
    (tensor<4x3x5xi32>, tensor<4x1x1xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x3x5xi32>""")
WINDOW = program("""
  %c = stablehlo.slice %x [1:3, 1:3, 2:5] : (tensor<4x3x5xi32>) -> tensor<2x2x3xi32>
  %u = stablehlo.broadcast_in_dim %v, dims = [] : (tensor<i32>) -> tensor<1x2x2xi32>
  %w = stablehlo.dynamic_update_slice %c, %u, %i, %j, %j :
    (tensor<2x2x3xi32>, tensor<1x2x2xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x3xi32>
  %r = stablehlo.dynamic_update_slice %x, %w, %1, %1, %2 :
    (tensor<4x3x5xi32>, tensor<2x2x3xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x3x5xi32>""")
ROW = program("""
  %c = stablehlo.dynamic_slice %x, %i, %j, %0, sizes = [1, 1, 5] :
    (tensor<4x3x5xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x5xi32>
  %d = stablehlo.reshape %c : (tensor<1x1x5xi32>) -> tensor<5xi32>
  %u = stablehlo.reshape %v : (tensor<i32>) -> tensor<1xi32>
  %w = stablehlo.dynamic_update_slice %d, %u, %j : (tensor<5xi32>, tensor<1xi32>, tensor<i32>) -> tensor<5xi32>
  %t = stablehlo.reshape %w : (tensor<5xi32>) -> tensor<1x1x5xi32>
  %r = stablehlo.dynamic_update_slice %x, %t, %i, %j, %0 :
    (tensor<4x3x5xi32>, tensor<1x1x5xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x3x5xi32>""")
TWICE = program("""
  %u = stablehlo.broadcast_in_dim %v, dims = [] : (tensor<i32>) -> tensor<2x1x3xi32>
  %p = stablehlo.dynamic_update_slice %x, %u, %i, %j, %1 :
    (tensor<4x3x5xi32>, tensor<2x1x3xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x3x5xi32>
  %q = stablehlo.negate %u : tensor<2x1x3xi32>
  %r = stablehlo.dynamic_update_slice %p, %q, %i, %j, %1 :
    (tensor<4x3x5xi32>, tensor<2x1x3xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x3x5xi32>""")
READ = program("""
  %u = stablehlo.broadcast_in_dim %v, dims = [] : (tensor<i32>) -> tensor<2x1x3xi32>
  %p = stablehlo.dynamic_update_slice %x, %u, %i, %j, %1 :
    (tensor<4x3x5xi32>, tensor<2x1x3xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x3x5xi32>
  %g = stablehlo.dynamic_slice %p, %i, %j, %1, sizes = [2, 1, 3] :
    (tensor<4x3x5xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x1x3xi32>
  %q = stablehlo.negate %g : tensor<2x1x3xi32>
  %r = stablehlo.dynamic_update_slice %p, %q, %i, %j, %1 :
    (tensor<4x3x5xi32>, tensor<2x1x3xi32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x3x5xi32>""")
TOGETHER = {"column": COLUMN, "window": WINDOW, "row": ROW, "twice": TWICE, "read": READ}


@pytest.mark.parametrize("name", TOGETHER)
def test_one_update_is_enough(name: str) -> None:
    assert updates(TOGETHER[name]) == 1
    assert_same(TOGETHER[name])


ELSEWHERE = COLUMN.replace("%x, %t, %0, %1, %2", "%x, %t, %0, %0, %2")
OTHER_SIZE = TWICE.replace(
    "negate %u : tensor<2x1x3xi32>", "slice %u [0:1, 0:1, 0:3] : (tensor<2x1x3xi32>) -> tensor<1x1x3xi32>"
).replace(
    "%p, %q, %i, %j, %1 :\n    (tensor<4x3x5xi32>, tensor<2x1x3xi32>",
    "%p, %q, %i, %j, %1 :\n    (tensor<4x3x5xi32>, tensor<1x1x3xi32>",
)


@pytest.mark.parametrize("text", [ELSEWHERE, OTHER_SIZE], ids=["elsewhere", "another size"])
def test_what_is_another_place_stays(text: str) -> None:
    assert updates(text) == 2
    assert_same(text)


def test_starts_of_narrow_types() -> None:
    """An extent that the type of the starts cannot hold needs no clamp above."""
    text = """func.func @main(%x: tensor<300x2xi32>, %v: tensor<i32>, %i: tensor<i8>) -> tensor<300x2xi32> {
      %0 = stablehlo.constant dense<0> : tensor<i8>
      %1 = stablehlo.constant dense<1> : tensor<i8>
      %c = stablehlo.slice %x [0:299, 1:2] : (tensor<300x2xi32>) -> tensor<299x1xi32>
      %u = stablehlo.reshape %v : (tensor<i32>) -> tensor<1x1xi32>
      %w = stablehlo.dynamic_update_slice %c, %u, %i, %0 :
        (tensor<299x1xi32>, tensor<1x1xi32>, tensor<i8>, tensor<i8>) -> tensor<299x1xi32>
      %r = stablehlo.dynamic_update_slice %x, %w, %0, %1 :
        (tensor<300x2xi32>, tensor<299x1xi32>, tensor<i8>, tensor<i8>) -> tensor<300x2xi32>
      return %r : tensor<300x2xi32>
    }"""
    assert updates(text) == 1
    module, executable = hlojit.parse(text), hlojit.compile(text)
    x = np.arange(600, dtype=np.int32).reshape(300, 2)
    for i in (-128, -1, 0, 7, 127):
        (expected,) = evaluate(module, x, np.int32(-7), np.int8(i))
        np.testing.assert_array_equal(executable(x, np.int32(-7), np.int8(i)), expected)
