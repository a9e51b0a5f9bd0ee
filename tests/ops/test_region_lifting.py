"""Loops in regions: those that run as often for every element are loops over tensors, all others run element after element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.ops.region_lifting import DEEPEST
from hlojit.ir.passes.op_expander import OpExpander

N, S = "tensor<i32>", "tensor<f32>"
Array = np.ndarray[Any, Any]


def loop(result: str, states: str, types: str, condition: str, body: str) -> str:
    """A loop of states that begin with values from outside: ``%i = %zero, %s = %a``."""
    return f"""%{result} = stablehlo.while({states}) : {types} cond {{
      {condition}
    }} do {{
      {body}
    }}"""


LESS = f"""%p = stablehlo.compare LT, %i, %n : ({N}, {N}) -> tensor<i1>
      stablehlo.return %p : tensor<i1>"""
NEXT = f"%j = stablehlo.add %i, %one : {N}"
MANY = f"""%j = stablehlo.add %i, %one : {N}
      %t = stablehlo.add %s, %half : {S}
      %u = stablehlo.multiply %t, %k : {S}
      stablehlo.return %j, %u : {N}, {S}"""


def many(a: Array, n: int, k: float) -> Array:
    for _ in range(n):
        a = (a + np.float32(0.5)) * np.float32(k)
    return a


INNER = f"""%e = stablehlo.convert %i : ({N}) -> {S}
      {
    loop(
        "w:2",
        "%l = %zero, %z = %s",
        f"{N}, {S}",
        LESS.replace("%i, %n", "%l, %i"),
        f'''%m = stablehlo.add %l, %one : {N}
      %y = stablehlo.add %z, %e : {S}
      stablehlo.return %m, %y : {N}, {S}''',
    )
}
      {NEXT}
      stablehlo.return %j, %w#1 : {N}, {S}"""


def nested(a: Array, n: int, k: float) -> Array:
    for i in range(n):
        for _ in range(i):
            a = a + np.float32(i)
    return a


SWAPPED = f"""{NEXT}
      %f = stablehlo.multiply %s, %k : {S}
      stablehlo.return %j, %t, %f : {N}, {S}, {S}"""


def swapped(a: Array, n: int, k: float) -> Array:
    other = np.full_like(a, k)
    for _ in range(n):
        a, other = other, a * np.float32(k)
    return a


LATE = f"""%p = stablehlo.compare LT, %t, %k : ({S}, {S}) -> tensor<i1>
      %q = stablehlo.compare LT, %i, %n : ({N}, {N}) -> tensor<i1>
      %r = stablehlo.and %p, %q : tensor<i1>
      stablehlo.return %r : tensor<i1>"""
LATE_BODY = f"""{NEXT}
      %f = stablehlo.add %s, %half : {S}
      stablehlo.return %j, %f, %s : {N}, {S}, {S}"""


def late(a: Array, n: int, k: float) -> Array:
    """What the condition reads depends on the element from the second turn on."""
    found = a.copy()
    for place in range(a.size):
        i, s, t = 0, a[place], np.float32(0.5)
        while t < np.float32(k) and i < n:
            i, s, t = i + 1, s + np.float32(0.5), s
        found[place] = s
    return found


CASES: dict[str, tuple[str, Callable[[Array, int, float], Array], bool]] = {
    "counted": (loop("r:2", "%i = %zero, %s = %a", f"{N}, {S}", LESS, MANY), many, True),
    "nested": (loop("r:2", "%i = %zero, %s = %a", f"{N}, {S}", LESS, INNER), nested, True),
    "swapped": (loop("r:3", "%i = %zero, %s = %a, %t = %k", f"{N}, {S}, {S}", LESS, SWAPPED), swapped, True),
    "late": (loop("r:3", "%i = %zero, %s = %a, %t = %half", f"{N}, {S}, {S}", LATE, LATE_BODY), late, False),
    "not of the element": (
        loop("r:2", "%i = %zero, %s = %k", f"{N}, {S}", LESS, MANY),
        lambda a, n, k: np.broadcast_to(many(np.float32(k), n, k), a.shape),
        True,
    ),
}


def mapped(body: str, extent: int) -> str:
    type = f"tensor<{extent}xf32>"
    return f"""func.func @main(%x: {type}, %n: {N}, %k: {S}) -> {type} {{
  %m = "stablehlo.map"(%x) ({{
  ^bb0(%a: {S}):
    %zero = stablehlo.constant dense<0> : {N}
    %one = stablehlo.constant dense<1> : {N}
    %half = stablehlo.constant dense<5.0e-01> : {S}
    {body}
    stablehlo.return %r#1 : {S}
  }}) {{dimensions = array<i64: 0>}} : ({type}) -> {type}
  return %m : {type}
}}"""


def runs_apart(text: str) -> bool:
    """Whether a program's elements are taken one after the other."""
    module = hlojit.parse(text)
    assert OpExpander().run(module)
    hlojit.verify(module)
    return any(each.op.mnemonic == "dynamic_update_slice" for each in module.walk())


@pytest.mark.parametrize("case", CASES)
def test_loops_in_maps(case: str) -> None:
    body, expected, lifts = CASES[case]
    text = mapped(body, 37)
    assert runs_apart(text) is not lifts
    x = np.random.default_rng(0).standard_normal(37).astype("f4")
    for backend in ("cpu", "reference"):
        executable = hlojit.compile(text, backend=backend)
        for n, k in ((0, 2.0), (1, 0.25), (5, 0.75)):
            np.testing.assert_allclose(executable(x, np.int32(n), np.float32(k)), expected(x, n, k), rtol=1e-6)


def test_reductions_with_several_results_take_all_of_them_at_once() -> None:
    body = loop("r:2", "%i = %zero, %s = %a", f"{N}, {S}", LESS, MANY.replace("%half", "%b"))
    text = f"""func.func @main(%x: tensor<5x6xf32>, %init: {S}, %n: {N}, %k: {S}) -> tensor<6xf32> {{
  %zero = stablehlo.constant dense<0> : {N}
  %one = stablehlo.constant dense<1> : {N}
  %m = "stablehlo.reduce"(%x, %init) ({{
  ^bb0(%a: {S}, %b: {S}):
    {body}
    stablehlo.return %r#1 : {S}
  }}) {{dimensions = array<i64: 0>}} : (tensor<5x6xf32>, {S}) -> tensor<6xf32>
  return %m : tensor<6xf32>
}}"""
    assert not runs_apart(text)
    x, k = np.random.default_rng(0).standard_normal((5, 6)).astype("f4"), np.float32(0.5)
    sums = np.full(6, 2, "f4")
    for row in x:
        for _ in range(3):
            sums = (sums + row) * k
    np.testing.assert_allclose(hlojit.compile(text)(x, np.float32(2), np.int32(3), k), sums, rtol=1e-6)


def test_no_elements_run_no_loop() -> None:
    endless = "%p = stablehlo.constant dense<true> : tensor<i1>\n stablehlo.return %p : tensor<i1>"
    text = mapped(loop("r:2", "%i = %zero, %s = %a", f"{N}, {S}", endless, MANY), 0)
    assert hlojit.compile(text)(np.zeros(0, "f4"), np.int32(1), np.float32(1)).shape == (0,)


@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 2])
def test_loops_in_loops(depth: int) -> None:
    """Every one runs twice; the innermost adds 1."""
    body = f"%f = stablehlo.add %s{depth}, %half : {S}"
    inner = f"%f : {S}"
    for level in range(depth, 0, -1):
        states = f"%i{level} = %zero, %s{level} = %s{level - 1}" if level > 1 else "%i1 = %zero, %s1 = %a"
        condition = f"""%p = stablehlo.compare LT, %i{level}, %n : ({N}, {N}) -> tensor<i1>
        stablehlo.return %p : tensor<i1>"""
        turn = f"%j = stablehlo.add %i{level}, %one : {N}\n stablehlo.return %j, {inner.split(' :', maxsplit=1)[0]} : {N}, {S}"
        name = "r" if level == 1 else f"w{level}"
        body, inner = loop(f"{name}:2", states, f"{N}, {S}", condition, f"{body}\n{turn}"), f"%{name}#1 : {S}"
    text = mapped(body, 3)
    assert runs_apart(text) is (depth > DEEPEST)
    x = np.arange(3, dtype="f4")
    np.testing.assert_array_equal(hlojit.compile(text)(x, np.int32(2), np.float32(0)), x + 0.5 * 2**depth)
