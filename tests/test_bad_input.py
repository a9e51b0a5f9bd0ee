"""What goes wrong outside: every mistake is an exception that says where and why, and never a crash or a wrong answer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import hlojit
import numpy as np
import pytest


def isolated(code: str, *, timeout: float = 60) -> str:
    """Run Python code in a process of its own, where a crash is only a failed test; returns what it prints."""
    header = "import numpy as np\nimport hlojit\n"
    done = subprocess.run(
        [sys.executable, "-"],
        input=header + textwrap.dedent(code),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}:\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout


def program(arguments: str, results: str, *lines: str) -> str:
    """A function's text."""
    return f"func.func @main({arguments}) -> ({results}) {{\n" + "\n".join(lines) + "\n}"


ADD = program(
    "%x: tensor<3xf32>, %y: tensor<3xf32>",
    "tensor<3xf32>",
    "%0 = stablehlo.add %x, %y : tensor<3xf32>",
    "return %0 : tensor<3xf32>",
)


# ---------------------------------------------------------------------------------------------------------- programs


OF_F32 = ("%x: tensor<3xf32>", "tensor<3xf32>")


@pytest.mark.parametrize(("text", "place", "message"), [
    ("", "", "the program is an empty text"),
    ("// only a comment", "", "the module has no function @main and 0 public functions; name the entry function main"),
    ("module", ":1:7", "expected '{', found the end of the text"),
    ("func.func @main(", ":1:17", "expected a type, found the end of the text"),
    ("\0", ":1:1", "expected func.func, a module or a definition, found '\\x00'"),
    ("func.func @main() { return", ":1:19", "expected '}' to close the region that begins here"),
    ("\ud800", ":1:1", "expected func.func, a module or a definition"),
    ("}" * 10, ":1:1", "expected func.func, a module or a definition, found '}'"),
    ("(" * 5000, ":1:1", "expected func.func, a module or a definition, found '('"),
    ("{" * 5000, ":1:1", "expected func.func, a module or a definition, found '{'"),
    ("func.func @main() -> tensor<", ":1:29", "expected a dimension or an element type, found the end of the text"),
    (program("%x: tensor<3xf99>", "tensor<3xf32>", "return %x : tensor<3xf32>"), ":1:30", "unknown element type 'f99'"),
    (program("%x: tensor<-3xf32>", "tensor<-3xf32>", "return %x : tensor<-3xf32>"), ":1:28", "expected a dimension or an element type"),
    (program("%x: tensor<3xf32>", "tensor<4xf32>", "return %x : tensor<3xf32>"), ":3:1", "@main returns (tensor<3xf32>), but its signature says (tensor<4xf32>)"),
    (program(*OF_F32, "return %y : tensor<3xf32>"), ":2:8", "use of undefined value %y"),
    (program(*OF_F32, "%0 = stablehlo.adds %x, %x : tensor<3xf32>", "return %0 : tensor<3xf32>"), ":2:6", "unknown op 'stablehlo.adds'; did you mean stablehlo.add"),
    (program(*OF_F32, "%0 = stablehlo.add %x : tensor<3xf32>", "return %0 : tensor<3xf32>"), ":2:6", "stablehlo.add: takes 2 operands (lhs, rhs), found 1"),
    (program(*OF_F32, "%0 = stablehlo.add %x, %x, %x : tensor<3xf32>", "return %0 : tensor<3xf32>"), ":2:6", "stablehlo.add: takes 2 operands (lhs, rhs), found 3"),
    (program(*OF_F32, "%0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<3xf32>", "return %0 : tensor<3xf32>"), ":2:40", "expected 3 elements in dimension 0 of tensor<3xf32>, found 2"),
    (program(*OF_F32, "%0 = stablehlo.not %x : tensor<3xf32>", "return %0 : tensor<3xf32>"), ":2:1", "not (I1): operand must be a tensor of boolean or integer type, found tensor<3xf32>"),
    (program("%x: tensor<3xf32>", "tensor<6xf32>", "%0 = stablehlo.reshape %x : (tensor<3xf32>) -> tensor<6xf32>", "return %0 : tensor<6xf32>"), ":2:1", "reshape (C2): operand has 3 elements, result 6"),
    (program(*OF_F32, "%0 = stablehlo.slice %x [2:5] : (tensor<3xf32>) -> tensor<3xf32>", "return %0 : tensor<3xf32>"), ":2:1", "slice (C3): "),
    (ADD + "\n" + ADD, ":5:1", "function @main is defined twice"),
    (ADD.replace("@main", "@other") + "garbage", ":4:2", "expected func.func, a module or a definition, found 'garbage'"),
])  # fmt: skip
def test_malformed_program_is_an_error_with_a_place(text: str, place: str, message: str) -> None:
    with pytest.raises(hlojit.HlojitError) as caught:
        hlojit.compile(text)
    found = str(caught.value)
    assert message in found
    assert re.search(rf"<string>{place}(?!\d)", found) if place else "<string>" not in found


def test_unknown_op_names_the_nearest() -> None:
    with pytest.raises(hlojit.ParseError, match=r"stablehlo\.adds.*stablehlo\.add"):
        hlojit.parse(ADD.replace("stablehlo.add", "stablehlo.adds"))


def test_unsupported_op_names_op_backend_reason_and_place() -> None:
    text = program(
        "%x: tensor<3xf32>",
        "tensor<3xf32>",
        "%0 = stablehlo.custom_call @nobody.has(%x) : (tensor<3xf32>) -> tensor<3xf32>",
        "return %0 : tensor<3xf32>",
    )
    with pytest.raises(hlojit.UnsupportedError) as caught:
        hlojit.compile(text)
    message = str(caught.value)
    assert "custom_call" in message and "nobody.has" in message and "<string>:2" in message


def test_program_without_main() -> None:
    with pytest.raises(hlojit.HlojitError, match="main"):
        hlojit.compile(ADD.replace("@main", "@f") + "\n" + ADD.replace("@main", "@g"))


def test_recursive_calls_are_refused() -> None:
    text = """
    func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = call @f(%x) : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    func.func private @f(%x: tensor<f32>) -> tensor<f32> {
      %0 = call @f(%x) : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    """
    with pytest.raises(hlojit.HlojitError, match=r"recurs|cycle|itself"):
        hlojit.compile(text)


def test_sizes_that_only_data_tell_are_refused() -> None:
    text = program(
        "%x: tensor<8xf32>, %s: tensor<1xi32>",
        "tensor<?xf32>",
        "%0 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>",
        "return %0 : tensor<?xf32>",
    )
    with pytest.raises(hlojit.HlojitError, match="size -3 must not be negative for stablehlo.dynamic_iota"):
        hlojit.compile(text)(np.zeros(8, "f4"), np.array([-3], "i4"))


# --------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("arguments", [
    (), (np.ones(3, "f4"),), (np.ones(3, "f4"),) * 3, (np.ones(4, "f4"),) * 2, (np.ones((3, 1), "f4"),) * 2, (np.ones(3), np.ones(3)), (np.ones(3, "i4"),) * 2,
    (None, None), ("a", "b"), (np.array(["a"] * 3),) * 2, (object(), object()), (np.ones(3, "c8"),) * 2, (1.0, 2.0), (np.array([None] * 3),) * 2,
])  # fmt: skip
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(hlojit.ArgumentError):
        hlojit.compile(ADD)(*arguments)


def test_keyword_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        hlojit.compile(ADD)(x=np.ones(3, "f4"), y=np.ones(3, "f4"))


def test_arrays_of_every_layout_are_taken() -> None:
    executable = hlojit.compile(ADD)
    base = np.arange(12, dtype="f4")
    expected = base[:9:3] + base[:9:3]
    read_only = base[:9:3].copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"." + base[:9:3].tobytes(), "u1")[1:].view("f4")
    for array in (
        base[:9:3],
        base[6::-3][::-1],
        read_only,
        unaligned,
        base[:9:3].astype(">f4"),
        memoryview(base[:9:3].copy()),
    ):
        np.testing.assert_array_equal(executable(array, array), expected)


# ------------------------------------------------------------------------------------------------- indices and numbers


EXTREMES = [0, 1, 5, 7, 8, 9, -1, -8, 2**31 - 1, -(2**31)]


def test_dynamic_slices_with_any_index_stay_inside() -> None:
    text = program(
        "%x: tensor<8xi32>, %u: tensor<3xi32>, %i: tensor<i32>", "tensor<3xi32>, tensor<8xi32>",
        "%0 = stablehlo.dynamic_slice %x, %i, sizes = [3] : (tensor<8xi32>, tensor<i32>) -> tensor<3xi32>",
        "%1 = stablehlo.dynamic_update_slice %x, %u, %i : (tensor<8xi32>, tensor<3xi32>, tensor<i32>) -> tensor<8xi32>",
        "return %0, %1 : tensor<3xi32>, tensor<8xi32>",
    )  # fmt: skip
    executable = hlojit.compile(text)
    x, u = np.arange(8, dtype="i4"), np.array([-1, -2, -3], "i4")
    for index in EXTREMES:
        part, updated = executable(x, u, np.int32(index))
        start = min(max(index, 0), 5)
        expected = x.copy()
        expected[start : start + 3] = u
        np.testing.assert_array_equal(part, x[start : start + 3])
        np.testing.assert_array_equal(updated, expected)


@pytest.mark.parametrize("kind", ["i8", "ui8", "i32", "ui32", "i64", "ui64"])
def test_gather_and_scatter_with_any_index_stay_inside(kind: str) -> None:
    text = program(
        f"%x: tensor<8xi32>, %i: tensor<4x1x{kind}>, %u: tensor<4xi32>", "tensor<4xi32>, tensor<8xi32>",
        '%0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, '
        f"slice_sizes = array<i64: 1>, indices_are_sorted = false}} : (tensor<8xi32>, tensor<4x1x{kind}>) -> tensor<4xi32>",
        '%1 = "stablehlo.scatter"(%x, %i, %u) ({', "^bb0(%a: tensor<i32>, %b: tensor<i32>):", "%c = stablehlo.add %a, %b : tensor<i32>",
        "stablehlo.return %c : tensor<i32>", "}) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        f"index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}} : (tensor<8xi32>, tensor<4x1x{kind}>, tensor<4xi32>) -> tensor<8xi32>",
        "return %0, %1 : tensor<4xi32>, tensor<8xi32>",
    )  # fmt: skip
    executable = hlojit.compile(text)
    dtype = np.dtype(kind.replace("ui", "uint") if kind[0] == "u" else kind.replace("i", "int"))
    limits = np.iinfo(dtype)
    x, u = np.arange(8, dtype="i4"), np.full(4, 100, "i4")
    for choice in ([0, 7, 8, limits.max], [limits.min, 3, 3, 9], [limits.max - 1, limits.min, limits.max // 2, 1]):
        indices = np.array(choice, dtype)
        read, written = executable(x, indices[:, None], u)
        exact = [int(index) for index in indices]
        np.testing.assert_array_equal(read, [x[min(max(index, 0), 7)] for index in exact])
        expected = x.copy()
        for index in exact:
            if 0 <= index < 8:
                expected[index] += 100
        np.testing.assert_array_equal(written, expected)


def test_gather_of_windows_with_any_index_stays_inside() -> None:
    out = isolated("""
    text = '''func.func @main(%x: tensor<6x5xf32>, %i: tensor<4x2xi64>) -> tensor<4x3x2xf32> {
      %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], start_index_map = [1, 0], index_vector_dim = 1>,
        slice_sizes = array<i64: 3, 2>, indices_are_sorted = false} : (tensor<6x5xf32>, tensor<4x2xi64>) -> tensor<4x3x2xf32>
      return %0 : tensor<4x3x2xf32>
    }'''
    x = np.arange(30, dtype="f4").reshape(6, 5)
    f = hlojit.compile(text)
    big = 2**63 - 1
    for i in ([[0, 0], [4, 5], [big, big], [-big, -big]], [[2, -1], [-1, 2], [big - 1, 0], [0, big - 1]]):
        got = f(x, np.array(i))
        for n, (c, r) in enumerate(i):
            c, r = min(max(c, 0), 3), min(max(r, 0), 3)
            assert (got[n] == x[r:r + 3, c:c + 2]).all()
    print("good")
    """)
    assert "good" in out


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integer_division_and_shifts_are_defined(bits: int) -> None:
    text = program(f"%x: tensor<5xi{bits}>, %y: tensor<5xi{bits}>", ", ".join([f"tensor<5xi{bits}>"] * 5),
                   *[f"%{k} = stablehlo.{op} %x, %y : tensor<5xi{bits}>" for k, op in
                     enumerate(("divide", "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical"))],
                   f"return %0, %1, %2, %3, %4 : {', '.join([f'tensor<5xi{bits}>'] * 5)}")  # fmt: skip
    least = -(2 ** (bits - 1))
    for shift in (False, True):
        x = np.array([7, least, least, -7, -1], f"i{bits // 8}")
        y = np.array([bits, bits + 1, -1, least, 127] if shift else [0, -1, 0, 2, 0], x.dtype)
        divided, rest, left, right, logical = hlojit.compile(text)(x, y)
        if shift:
            np.testing.assert_array_equal(left, 0)
            np.testing.assert_array_equal(right, [0, -1, -1, -1, -1])
            np.testing.assert_array_equal(logical, 0)
        else:
            np.testing.assert_array_equal(divided, [-1, least, -1, -3, -1])
            np.testing.assert_array_equal(rest, [7, 0, least, -1, -1])


@pytest.mark.parametrize("kind", ["i8", "i32", "i64", "ui8", "ui32", "ui64"])
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_conversion_of_floats_to_integers_saturates(kind: str, source: str) -> None:
    text = program(
        f"%x: tensor<7x{source}>",
        f"tensor<7x{kind}>",
        f"%0 = stablehlo.convert %x : (tensor<7x{source}>) -> tensor<7x{kind}>",
        f"return %0 : tensor<7x{kind}>",
    )
    result = hlojit.compile(text)(
        np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -2.9, 2.9], "f" + str(int(source[1:]) // 8))
    )
    limits = np.iinfo(result.dtype)
    assert result.tolist() == [0, limits.max, limits.min, limits.max, limits.min, -2 if limits.min else 0, 2]


# ------------------------------------------------------------------------------------------------------ sizes and depths


def test_too_large_is_an_error_and_no_crash() -> None:
    out = isolated("""
    for extent in (2**40, 2**45, 2**62):
        text = f'''func.func @main(%x: tensor<f32>) -> tensor<{extent}xf32> {{
          %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<{extent}xf32>
          return %0 : tensor<{extent}xf32>
        }}'''
        try:
            hlojit.compile(text)(np.float32(1))
        except hlojit.HlojitError as error:
            print("refused", error)
    # A temporary, too.
    text = '''func.func @main(%x: tensor<f32>) -> tensor<1099511627776xf32> {
      %0 = stablehlo.iota dim = 0 : tensor<1099511627776xf32>
      %1 = stablehlo.reverse %0, dims = [0] : tensor<1099511627776xf32>
      %2 = "stablehlo.sort"(%1) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }) {dimension = 0 : i64} : (tensor<1099511627776xf32>) -> tensor<1099511627776xf32>
      return %2 : tensor<1099511627776xf32>
    }'''
    try:
        hlojit.compile(text)(np.float32(1))
    except hlojit.HlojitError as error:
        print("refused", error)
    """)
    assert out.count("refused") == 4, out


def test_sizes_beyond_64_bits_are_refused() -> None:
    for shape in ("9223372036854775807x9223372036854775807", "99999999999999999999999"):
        with pytest.raises(hlojit.HlojitError):
            hlojit.compile(program("%x: tensor<f32>", f"tensor<{shape}xf32>",
                                   f"%0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<{shape}xf32>",
                                   f"return %0 : tensor<{shape}xf32>"))(np.float32(1))  # fmt: skip


def nested_loops(depth: int) -> str:
    lines = []
    for level in range(depth):
        outer = "%x" if level == 0 else f"%a{level - 1}"
        lines.append(f"%i{level} = stablehlo.constant dense<0> : tensor<i32>")
        lines.append(f"%r{level}:2 = stablehlo.while(%n{level} = %i{level}, %a{level} = {outer}) : tensor<i32>, tensor<i32>\ncond {{\n"
                     f"%l{level} = stablehlo.constant dense<1> : tensor<i32>\n%t{level} = stablehlo.compare LT, %n{level}, %l{level} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
                     f"stablehlo.return %t{level} : tensor<i1>\n}} do {{")  # fmt: skip
    for level in reversed(range(depth)):
        inner = f"%a{level}" if level == depth - 1 else f"%r{level + 1}#1"
        lines.append(f"%o{level} = stablehlo.constant dense<1> : tensor<i32>\n%m{level} = stablehlo.add %n{level}, %o{level} : tensor<i32>\n"
                     f"%s{level} = stablehlo.add {inner}, %o{level} : tensor<i32>\nstablehlo.return %m{level}, %s{level} : tensor<i32>, tensor<i32>\n}}")  # fmt: skip
    return program("%x: tensor<i32>", "tensor<i32>", *lines, "return %r0#1 : tensor<i32>")


def test_loops_fifty_deep() -> None:
    out = isolated(f"print(hlojit.compile('''{nested_loops(50)}''')(np.int32(7)))")
    assert out.strip() == "57"


def test_nesting_too_deep_is_an_error_and_no_crash() -> None:
    out = isolated(
        f"text = {nested_loops(1500)!r}\ntry:\n    print(hlojit.compile(text)(np.int32(7)))\n"
        "except hlojit.HlojitError as error:\n    print('refused', str(error)[:200])\n"
    )
    assert "refused" in out or "1507" in out


def test_a_long_chain_is_no_recursion() -> None:
    lines = ["%0 = stablehlo.add %x, %x : tensor<i32>"] + [
        f"%{k} = stablehlo.add %{k - 1}, %x : tensor<i32>" for k in range(1, 3000)
    ]
    text = program("%x: tensor<i32>", "tensor<i32>", *lines, "return %2999 : tensor<i32>")
    assert hlojit.compile(text)(np.int32(3)) == 3 * 3001


def test_many_arguments_and_results() -> None:
    count = 600
    types = ", ".join(["tensor<2xf32>"] * count)
    text = program(", ".join(f"%a{k}: tensor<2xf32>" for k in range(count)), types, *[f"%{k} = stablehlo.negate %a{k} : tensor<2xf32>" for k in range(count)],
                   f"return {', '.join(f'%{k}' for k in range(count))} : {types}")  # fmt: skip
    results = hlojit.compile(text)(*[np.full(2, k, "f4") for k in range(count)])
    assert [result[1] for result in results] == [-float(k) for k in range(count)]


# --------------------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_results_share_memory_with_nothing(backend: str) -> None:
    text = program("%x: tensor<3xf32>", ", ".join(["tensor<3xf32>"] * 6), "%c = stablehlo.constant dense<2.0> : tensor<3xf32>", "%y = stablehlo.add %x, %c : tensor<3xf32>",
                   "%z = stablehlo.reshape %y : (tensor<3xf32>) -> tensor<3xf32>",
                   f"return %x, %c, %y, %y, %z, %x : {', '.join(['tensor<3xf32>'] * 6)}")  # fmt: skip
    executable = hlojit.compile(text, backend=backend)
    x = np.ones(3, "f4")
    for _ in range(2):
        results = executable(x)
        assert [result.tolist() for result in results] == [[value] * 3 for value in (1, 2, 3, 3, 3, 1)]
        arrays = [x, *results]
        assert not any(np.may_share_memory(a, b) for k, a in enumerate(arrays) for b in arrays[:k])
        for result in results:
            result[:] = -5


def test_program_without_arguments_or_results() -> None:
    assert hlojit.compile("func.func @main() { return }")() == ()
    result = hlojit.compile(
        program("", "tensor<f32>", "%0 = stablehlo.constant dense<2.0> : tensor<f32>", "return %0 : tensor<f32>")
    )()
    assert result.shape == () and result == 2


LOOP = """
func.func @main(%a: tensor<{n}xi32>, %b: tensor<{n}xi32>, %n: tensor<i32>) -> (tensor<{n}xi32>, tensor<{n}xi32>, tensor<i32>) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %x = %a, %y = %b) : tensor<i32>, tensor<{n}xi32>, tensor<{n}xi32>
  cond {{
    %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  }} do {{
    %j = stablehlo.add %i, %one : tensor<i32>
    {body}
    stablehlo.return %j, {returned} : tensor<i32>, tensor<{n}xi32>, tensor<{n}xi32>
  }}
  return %r#1, %r#2, %r#0 : tensor<{n}xi32>, tensor<{n}xi32>, tensor<i32>
}}
"""


@pytest.mark.parametrize("n", [3, 1000])
@pytest.mark.parametrize("turns", [0, 1, 2, 5])
@pytest.mark.parametrize(("body", "returned"), [
    ("", "%y, %x"), ("", "%x, %x"), ("", "%y, %y"), ("", "%a, %b"), ("", "%b, %x"),
    ("%s = stablehlo.add %x, %y : T", "%y, %s"), ("%s = stablehlo.add %x, %y : T", "%s, %s"), ("%s = stablehlo.add %x, %y : T", "%s, %x"),
    ("%s = stablehlo.add %x, %a : T", "%y, %s"), ("%s = stablehlo.add %x, %y : T\n%q = stablehlo.subtract %x, %y : T", "%q, %s"),
    ("%s = stablehlo.reverse %x, dims = [0] : T", "%s, %x"), ("%s = stablehlo.reverse %x, dims = [0] : T\n%q = stablehlo.reverse %y, dims = [0] : T", "%q, %s"),
    ("%s = stablehlo.add %x, %x : T\n%q = stablehlo.add %s, %x : T", "%q, %y"),
    ("%u = stablehlo.constant dense<7> : tensor<1xi32>\n%s = stablehlo.dynamic_update_slice %x, %u, %i : (T, tensor<1xi32>, tensor<i32>) -> T", "%s, %x"),
    ("%u = stablehlo.constant dense<7> : tensor<1xi32>\n%s = stablehlo.dynamic_update_slice %x, %u, %i : (T, tensor<1xi32>, tensor<i32>) -> T", "%y, %s"),
    ("%u = stablehlo.constant dense<7> : tensor<1xi32>\n%s = stablehlo.dynamic_update_slice %a, %u, %i : (T, tensor<1xi32>, tensor<i32>) -> T", "%s, %y"),
])  # fmt: skip
def test_loop_state_moves_as_written(n: int, turns: int, body: str, returned: str) -> None:
    from hlojit.ir import evaluate

    text = LOOP.format(n=n, body=body.replace("T", f"tensor<{n}xi32>"), returned=returned)
    a, b = np.arange(n, dtype="i4"), np.arange(n, dtype="i4") * -3 + 1
    expected = evaluate(hlojit.parse(text), a, b, np.array(turns, "i4"))
    for ours, theirs in zip(hlojit.compile(text)(a, b, np.int32(turns)), expected):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(a, np.arange(n))


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3, 2**31 - 1, -(2**31)])
def test_case_with_any_index(index: int) -> None:
    regions = ", ".join(
        f"{{ %c{k} = stablehlo.constant dense<{k}> : tensor<i32>\nstablehlo.return %c{k} : tensor<i32> }}"
        for k in range(3)
    )
    text = program(
        "%i: tensor<i32>",
        "tensor<i32>",
        f'%0 = "stablehlo.case"(%i) ({regions}) : (tensor<i32>) -> tensor<i32>',
        "return %0 : tensor<i32>",
    )
    # The last branch is the default.
    assert hlojit.compile(text)(np.int32(index)) == (index if 0 <= index < 3 else 2)


# ----------------------------------------------------------------------------------------------------------- interruption


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_loop_that_does_not_end_is_stopped_by_control_c() -> None:
    code = """
    import signal
    # A test run in the background inherits an ignored SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    text = '''func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %r = stablehlo.while(%a = %x) : tensor<f32>
      cond { %z = stablehlo.constant dense<0.0> : tensor<f32>
             %t = stablehlo.compare GE, %a, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
             stablehlo.return %t : tensor<i1> }
      do { %n = stablehlo.sine %a : tensor<f32>
           %m = stablehlo.abs %n : tensor<f32>
           stablehlo.return %m : tensor<f32> }
      return %r : tensor<f32>
    }'''
    executable = hlojit.compile(text)
    print("running", flush=True)
    try:
        executable(np.float32(1))
    except KeyboardInterrupt:
        print("stopped", flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", "import numpy as np\nimport hlojit\n" + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "running"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        try:
            out, _ = child.communicate(timeout=20)
        finally:
            child.kill()
    assert out.strip() == "stopped" and child.returncode == 0
