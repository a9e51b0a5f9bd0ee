"""Ctrl-C in the middle of one task of a kernel."""

from __future__ import annotations

import os
import signal
import sys
import threading

import hlojit
import numpy as np
import pytest

MANY = 1 << 44
MAXIMUM = f"""func.func @main(%a: tensor<i32>) -> tensor<i32> {{
  %0 = stablehlo.iota dim = 0 : tensor<{MANY}xi32>
  %1 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<i32>) -> tensor<{MANY}xi32>
  %2 = stablehlo.xor %0, %1 : tensor<{MANY}xi32>
  %3 = stablehlo.reduce(%2 init: %a) applies stablehlo.maximum across dimensions = [0] : (tensor<{MANY}xi32>, tensor<i32>) -> tensor<i32>
  return %3 : tensor<i32>
}}"""

SPREAD = """func.func @main(%a: tensor<2x2xi32>) -> tensor<2x2xi32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %r = "stablehlo.reduce_window"(%a, %z) ({
    ^bb0(%x: tensor<i32>, %y: tensor<i32>):
      %s = stablehlo.add %x, %y : tensor<i32>
      stablehlo.return %s : tensor<i32>
    }) {window_dimensions = array<i64: 2, 2147483647>, window_strides = array<i64: 3, 3>, base_dilations = array<i64: 2, 2147483648>,
        window_dilations = array<i64: 2, 1>, padding = dense<[[3, 0], [3, 0]]> : tensor<2x2xi64>} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
  return %r : tensor<2x2xi32>
}"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize(
    ("text", "argument"), [(MAXIMUM, np.int32(3)), (SPREAD, np.ones((2, 2), "i4"))], ids=["reduce", "reduce_window"]
)
def test_ctrl_c_in_the_middle_of_a_task(text: str, argument: np.ndarray) -> None:
    """It would take hours: it is heard at all if the test ends."""
    executable = hlojit.compile(text)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            executable(argument)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, previous)
    assert (
        hlojit.compile("func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }")(np.float32(2))
        == 2
    )
