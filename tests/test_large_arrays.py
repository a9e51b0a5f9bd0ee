"""Arrays that no memory holds are refused with their bytes."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest

HUGE = "tensor<1000000000000xf32>"


def test_an_argument_of_which_a_copy_does_not_fit() -> None:
    sparse = np.broadcast_to(np.float32(1), (1 << 42,))
    text = "func.func @main(%x: tensor<4398046511104xf32>) -> tensor<f32> {\n"
    text += "%z = stablehlo.constant dense<0.0> : tensor<f32>\nreturn %z : tensor<f32>\n}"
    for use in (hlojit.put, hlojit.jit(lambda x: x[:3]), hlojit.compile(text)):
        with pytest.raises(hlojit.ArgumentError, match="no memory for a copy of .*17,592,186,044,416 bytes"):
            use(sparse)


def test_a_result_that_does_not_fit() -> None:
    text = f"func.func @main() -> {HUGE} {{\n%c = stablehlo.constant dense<1.0> : {HUGE}\nreturn %c : {HUGE}\n}}"
    with pytest.raises(hlojit.HlojitError, match=r"no memory to compile the program: Unable to allocate 3\.64 TiB"):
        hlojit.compile(text)
