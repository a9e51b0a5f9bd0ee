"""Asynchronous pairs: every op that may be a body, and random programs, in the interpreter of records too."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.lowering.program import Begin
from hlojit.lowering.program_interpreter import run_together

from ..lowering.records import native_launch
from .pairs import LARGE, WIDE, all_reduce, done, main, pair, random_rows, scheduled, together

GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
BODIES = {
    "all_reduce": (all_reduce(LARGE), LARGE, lambda xs, n: xs[0] + xs[1]),
    "all_gather": (
        f'"stablehlo.all_gather"(%a) {{all_gather_dim = 0 : i64, {GROUPS}}} : ({LARGE}) -> {WIDE}',
        WIDE,
        lambda xs, n: np.concatenate(xs),
    ),
    "all_to_all": (
        '"stablehlo.all_to_all"(%a) {split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 2 : i64, '
        f"{GROUPS}}} : ({LARGE}) -> tensor<48x200xf32>",
        "tensor<48x200xf32>",
        lambda xs, n: np.concatenate([np.split(x, 2)[n] for x in xs], 1),
    ),
    "collective_permute": (
        '"stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}'
        f" : ({LARGE}) -> {LARGE}",
        LARGE,
        lambda xs, n: xs[0] * n,
    ),
    "reduce_scatter": (
        all_reduce(LARGE)
        .replace("all_reduce", "reduce_scatter")
        .replace("{replica_groups", "{scatter_dimension = 0 : i64, replica_groups")
        .replace(f"-> {LARGE}", "-> tensor<48x100xf32>"),
        "tensor<48x100xf32>",
        lambda xs, n: np.split(xs[0] + xs[1], 2)[n],
    ),
    "collective_broadcast": (
        f'"stablehlo.collective_broadcast"(%a) {{replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}} : ({LARGE}) -> {LARGE}',
        LARGE,
        lambda xs, n: xs[1],
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_collectives(every: str, name: str) -> None:
    body, result, model = BODIES[name]
    text = main(
        pair("f", "%x", body, LARGE, result)
        + "\n  %e = stablehlo.negate %x : tensor<96x100xf32>"
        + done("y", "f", result),
        LARGE,
        "%y, %e",
        f"{result}, {LARGE}",
    )
    xs = random_rows(5)
    found = hlojit.compile(text, backend=every, num_replicas=2)([[x] for x in xs])
    for number, (one, other) in enumerate(found):
        np.testing.assert_allclose(one, model(xs, number), rtol=1e-6)
        np.testing.assert_array_equal(other, -xs[number])


BIG = "tensor<512x300xf32>"
PART = "tensor<400x300xf32>"


@pytest.mark.parametrize("processes", [1, 2])
def test_bodies_that_are_slices(every: str, processes: int) -> None:
    text = f"""
func.func @main(%x: {BIG}, %n: tensor<i32>, %u: {PART}) -> ({PART}, {PART}, {BIG}, {BIG}) {{
  %z = stablehlo.constant dense<0> : tensor<i32>
  %f = "stablehlo.async_start"(%x) ({{
    ^bb0(%a: {BIG}):
      %r = stablehlo.slice %a [3:403, 0:300] : ({BIG}) -> {PART}
      stablehlo.return %r : {PART}
  }}) : ({BIG}) -> !stablehlo.future<{PART}>
  %g = "stablehlo.async_start"(%x, %n, %z) ({{
    ^bb0(%a: {BIG}, %i: tensor<i32>, %j: tensor<i32>):
      %r = stablehlo.dynamic_slice %a, %i, %j, sizes = [400, 300] : ({BIG}, tensor<i32>, tensor<i32>) -> {PART}
      stablehlo.return %r : {PART}
  }}) : ({BIG}, tensor<i32>, tensor<i32>) -> !stablehlo.future<{PART}>
  %h = "stablehlo.async_start"(%x, %u, %n, %z) ({{
    ^bb0(%a: {BIG}, %b: {PART}, %i: tensor<i32>, %j: tensor<i32>):
      %r = stablehlo.dynamic_update_slice %a, %b, %i, %j : ({BIG}, {PART}, tensor<i32>, tensor<i32>) -> {BIG}
      stablehlo.return %r : {BIG}
  }}) : ({BIG}, {PART}, tensor<i32>, tensor<i32>) -> !stablehlo.future<{BIG}>
  %e = stablehlo.negate %x : {BIG}
  %0 = "stablehlo.async_done"(%f) : (!stablehlo.future<{PART}>) -> {PART}
  %1 = "stablehlo.async_done"(%g) : (!stablehlo.future<{PART}>) -> {PART}
  %2 = "stablehlo.async_done"(%h) : (!stablehlo.future<{BIG}>) -> {BIG}
  return %0, %1, %2, %e : {PART}, {PART}, {BIG}, {BIG}
}}"""
    random = np.random.default_rng(6)
    rows = [
        [
            random.standard_normal((512, 300)).astype("f4"),
            np.int32(7 * n),
            random.standard_normal((400, 300)).astype("f4"),
        ]
        for n in range(1, processes + 1)
    ]
    executable = hlojit.compile(text, backend=every, num_replicas=processes)
    found = executable(rows) if processes > 1 else [executable(*rows[0])]
    for (x, n, u), (one, two, three, four) in zip(rows, found):
        updated = x.copy()
        updated[n : n + 400] = u
        for result, expected in ((one, x[3:403]), (two, x[n : n + 400]), (three, updated), (four, -x)):
            np.testing.assert_array_equal(result, expected)
    begun = [step for step in scheduled(text, processes).walk() if isinstance(step, Begin)]
    assert len(begun) == (3 if processes > 1 else 0)


def test_complex_numbers(every: str) -> None:
    type = LARGE.replace("f32", "complex<f32>")
    body = BODIES["all_gather"][0].replace("xf32", "xcomplex<f32>")
    wide = WIDE.replace("f32", "complex<f32>")
    text = main(
        pair("f", "%x", body, type, wide) + f"\n  %e = stablehlo.multiply %x, %x : {type}" + done("y", "f", wide),
        type,
        "%y, %e",
        f"{wide}, {type}",
    )
    xs = [a + 1j * b for a, b in (random_rows(7), random_rows(8))]
    for (one, other), x in zip(hlojit.compile(text, backend=every, num_replicas=2)([[x] for x in xs]), xs):
        np.testing.assert_array_equal(one, np.concatenate(xs))
        np.testing.assert_allclose(other, x * x, rtol=1e-5, atol=1e-5)


def random_program(random: np.random.Generator) -> tuple[str, Any]:
    """A program of sums, products, updates, the program's own collectives and pairs; and what it computes, of all processes."""
    type = "tensor<24x10xi32>"
    lines, models, pending = [""], [lambda xs: xs], list[Any]()
    names = ["%x"]

    def add(text: str, model: Any) -> None:
        names.append(f"%v{len(names)}")
        lines.append(text.replace("RESULT", names[-1][1:]))
        models.append(model)

    for number in range(14):
        one, other = (int(each) for each in random.integers(0, len(names), 2))
        kind = random.choice(["add", "multiply", "update", "reverse", "sum", "start", "start", "done"])
        if kind in ("add", "multiply"):
            ufunc = getattr(np, kind)
            add(
                f"\n  %RESULT = stablehlo.{kind} {names[one]}, {names[other]} : {type}",
                lambda xs, a=models[one], b=models[other], u=ufunc: [u(p, q) for p, q in zip(a(xs), b(xs))],
            )
        elif kind == "reverse":
            add(
                f"\n  %RESULT = stablehlo.reverse {names[one]}, dims = [0] : {type}",
                lambda xs, a=models[one]: [p[::-1] for p in a(xs)],
            )
        elif kind == "update":
            add(
                f"\n  %c{number} = stablehlo.constant dense<0> : tensor<i32>"
                f"\n  %s{number} = stablehlo.slice {names[other]} [4:8, 0:10] : ({type}) -> tensor<4x10xi32>"
                f"\n  %RESULT = stablehlo.dynamic_update_slice {names[one]}, %s{number}, %c{number}, %c{number} :"
                f" ({type}, tensor<4x10xi32>, tensor<i32>, tensor<i32>) -> {type}",
                lambda xs, a=models[one], b=models[other]: [
                    np.concatenate([q[4:8], p[4:]]) for p, q in zip(a(xs), b(xs))
                ],
            )
        elif kind == "sum":
            add(
                f"\n  %RESULT = {all_reduce(type).replace('%a)', names[one] + ')').replace('<f32>', '<i32>')}",
                lambda xs, a=models[one]: [sum(a(xs))] * 2,
            )
        elif kind == "start":
            body = all_reduce(type).replace("<f32>", "<i32>")
            lines.append(pair(f"f{number}", names[one], body, type, type))
            pending.append((number, one))
        elif pending:
            begun, one = pending.pop(int(random.integers(0, len(pending))))
            add(done("RESULT", f"f{begun}", type), lambda xs, a=models[one]: [sum(a(xs))] * 2)
    for number, one in pending:
        add(done("RESULT", f"f{number}", type), lambda xs, a=models[one]: [sum(a(xs))] * 2)
    chosen = [len(names) - 1, *(int(each) for each in random.integers(0, len(names), 2))]
    results = ", ".join(names[each] for each in chosen)
    text = main("".join(lines), type, results, ", ".join([type] * 3))
    return text, lambda xs: list(zip(*(models[each](xs) for each in chosen)))


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(virtual: str, seed: int) -> None:
    """In the interpreter of records nothing of a body is there before it is waited for, and its operands must last."""
    random = np.random.default_rng(seed)
    text, model = random_program(random)
    xs = [random.integers(-9, 9, (24, 10)).astype("i4") for _ in range(2)]
    with np.errstate(over="ignore"):
        expected = model(xs)
    program = scheduled(text)
    interpreted = run_together(program, [[x] for x in xs], native_launch(program))
    for found in (interpreted, together([[x] for x in xs], text)):
        for row, other in zip(found, expected, strict=True):
            for one, two in zip(row, other, strict=True):
                np.testing.assert_array_equal(one, two)
