"""Loops and branches of programs that are compiled once for all sizes."""

from __future__ import annotations

import threading
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_dynamic_shapes import f32
from .test_symbolic_shapes import SYMBOLIC, agree

M, V, N = "tensor<?x3xf32>", "tensor<?xf32>", "tensor<i32>"


def loop(states: str, types: str, body: str, arguments: str = f"%x: {M}, %y: {V}, %n: {N}", before: str = "") -> str:
    """A loop of n rounds; ``body`` ends in the new states."""
    names = [part.split("=")[0].strip() for part in states.split(",")]
    results = ", ".join(f"%r#{number + 1}" for number in range(len(names)))
    return f"""
func.func @main({arguments}) -> ({types}) {{
  %zero = stablehlo.constant dense<0> : {N}
  %one = stablehlo.constant dense<1> : {N}
  %f = stablehlo.constant dense<0.0> : tensor<f32>
  {before}
  %r:{len(names) + 1} = stablehlo.while(%i = %zero, {states}) : {N}, {types}
    cond {{ %p = stablehlo.compare LT, %i, %n : ({N}, {N}) -> tensor<i1>
      stablehlo.return %p : tensor<i1> }}
    do {{ %j = stablehlo.add %i, %one : {N}
      {body} : {N}, {types} }}
  return {results} : {types}
}}"""


LOOPS = {
    "elementwise": loop("%a = %x", M, f"%b = stablehlo.add %a, %x : {M}\nstablehlo.return %j, %b"),
    "swapped": loop("%a = %x, %b = %z", f"{M}, {M}", "stablehlo.return %j, %b, %a", f"%x: {M}, %z: {M}, %n: {N}"),
    "each other's": loop(
        "%a = %x, %b = %z",
        f"{M}, {M}",
        f"%c = stablehlo.add %a, %b : {M}\n%d = stablehlo.subtract %a, %b : {M}\nstablehlo.return %j, %c, %d",
        f"%x: {M}, %z: {M}, %n: {N}",
    ),
    "one after the other": loop(
        "%a = %x, %b = %z",
        f"{M}, {M}",
        f"%c = stablehlo.add %a, %b : {M}\n%d = stablehlo.negate %b : {M}\nstablehlo.return %j, %c, %d",
        f"%x: {M}, %z: {M}, %n: {N}",
    ),
    "twice the same": loop(
        "%a = %x, %b = %z",
        f"{M}, {M}",
        f"%c = stablehlo.add %a, %b : {M}\nstablehlo.return %j, %c, %c",
        f"%x: {M}, %z: {M}, %n: {N}",
    ),
    "moved": loop("%a = %x", M, f"%b = stablehlo.reverse %a, dims = [0] : {M}\nstablehlo.return %j, %b"),
    "reduced": loop(
        "%a = %x, %s = %y",
        f"{M}, {V}",
        f"""%t = stablehlo.reduce(%a init: %f) applies stablehlo.add across dimensions = [1] : ({M}, tensor<f32>) -> {V}
        %m = stablehlo.minimum %t, %s : {V}
        %h = stablehlo.tanh %a : {M}
        stablehlo.return %j, %h, %m""",
    ),
    "rows in place": loop(
        "%a = %x",
        M,
        f"""%g = stablehlo.convert %j : ({N}) -> tensor<f32>
        %u = stablehlo.broadcast_in_dim %g, dims = [] : (tensor<f32>) -> tensor<1x3xf32>
        %b = stablehlo.dynamic_update_slice %a, %u, %j, %zero : ({M}, tensor<1x3xf32>, {N}, {N}) -> {M}
        %c = stablehlo.dynamic_update_slice %b, %u, %zero, %zero : ({M}, tensor<1x3xf32>, {N}, {N}) -> {M}
        stablehlo.return %j, %c""",
    ),
    "rows of what is read": loop(
        "%a = %x",
        M,
        f"""%u = stablehlo.dynamic_slice %a, %i, %zero, sizes = [1, 3] : ({M}, {N}, {N}) -> tensor<1x3xf32>
        %v = stablehlo.add %u, %u : tensor<1x3xf32>
        %b = stablehlo.dynamic_update_slice %a, %v, %zero, %zero : ({M}, tensor<1x3xf32>, {N}, {N}) -> {M}
        stablehlo.return %j, %b""",
    ),
    "in loops": loop(
        "%a = %x, %s = %y",
        f"{M}, {V}",
        f"""%q:3 = stablehlo.while(%k = %zero, %c = %a, %d = %s) : {N}, {M}, {V}
        cond {{ %p = stablehlo.compare LT, %k, %i : ({N}, {N}) -> tensor<i1>
          stablehlo.return %p : tensor<i1> }}
        do {{ %l = stablehlo.add %k, %one : {N}
          %e = stablehlo.add %d, %s : {V}
          stablehlo.return %l, %c, %e : {N}, {M}, {V} }}
        %b = stablehlo.add %q#1, %x : {M}
        %m = stablehlo.maximum %q#2, %y : {V}
        stablehlo.return %j, %b, %m""",
    ),
    "with branches": loop(
        "%a = %x, %s = %y",
        f"{M}, {V}",
        f"""%p = stablehlo.compare GT, %i, %one : ({N}, {N}) -> tensor<i1>
        %q:2 = "stablehlo.if"(%p) ({{
          %b = stablehlo.add %a, %x : {M}
          stablehlo.return %b, %s : {M}, {V}
        }}, {{
          %c = stablehlo.negate %s : {V}
          stablehlo.return %a, %c : {M}, {V}
        }}) : (tensor<i1>) -> ({M}, {V})
        stablehlo.return %j, %q#0, %q#1""",
    ),
    "of what is computed outside": loop(
        "%a = %x",
        M,
        f"%b = stablehlo.add %a, %o : {M}\nstablehlo.return %j, %b",
        before=f"%o = stablehlo.exponential %x : {M}",
    ),
    "behind barriers": loop(
        "%a = %x, %s = %y",
        f"{M}, {V}",
        f"""%b:2 = stablehlo.optimization_barrier %a, %s : {M}, {V}
        %c = stablehlo.add %b#0, %x : {M}
        %d = stablehlo.add %b#1, %b#1 : {V}
        stablehlo.return %j, %c, %d""",
    ),
}


def arguments(text: str, rows: int, rounds: int) -> list[Any]:
    found = {"%x": f32(rows, 3) / 8, "%y": f32(rows) / 4 - 1, "%z": f32(rows, 3) + 2, "%n": np.int32(rounds)}
    head = text[: text.index("->")]
    return [array for name, array in found.items() if f"{name}:" in head]


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    text = LOOPS[name]
    module, executable = hlojit.parse(text), hlojit.compile(text, options=SYMBOLIC)
    assert executable.dynamic_shapes == "symbolic", executable.why
    for rows, rounds in ((4, 3), (1, 0), (7, 1), (0, 2), (3000, 2)):
        if not rows and "slice" in text:
            continue
        inputs = arguments(text, rows, rounds)
        results = executable(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        for found, expected in zip(results, evaluate(module, *inputs), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


CASES = f"""
func.func @main(%x: {M}, %n: {N}) -> ({M}, {V}) {{
  %f = stablehlo.constant dense<0.0> : tensor<f32>
  %o = stablehlo.tanh %x : {M}
  %q:2 = "stablehlo.case"(%n) ({{
    %s = stablehlo.reduce(%o init: %f) applies stablehlo.add across dimensions = [1] : ({M}, tensor<f32>) -> {V}
    stablehlo.return %x, %s : {M}, {V}
  }}, {{
    %s = stablehlo.reduce(%x init: %f) applies stablehlo.maximum across dimensions = [1] : ({M}, tensor<f32>) -> {V}
    %t = stablehlo.add %o, %x : {M}
    stablehlo.return %t, %s : {M}, {V}
  }}, {{
    %s = stablehlo.reduce(%x init: %f) applies stablehlo.minimum across dimensions = [1] : ({M}, tensor<f32>) -> {V}
    stablehlo.return %o, %s : {M}, {V}
  }}) : ({N}) -> ({M}, {V})
  return %q#0, %q#1 : {M}, {V}
}}"""


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3])
def test_the_last_branch_is_for_what_has_none(index: int) -> None:
    for rows in (0, 1, 5):
        agree(CASES, f32(rows, 3), np.int32(index), tolerance=1e-5)


def test_what_changes_its_size_is_compiled_for_its_shapes() -> None:
    """A round doubles the rows; only programs of no rows at all do that for ever."""
    text = loop(
        "%a = %x", M, f"%b = stablehlo.concatenate %a, %a, dim = 0 : ({M}, {M}) -> {M}\nstablehlo.return %j, %b"
    )
    executable = hlojit.compile(text, options=SYMBOLIC)
    assert executable.dynamic_shapes == "symbolic", executable.why
    assert executable(f32(0, 3), f32(0), np.int32(2)).shape == (0, 3)
    with pytest.raises(hlojit.HlojitError):
        executable(f32(1, 3), f32(1), np.int32(2))


def test_sizes_that_no_round_changes_are_sizes_within() -> None:
    text = f"""
    func.func @main(%x: {V}, %n: {N}) -> {V} {{
      %zero = stablehlo.constant dense<0> : {N}
      %one = stablehlo.constant dense<1> : {N}
      %size = stablehlo.get_dimension_size %x, dim = 0 : ({V}) -> {N}
      %r:3 = stablehlo.while(%i = %zero, %k = %size, %a = %x) : {N}, {N}, {V}
        cond {{ %p = stablehlo.compare LT, %i, %n : ({N}, {N}) -> tensor<i1>
          stablehlo.return %p : tensor<i1> }}
        do {{ %j = stablehlo.add %i, %one : {N}
          %shape = stablehlo.reshape %k : ({N}) -> tensor<1xi32>
          %m = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<1xi32>) -> {V}
          %b = stablehlo.add %a, %m : {V}
          stablehlo.return %j, %k, %b : {N}, {N}, {V} }}
      return %r#2 : {V}
    }}"""
    for rows in (0, 1, 9):
        agree(text, f32(rows), np.int32(3))


def test_loops_are_interrupted_by_no_thread_of_another() -> None:
    executable = hlojit.compile(LOOPS["in loops"], options=SYMBOLIC)
    wanted = {
        rows: evaluate(hlojit.parse(LOOPS["in loops"]), *arguments(LOOPS["in loops"], rows, 3)) for rows in range(1, 9)
    }
    wrong: list[int] = []

    def run(first: int) -> None:
        for rows in list(range(first, 9)) + list(range(1, first)):
            found = executable(*arguments(LOOPS["in loops"], rows, 3))
            if not all(np.allclose(*pair) for pair in zip(found, wanted[rows], strict=True)):
                wrong.append(rows)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@st.composite
def rounds(draw: Any) -> str:
    """A loop over three matrices and a row of numbers, whose rounds are random."""
    pools = {M: ["%a", "%b", "%c", "%x", "%z"], V: ["%s", "%y"]}
    lines = []

    def emit(text: str, kind: str) -> None:
        name = f"%v{len(lines)}"
        lines.append(f"{name} = {text}")
        pools[kind].append(name)

    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from([M, M, V]))
        left, right = (draw(st.sampled_from(pools[kind])) for _ in range(2))
        match draw(st.integers(0, 6)):
            case 0 | 1:
                emit(
                    f"stablehlo.{draw(st.sampled_from(['add', 'maximum', 'subtract']))} {left}, {right} : {kind}", kind
                )
            case 2:
                emit(f"stablehlo.tanh {left} : {kind}", kind)
            case 3:
                emit(f"stablehlo.reverse {left}, dims = [0] : {kind}", kind)
            case 4:
                matrix = draw(st.sampled_from(pools[M]))
                emit(
                    f"stablehlo.reduce({matrix} init: %f) applies stablehlo.maximum across dimensions = [1] : "
                    f"({M}, tensor<f32>) -> {V}",
                    V,
                )
            case 5:
                matrix, place = draw(st.sampled_from(pools[M])), draw(st.sampled_from(["%i", "%zero", "%j"]))
                emit(
                    f"stablehlo.dynamic_update_slice {matrix}, %row, {place}, %zero : ({M}, tensor<1x3xf32>, {N}, {N}) -> {M}",
                    M,
                )
            case _:
                emit(
                    f'"stablehlo.if"(%even) ({{ stablehlo.return {left} : {kind} }}, {{ %n{len(lines)} = stablehlo.add {left}, '
                    f"{right} : {kind} stablehlo.return %n{len(lines)} : {kind} }}) : (tensor<i1>) -> {kind}",
                    kind,
                )
    states = ", ".join(draw(st.sampled_from(pools[kind])) for kind in (M, M, M, V))
    parts = [
        "%k = stablehlo.and %i, %one : " + N,
        f"%even = stablehlo.compare EQ, %k, %zero : ({N}, {N}) -> tensor<i1>",
    ]
    return loop(
        "%a = %x, %b = %z, %c = %x, %s = %y",
        f"{M}, {M}, {M}, {V}",
        "\n".join([*parts, *lines, f"stablehlo.return %j, {states}"]),
        f"%x: {M}, %y: {V}, %z: {M}, %n: {N}",
        "%row = stablehlo.constant dense<0.25> : tensor<1x3xf32>",
    )


@pytest.mark.slow
@pytest.mark.hypothesis
@settings(max_examples=60, deadline=None)
@given(rounds(), st.lists(st.tuples(st.integers(1, 40), st.integers(0, 4)), min_size=2, max_size=2))
def test_random_rounds(text: str, calls: list[tuple[int, int]]) -> None:
    module = hlojit.parse(text)
    executable = hlojit.compile(module, options=SYMBOLIC)
    assert executable.dynamic_shapes == "symbolic", executable.why
    for rows, count in calls:
        inputs = [f32(rows, 3) / 8, f32(rows) / 4 - 1, f32(rows, 3)[::-1].copy(), np.int32(count)]
        for found, expected in zip(executable(*inputs), evaluate(module, *inputs), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
