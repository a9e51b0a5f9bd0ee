"""Programs with loops and branches, for back ends that decide about them in several ways.

They take ``%x`` (f32, of the size that stands before the text), ``%n`` and ``%m`` (i32).
"""

from __future__ import annotations

from typing import Any

import numpy as np

LARGE = 1000
"""Elements of f32 that are exchanged rather than copied after an iteration."""


def loop(size: int, step: str, count: str = "%n") -> str:
    """``count`` times ``%v`` becomes ``step``'s ``%w``."""
    kind = f"tensor<{size}xf32>"
    return f"""
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, {kind}
     cond {{
      %p = stablehlo.compare LT, %i, {count} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }} do {{
      %j = stablehlo.add %i, %one : tensor<i32>
      {step}
      stablehlo.return %j, %w : tensor<i32>, {kind}
    }}"""


def program(size: int, body: str, result: str = "%r#1", name: str = "main") -> str:
    kind = f"tensor<{size}xf32>"
    return f"""func.func @{name}(%x: {kind}, %n: tensor<i32>, %m: tensor<i32>) -> {kind} {{
    {body}
    return {result} : {kind}
    }}"""


def moved(size: int) -> str:
    """A step that reads what it may not write over yet: its loop exchanges two buffers."""
    kind = f"tensor<{size}xf32>"
    return f"""%u = stablehlo.reverse %v, dims = [0] : {kind}
      %t = stablehlo.tanh %u : {kind}
      %w = stablehlo.add %t, %v : {kind}"""


def inner(size: int) -> str:
    """A loop as a step of a loop."""
    text = loop(size, moved(size), "%m")
    for name in ("zero", "one", "r", "i", "v", "p", "j", "u", "t", "w"):
        text = (
            text.replace(f"%{name} ", f"%{name}_ ")
            .replace(f"%{name},", f"%{name}_,")
            .replace(f"%{name}:", f"%{name}_:")
        )
    return text.replace("= %x)", "= %v)") + f"\n%w = stablehlo.negate %r_#1 : tensor<{size}xf32>"


def case(size: int) -> str:
    """A branch as a step of a loop, by the number of the iteration; numbers from 2 on are the last case."""
    kind = f"tensor<{size}xf32>"
    return f"""%w = "stablehlo.case"(%i) ({{
        %a = stablehlo.add %v, %v : {kind}
        stablehlo.return %a : {kind}
      }}, {{
        {moved(size).replace("%w", "%b")}
        stablehlo.return %b : {kind}
      }}, {{
        %c = stablehlo.negate %v : {kind}
        stablehlo.return %c : {kind}
      }}) : (tensor<i32>) -> {kind}"""


def loop_in_case(size: int) -> str:
    kind = f"tensor<{size}xf32>"
    return f"""%o = "stablehlo.case"(%m) ({{
        {loop(size, moved(size))}
        stablehlo.return %r#1 : {kind}
      }}, {{
        %c = stablehlo.negate %x : {kind}
        stablehlo.return %c : {kind}
      }}) : (tensor<i32>) -> {kind}"""


FLAG = """func.func @main(%x: tensor<4xf32>, %n: tensor<i32>, %m: tensor<i32>) -> tensor<4xf32> {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %first = stablehlo.compare LT, %zero, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %r:3 = stablehlo.while(%go = %first, %i = %n, %v = %x) : tensor<i1>, tensor<i32>, tensor<4xf32>
   cond {
    stablehlo.return %go : tensor<i1>
  } do {
    %j = stablehlo.subtract %i, %one : tensor<i32>
    %w = stablehlo.multiply %v, %v : tensor<4xf32>
    %next = stablehlo.compare LT, %zero, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %next, %j, %w : tensor<i1>, tensor<i32>, tensor<4xf32>
  }
  return %r#2 : tensor<4xf32>
}"""

PROGRAMS: dict[str, tuple[int, str]] = {
    "loop": (6, program(6, loop(6, moved(6)))),
    "exchanging loop": (LARGE, program(LARGE, loop(LARGE, moved(LARGE)))),
    "loop in a loop": (6, program(6, loop(6, inner(6)))),
    "exchanging loop in an exchanging loop": (LARGE, program(LARGE, loop(LARGE, inner(LARGE)))),
    "case in a loop": (6, program(6, loop(6, case(6)))),
    "case in an exchanging loop": (LARGE, program(LARGE, loop(LARGE, case(LARGE)))),
    "loop in a case": (6, program(6, loop_in_case(6), "%o")),
    "exchanging loop in a case": (LARGE, program(LARGE, loop_in_case(LARGE), "%o")),
    "a state as condition": (4, FLAG),
}


def array(size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(size).standard_normal(size).astype("f4")
