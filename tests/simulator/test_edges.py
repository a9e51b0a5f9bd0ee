"""Programs at the edges on the simulator: many operands and results, aliases, donations, ranks, bits, nested loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate

Array = np.ndarray[Any, Any]
LINE = "tensor<7xi32>"


def check(text: str, *arguments: Array, donate: Sequence[int] = ()) -> None:
    """Every bit is the interpreter's, twice."""
    expected = evaluate(hlojit.parse(text), *arguments)
    executable = hlojit.compile(text, backend="cuda", donate=donate)
    for _ in range(2):
        found = executable(*[each.copy() for each in arguments])
        for ours, theirs in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            assert ours.tobytes() == theirs.tobytes()


def integers(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(np.int32)


def concatenation(count: int) -> str:
    names, long = [f"%a{number}" for number in range(count)], f"tensor<{7 * count}xi32>"
    return (
        f"func.func @main({', '.join(f'{name}: {LINE}' for name in names)}) -> {long} {{\n"
        f"%r = stablehlo.concatenate {', '.join(names)}, dim = 0 : ({', '.join([LINE] * count)}) -> {long}\n"
        f"return %r : {long}\n}}"
    )


@pytest.mark.parametrize("count", [20, 120, pytest.param(499, marks=pytest.mark.slow)])
def test_many_operands_of_one_kernel(count: int) -> None:
    check(concatenation(count), *[integers(7, seed=number) for number in range(count)])


def test_a_concatenation_of_more_than_a_kernel_takes_is_several() -> None:
    """NVIDIA's assembler refuses entry functions with more than 4352 bytes of parameters."""
    arrays = [integers(7, seed=number) for number in range(600)]
    executable = hlojit.compile(concatenation(600), backend="cuda")
    np.testing.assert_array_equal(executable(*arrays), np.concatenate(arrays))
    assert sorted(len(launch.buffers) for launch in executable.spec.program.launches()) == [4, 201, 201, 201]


def test_many_columns_of_several_widths_are_concatenated() -> None:
    arrays = [integers(3, number % 24 and 1 + number % 2, seed=number) for number in range(530)]
    types = [f"tensor<3x{each.shape[1]}xi32>" for each in arrays]
    long = f"tensor<3x{sum(each.shape[1] for each in arrays)}xi32>"
    names = [f"%a{number}" for number in range(530)]
    text = (
        f"func.func @main({', '.join(map('{}: {}'.format, names, types))}) -> {long} {{\n"
        f"%r = stablehlo.concatenate {', '.join(names)}, dim = 1 : ({', '.join(types)}) -> {long}\n"
        f"return %r : {long}\n}}"
    )
    np.testing.assert_array_equal(hlojit.compile(text, backend="cuda")(*arrays), np.concatenate(arrays, 1))


def test_more_operands_than_a_kernel_takes_are_refused() -> None:
    names = [f"%a{number}" for number in range(300)]
    region = ", ".join(f"%x{number}: tensor<i32>" for number in range(600))
    types = ", ".join([LINE] * 300)
    text = (
        f"func.func @main({', '.join(f'{name}: {LINE}' for name in names)}) -> {LINE} {{\n"
        f'%r:300 = "stablehlo.sort"({", ".join(names)}) ({{\n^bb0({region}):\n'
        "%c = stablehlo.compare LT, %x0, %x1 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        f"stablehlo.return %c : tensor<i1>\n}}) {{dimension = 0 : i64}} : ({types}) -> ({types})\n"
        f"return %r#7 : {LINE}\n}}"
    )
    with pytest.raises(hlojit.UnsupportedError, match=r"stablehlo.sort .* 'cuda': it has 600 operands and results"):
        hlojit.compile(text, backend="cuda")


def test_many_operands_of_many_kernels() -> None:
    names = [f"%a{number}" for number in range(700)]
    sums = [f"%s{number} = stablehlo.add %s{number - 1}, {names[number]} : {LINE}" for number in range(1, 700)]
    check(
        f"func.func @main({', '.join(f'{name}: {LINE}' for name in names)}) -> {LINE} {{\n"
        + "\n".join(sums).replace("%s0,", "%a0,")
        + f"\nreturn %s699 : {LINE}\n}}",
        *[integers(7, seed=number) for number in range(700)],
    )


@pytest.mark.parametrize("count", [20, 200])
def test_many_results(count: int) -> None:
    lines = []
    for number in range(count):
        lines.append(f"%c{number} = stablehlo.constant dense<{number}> : {LINE}")
        lines.append(f"%r{number} = stablehlo.multiply %x, %c{number} : {LINE}")
    types, names = ", ".join([LINE] * count), ", ".join(f"%r{number}" for number in range(count))
    body = "\n".join(lines)
    check(f"func.func @main(%x: {LINE}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}", integers(7))


def test_many_reductions_of_one_array() -> None:
    lines = []
    for number in range(40):
        lines.append(f"%c{number} = stablehlo.constant dense<{number}> : tensor<i32>")
        lines.append(
            f"%r{number} = stablehlo.reduce(%x init: %c{number}) applies stablehlo.add across dimensions = [0] : "
            f"({LINE}, tensor<i32>) -> tensor<i32>"
        )
    types, names = ", ".join(["tensor<i32>"] * 40), ", ".join(f"%r{number}" for number in range(40))
    body = "\n".join(lines)
    check(f"func.func @main(%x: {LINE}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}", integers(7))


def test_a_large_constant_is_operand_and_result() -> None:
    values = np.random.default_rng(2).integers(-(2**31), 2**31 - 1, 100_000).astype(np.int32)
    kind = "tensor<100000xi32>"
    check(
        f'func.func @main(%x: {kind}) -> ({kind}, {kind}) {{\n%c = stablehlo.constant dense<"0x{values.tobytes().hex()}"> '
        f": {kind}\n%r = stablehlo.add %x, %c : {kind}\nreturn %r, %c : {kind}, {kind}\n}}",
        values,
    )


ALIASES = """
func.func @main(%x: tensor<3x5xi32>, %y: tensor<3x5xi32>) -> (tensor<3x5xi32>, tensor<3x5xi32>, tensor<3x5xi32>, tensor<15xi32>) {
  %r = stablehlo.add %x, %y : tensor<3x5xi32>
  %s = stablehlo.reshape %x : (tensor<3x5xi32>) -> tensor<15xi32>
  return %y, %r, %r, %s : tensor<3x5xi32>, tensor<3x5xi32>, tensor<3x5xi32>, tensor<15xi32>
}"""


@pytest.mark.parametrize("donate", [(), (0,), (1,), (0, 1)], ids=str)
def test_results_may_be_arguments_and_each_other_and_arguments_the_same_array(donate: tuple[int, ...]) -> None:
    x = integers(3, 5)
    check(ALIASES, x, x + 1, donate=donate)
    executable = hlojit.compile(ALIASES, backend="cuda")
    on_device = hlojit.put(x, "cuda")
    for one in (x, on_device):
        found = executable(one, one)
        for ours, theirs in zip(found, evaluate(hlojit.parse(ALIASES), x, x), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(on_device, x)


def test_donated_arguments_change_places() -> None:
    text = "func.func @main(%x: {0}, %y: {0}) -> ({0}, {0}) {{\nreturn %y, %x : {0}, {0}\n}}"
    check(text.format(LINE), integers(7), integers(7, seed=2), donate=(0, 1))


@pytest.mark.parametrize("rank", range(9))
def test_ranks(rank: int) -> None:
    shape, dims = (2, 3, 1, 2, 1, 3, 2, 2)[:rank], list(range(rank))[::-1]
    spelled = lambda extents: f"tensor<{''.join(f'{extent}x' for extent in extents)}i32>"  # noqa: E731
    kind, turned = spelled(shape), spelled(shape[::-1])
    largest = (
        f"stablehlo.reduce(%x init: %i) applies stablehlo.maximum across dimensions = {dims} : "
        f"({kind}, tensor<i32>) -> tensor<i32>"
    )
    check(
        f"func.func @main(%x: {kind}, %i: tensor<i32>) -> ({kind}, {turned}, tensor<i32>) {{\n"
        f"%a = stablehlo.add %x, %x : {kind}\n%t = stablehlo.transpose %x, dims = {dims} : ({kind}) -> {turned}\n"
        f"%r = {largest if rank else 'stablehlo.maximum %x, %i : tensor<i32>'}\n"
        f"return %a, %t, %r : {kind}, {turned}, tensor<i32>\n}}",
        integers(*shape), np.int32(-100) * np.ones((), np.int32),
    )  # fmt: skip


FLOATS = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "f8E5M2": ml_dtypes.float8_e5m2, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f4E2M1FN": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


@pytest.mark.parametrize("element", FLOATS)
def test_what_is_moved_keeps_its_bits(element: str) -> None:
    """NaN payloads, quiet or not, denormals and zeros with their signs."""
    dtype = np.dtype(FLOATS[element])
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = np.random.default_rng(3).integers(0, np.iinfo(unsigned).max, (16, 24), unsigned, endpoint=True)
    if element == "f4E2M1FN":
        bits &= 15
    else:
        nan = np.array(np.nan, dtype).view(unsigned)
        bits[::2] |= np.array(np.inf if element != "f8E4M3FN" else np.nan, dtype).view(unsigned)
        bits[0, :2], bits[0, 2], bits[0, 3] = (0, 1), nan, np.array(-0.0, dtype).view(unsigned)
    kind, turned = f"tensor<16x24x{element}>", f"tensor<24x16x{element}>"
    found = hlojit.compile(
        f"func.func @main(%x: {kind}) -> ({turned}, {kind}, tensor<4x7x{element}>) {{\n"
        f"%t = stablehlo.transpose %x, dims = [1, 0] : ({kind}) -> {turned}\n"
        f"%r = stablehlo.reverse %x, dims = [0, 1] : {kind}\n"
        f"%c = stablehlo.slice %x [0:16:4, 3:24:3] : ({kind}) -> tensor<4x7x{element}>\n"
        f"return %t, %r, %c : {turned}, {kind}, tensor<4x7x{element}>\n}}",
        backend="cuda",
    )(bits.view(dtype))
    expected = bits.T, bits[::-1, ::-1], bits[::4, 3::3]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours).view(unsigned), theirs)


def test_loops_in_loops() -> None:
    text, state = "%r = stablehlo.add %a1, %one : tensor<i32>", "%r"
    for depth in range(1, 7):
        outer = f"%a{depth + 1}" if depth < 6 else "%x"
        text = (
            f"%w{depth}:2 = stablehlo.while(%i{depth} = %zero, %a{depth} = {outer}) : tensor<i32>, tensor<i32>\n cond {{\n"
            f"%q{depth} = stablehlo.compare LT, %i{depth}, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            f"stablehlo.return %q{depth} : tensor<i1>\n}} do {{\n%j{depth} = stablehlo.add %i{depth}, %one : tensor<i32>\n"
            f"{text}\nstablehlo.return %j{depth}, {state} : tensor<i32>, tensor<i32>\n}}"
        )
        state = f"%w{depth}#1"
    constants = "\n".join(
        f"%{name} = stablehlo.constant dense<{value}> : tensor<i32>"
        for name, value in (("zero", 0), ("one", 1), ("two", 2))
    )
    check(
        f"func.func @main(%x: tensor<i32>) -> tensor<i32> {{\n{constants}\n{text}\nreturn {state} : tensor<i32>\n}}",
        np.array(5, np.int32),
    )


def test_nothing_goes_in_and_nothing_comes_out() -> None:
    assert hlojit.compile("func.func @main() -> () {\n  return\n}", backend="cuda")() == ()
