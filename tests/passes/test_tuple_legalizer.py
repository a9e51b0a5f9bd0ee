"""Tuples through loops, branches, barriers and calls compute on every back end what the interpreter says."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.token_removal import TokenRemoval
from hlojit.ir.passes.tuple_legalizer import TupleLegalizer

F, N = "tensor<4xf32>", "tensor<i32>"
PAIR = f"tuple<{F}, {N}>"
NESTED = f"tuple<{N}, {PAIR}>"


def element(name: str, value: str, number: int, whole: str, part: str) -> str:
    return f"{name} = stablehlo.get_tuple_element {value}[{number}] : ({whole}) -> {part}"


BARRIER = f"""
  %t = stablehlo.tuple %x, %n : {PAIR}
  %u = stablehlo.optimization_barrier %t : {PAIR}
  {element("%a", "%u", 0, PAIR, F)}
  {element("%b", "%u", 1, PAIR, N)}
"""
LOOP = f"""
  %t = stablehlo.tuple %x, %n : {PAIR}
  %t0 = stablehlo.tuple %n, %t : {NESTED}
  %w = "stablehlo.while"(%t0) ({{
  ^bb0(%s: {NESTED}):
    {element("%i", "%s", 0, NESTED, N)}
    %c = stablehlo.constant dense<3> : {N}
    %p = stablehlo.compare LT, %i, %c : ({N}, {N}) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}, {{
  ^bb0(%s: {NESTED}):
    {element("%i", "%s", 0, NESTED, N)}
    {element("%v", "%s", 1, NESTED, PAIR)}
    {element("%d", "%v", 0, PAIR, F)}
    {element("%e", "%v", 1, PAIR, N)}
    %one = stablehlo.constant dense<1> : {N}
    %j = stablehlo.add %i, %one : {N}
    %f = stablehlo.add %d, %d : {F}
    %g = stablehlo.tuple %f, %j : {PAIR}
    %h = stablehlo.tuple %j, %g : {NESTED}
    stablehlo.return %h : {NESTED}
  }}) : ({NESTED}) -> {NESTED}
  {element("%q", "%w", 1, NESTED, PAIR)}
  {element("%a", "%q", 0, PAIR, F)}
  {element("%b", "%q", 1, PAIR, N)}
"""
BRANCH = f"""
  %zero = stablehlo.constant dense<0> : {N}
  %t = stablehlo.tuple %x, %n : {PAIR}
  %p = stablehlo.compare GT, %n, %zero : ({N}, {N}) -> tensor<i1>
  %w = "stablehlo.if"(%p) ({{
    stablehlo.return %t : {PAIR}
  }}, {{
    %y = stablehlo.negate %x : {F}
    %m = stablehlo.negate %n : {N}
    %u = stablehlo.tuple %y, %m : {PAIR}
    stablehlo.return %u : {PAIR}
  }}) : (tensor<i1>) -> {PAIR}
  {element("%a", "%w", 0, PAIR, F)}
  {element("%b", "%w", 1, PAIR, N)}
"""
CALL = f"""
  %t = stablehlo.tuple %x, %n : {PAIR}
  %u = func.call @through(%t) : ({PAIR}) -> {PAIR}
  %v = stablehlo.optimization_barrier %u : {PAIR}
  {element("%a", "%v", 0, PAIR, F)}
  {element("%b", "%v", 1, PAIR, N)}
"""
TOKENS = f"""
  %k = stablehlo.create_token : !stablehlo.token
  %t = stablehlo.tuple %x, %k, %n : tuple<{F}, !stablehlo.token, {N}>
  %u = stablehlo.optimization_barrier %t : tuple<{F}, !stablehlo.token, {N}>
  {element("%a", "%u", 0, f"tuple<{F}, !stablehlo.token, {N}>", F)}
  {element("%b", "%u", 2, f"tuple<{F}, !stablehlo.token, {N}>", N)}
"""
EMPTY = f"""
  %t = stablehlo.tuple : tuple<>
  %u:2 = stablehlo.optimization_barrier %t, %x : tuple<>, {F}
  %a = stablehlo.add %u#1, %u#1 : {F}
  %b = stablehlo.add %n, %n : {N}
"""
PROGRAMS = {
    name: f"""
func.func private @through(%s: {PAIR}) -> {PAIR} {{
  %r = stablehlo.optimization_barrier %s : {PAIR}
  return %r : {PAIR}
}}
func.func @main(%x: {F}, %n: {N}) -> ({F}, {N}) {{{body}  return %a, %b : {F}, {N}
}}"""
    for name, body in {
        "barrier": BARRIER,
        "loop": LOOP,
        "branch": BRANCH,
        "call": CALL,
        "tokens": TOKENS,
        "empty": EMPTY,
    }.items()
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["cpu", "cuda", "reference"])
def test_tuples(backend: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    x = np.arange(4, dtype="f4")
    for n in (1, -1, 7):
        expected = evaluate(hlojit.parse(PROGRAMS[name]), x, np.int32(n))
        for found, wanted in zip(
            hlojit.compile(PROGRAMS[name], backend=backend)(x, np.int32(n)), expected, strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_carries_a_tuple(name: str) -> None:
    module = hlojit.parse(PROGRAMS[name])
    assert TupleLegalizer().run(module) and not TupleLegalizer().run(module)
    hlojit.verify(module)
    x = np.arange(4, dtype="f4")
    for found, wanted in zip(evaluate(module, x, np.int32(2)), evaluate(hlojit.parse(PROGRAMS[name]), x, np.int32(2))):
        np.testing.assert_array_equal(found, wanted)
    if name == "tokens":
        assert TokenRemoval().run(module), "tokens are no longer in tuples"
