"""What transformations do not take: one line that says so, in the form of the other messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest

_X = np.ones(3)


def _squares(x: Any) -> Any:
    return np.sum(x * x)


def _custom_jvp(tangent: Callable[[Any], Any]) -> Any:
    function = hlojit.custom_jvp(_squares)
    function.defjvp(lambda primals, tangents: (_squares(*primals), tangent(tangents[0])))
    return hlojit.grad(function)(_X)


def _custom_vjp(forward: Callable[[Any], Any], backward: Callable[[Any, Any], Any]) -> Any:
    function = hlojit.custom_vjp(_squares)
    function.defvjp(forward, backward)
    return hlojit.grad(function)(_X)


def _pulled(cotangent: Any) -> Any:
    return hlojit.vjp(lambda x: x * x, _X)[1](cotangent)


MESSAGES: list[tuple[Callable[[], Any], str]] = [
    (lambda: hlojit.grad(_squares)(np.arange(3)), r"grad: argument\[0\] has elements of type i64"),
    (lambda: hlojit.grad(_squares, argnums=1)(_X), r"grad: argnums=\(1,\), but the function was called with 1"),
    (lambda: hlojit.grad(_squares, argnums="x")(_X), r"grad: argnums='x' is no number of an argument"),  # type: ignore[arg-type]
    (lambda: hlojit.grad(_squares, argnums=1.0)(_X), r"grad: argnums=1.0 is no number of an argument"),  # type: ignore[arg-type]
    (lambda: hlojit.grad(np.dot, argnums=(0, -2))(_X, _X), r"grad: argnums=\(0, -2\) names an argument twice"),
    (lambda: hlojit.grad(lambda x: x * x)(_X), r"grad: the function must return a number, .* shape \(3,\); jacrev"),
    (lambda: hlojit.grad(lambda x: (_squares(x), x))(_X), r"grad: .* one number, and returned a tuple of 2"),
    (lambda: hlojit.grad(lambda x: None)(_X), r"grad: the function must return one number, and returned None"),
    (lambda: hlojit.grad(_squares, has_aux=True)(_X), r"grad: with has_aux=True the function returns a pair"),
    (
        lambda: hlojit.grad(lambda x: (_squares(x), {"of": "text"}), has_aux=True)(_X),
        r"grad: auxiliary values are arrays and numbers, and aux\['of'\] is 'text'",
    ),
    (lambda: hlojit.grad(3), r"a function is transformed, and 3 is none"),  # type: ignore[arg-type]
    (
        lambda: hlojit.jvp(_squares, (_X,), (_X, _X)),
        r"jvp: .* structure than the values: a tuple of 2, not a tuple of 1",
    ),
    (lambda: _pulled((_X,)), r"vjp: .* structure than the values: a tuple of 1, not one value"),
    (
        lambda: _pulled(np.ones(4)),
        r"vjp: cotangents must have the types of the values: tensor<4xf64> for tensor<3xf64>",
    ),
    (lambda: hlojit.vmap(_squares, in_axes=2)(_X), r"vmap: argument\[0\] of shape \(3,\) has no dimension 2"),
    (
        lambda: _custom_jvp(lambda t: t),
        r"custom_jvp: the tangent that the rule returns is of type tensor<3xf64>, and must be of tensor<f64>",
    ),
    (
        lambda: _custom_vjp(lambda x: (_squares(x), x), lambda kept, t: (t,)),
        r"custom_vjp: a cotangent that the second function returns is of type tensor<f64>, and must be of tensor<3xf64>",
    ),
    (
        lambda: _custom_vjp(lambda x: (x, x), lambda kept, t: (t * kept,)),
        r"custom_vjp: the result of the first function is of type tensor<3xf64>, and must be of tensor<f64>",
    ),
    (
        lambda: _custom_vjp(lambda x: _squares(x), lambda kept, t: (t,)),
        r"custom_vjp: the first function returns a pair",
    ),
]


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_messages(number: int) -> None:
    call, pattern = MESSAGES[number]
    with pytest.raises(hlojit.HlojitError, match=pattern) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_messages_name_the_users_line(tmp_path: Any) -> None:
    program = tmp_path / "own.py"
    program.write_text(
        "import hlojit, numpy as np\n"
        "try:\n"
        "    hlojit.grad(lambda x: x * x)(np.ones(3))\n"
        "except hlojit.HlojitError as error:\n"
        "    print(error)\n"
    )
    made = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert made.stdout.startswith("own.py:3: "), made.stdout
