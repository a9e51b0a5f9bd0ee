"""Results whose size only the run tells: within bounds, they come out in their actual sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.compiled import write
from hlojit.ir.passes.pipeline_text import parse_pipeline

BACKENDS = ("cpu", "reference")
B8 = "tensor<?xf32, #stablehlo.bounds<8>>"
ROWS = "tensor<?x3xf32, #stablehlo.bounds<8, ?>>"


def program(body: str, results: str, arguments: str = "%x: tensor<8xf32>, %n: tensor<i32>") -> str:
    head = f"%s = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<8xf32>, tensor<i32>) -> {B8}"
    if "8x3" in arguments:
        head = f"%s = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<8x3xf32>, tensor<i32>) -> {ROWS}"
    return f"func.func @main({arguments}) -> ({results}) {{\n  {head}\n  {body}\n}}"


ROWS_OF_X = "%x: tensor<8x3xf32>, %n: tensor<i32>"
X, R = np.arange(1, 9, dtype=np.float32), np.arange(24, dtype=np.float32).reshape(8, 3)


def windows_over_gaps(x: Any, n: int) -> Any:
    """Sums of 3 at every second place of ``x[:n]`` with a zero between neighbours, 2 in front and 3 behind."""
    spread = np.zeros(max(2 * n - 1, 0), np.float32)
    spread[::2] = x[:n]
    padded = np.pad(spread, (2, 3))
    return np.array([padded[at : at + 3].sum() for at in range(0, len(padded) - 2, 2)])


CASES: dict[str, tuple[str, Any, Any]] = {
    "itself": (program(f"return %s : {B8}", B8), X, lambda x, n: x[:n]),
    "elementwise": (
        program(f"%0 = stablehlo.sine %s : {B8} return %0 : {B8}", B8),
        X,
        lambda x, n: np.sin(x[:n]),
    ),
    "size": (
        program(
            f"%0 = stablehlo.get_dimension_size %s, dim = 0 : ({B8}) -> tensor<i32> return %0 : tensor<i32>",
            "tensor<i32>",
        ),
        X,
        lambda x, n: np.int32(n),
    ),
    "reshape, outermost": (
        program(
            f"%0 = stablehlo.reshape %s : ({ROWS}) -> tensor<?xf32, #stablehlo.bounds<24>> "
            "return %0 : tensor<?xf32, #stablehlo.bounds<24>>",
            "tensor<?xf32, #stablehlo.bounds<24>>",
            ROWS_OF_X,
        ),
        R,
        lambda x, n: x[:n].reshape(-1),
    ),
    "reshape, of its own": (
        program(
            f"%0 = stablehlo.reshape %s : ({ROWS}) -> tensor<?x1x3xf32, #stablehlo.bounds<8, ?, ?>> "
            "return %0 : tensor<?x1x3xf32, #stablehlo.bounds<8, ?, ?>>",
            "tensor<?x1x3xf32, #stablehlo.bounds<8, ?, ?>>",
            ROWS_OF_X,
        ),
        R,
        lambda x, n: x[:n].reshape(n, 1, 3),
    ),
    "windows": (
        program(
            '%z = stablehlo.constant dense<0.0> : tensor<f32> %0 = "stablehlo.reduce_window"(%s, %z) <{window_dimensions = '
            "array<i64: 3>, window_strides = array<i64: 2>, padding = dense<[[1, 1]]> : tensor<1x2xi64>}> ({ "
            "^bb0(%a: tensor<f32>, %b: tensor<f32>): %c = stablehlo.add %a, %b : tensor<f32> "
            f"stablehlo.return %c : tensor<f32> }}) : ({B8}, tensor<f32>) -> tensor<?xf32, #stablehlo.bounds<4>> "
            "return %0 : tensor<?xf32, #stablehlo.bounds<4>>",
            "tensor<?xf32, #stablehlo.bounds<4>>",
        ),
        X,
        lambda x, n: np.array(
            [np.pad(x[:n], 1)[start : start + 3].sum() for start in range(0, n, 2) if start + 3 <= n + 2], np.float32
        ),
    ),
    "a slice between sizes": (
        program(
            "%one = stablehlo.constant dense<1> : tensor<1xi32> %two = stablehlo.constant dense<2> : tensor<1xi32> "
            "%l = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32> "
            "%0 = stablehlo.real_dynamic_slice %x, %one, %l, %two : (tensor<8xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>)"
            f" -> {B8} return %0 : {B8}",
            B8,
        ),
        X,
        lambda x, n: x[1:n:2] if n else None,
    ),
    "a loop": (
        program(
            "%zero = stablehlo.constant dense<0> : tensor<i32> %one = stablehlo.constant dense<1> : tensor<i32> "
            f"%0:2 = stablehlo.while(%i = %zero, %a = %s) : tensor<i32>, {B8} cond {{ "
            f"%m = stablehlo.get_dimension_size %a, dim = 0 : ({B8}) -> tensor<i32> "
            "%p = stablehlo.compare LT, %i, %m : (tensor<i32>, tensor<i32>) -> tensor<i1> stablehlo.return %p : tensor<i1> "
            f"}} do {{ %j = stablehlo.add %i, %one : tensor<i32> %b = stablehlo.add %a, %a : {B8} "
            f"stablehlo.return %j, %b : tensor<i32>, {B8} }} return %0#1 : {B8}",
            B8,
        ),
        X,
        lambda x, n: x[:n] * np.float32(2**n),
    ),
    "a branch": (
        program(
            "%three = stablehlo.constant dense<3> : tensor<i32> "
            "%p = stablehlo.compare LT, %n, %three : (tensor<i32>, tensor<i32>) -> tensor<i1> "
            f'%0 = "stablehlo.if"(%p) ({{ stablehlo.return %s : {B8} }}, {{ '
            f"%t = stablehlo.set_dimension_size %x, %three, dim = 0 : (tensor<8xf32>, tensor<i32>) -> {B8} "
            f"%u = stablehlo.negate %t : {B8} stablehlo.return %u : {B8} }}) : (tensor<i1>) -> {B8} return %0 : {B8}",
            B8,
        ),
        X,
        lambda x, n: x[:n] if n < 3 else -x[:3],
    ),
    "a broadcast to a size": (
        program(
            "%l = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32> %c = stablehlo.constant dense<5.0> : tensor<f32> "
            f"%0 = stablehlo.dynamic_broadcast_in_dim %c, %l, dims = [] : (tensor<f32>, tensor<1xi32>) -> {B8} "
            f"%1 = stablehlo.dynamic_iota %l, dim = 0 : (tensor<1xi32>) -> {B8} %2 = stablehlo.add %0, %1 : {B8} "
            f"return %2 : {B8}",
            B8,
        ),
        X,
        lambda x, n: 5 + np.arange(n, dtype=np.float32),
    ),
    "a product over the size": (
        program(
            f"%0 = stablehlo.dot_general %s, %s, contracting_dims = [0] x [0] : ({ROWS}, {ROWS}) -> tensor<3x3xf32> "
            "return %0 : tensor<3x3xf32>",
            "tensor<3x3xf32>",
            ROWS_OF_X,
        ),
        R,
        lambda x, n: x[:n].T @ x[:n],
    ),
    "windows over gaps": (
        program(
            "%z = stablehlo.constant dense<0.0> : tensor<f32> "
            '%0 = "stablehlo.reduce_window"(%s, %z) <{window_dimensions = array<i64: 3>, base_dilations = array<i64: 2>, '
            "window_strides = array<i64: 2>, padding = dense<[[2, 3]]> : tensor<1x2xi64>}> ({ "
            "^bb0(%a: tensor<f32>, %b: tensor<f32>): %h = stablehlo.add %a, %b : tensor<f32> stablehlo.return %h : tensor<f32> "
            f"}}) : ({B8}, tensor<f32>) -> tensor<?xf32, #stablehlo.bounds<20>> "
            "return %0 : tensor<?xf32, #stablehlo.bounds<20>>",
            "tensor<?xf32, #stablehlo.bounds<20>>",
        ),
        X,
        windows_over_gaps,
    ),
    "NaN beyond the size": (
        program(
            "%z = stablehlo.constant dense<0.0> : tensor<f32> "
            f"%0 = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0] : ({B8}, tensor<f32>) -> tensor<f32> "
            f"%1 = stablehlo.dot_general %s, %s, contracting_dims = [0] x [0] : ({B8}, {B8}) -> tensor<f32> "
            "%2 = stablehlo.add %0, %1 : tensor<f32> return %2 : tensor<f32>",
            "tensor<f32>",
        ),
        np.array([1, 2, 3, 4, 5, np.nan, np.nan, np.inf], np.float32),
        lambda x, n: x[:n].sum() + (x[:n] ** 2).sum() if n < 6 else None,
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_results_have_their_actual_sizes(name: str, backend: str) -> None:
    text, x, expected = CASES[name]
    executable = hlojit.compile(text, backend=backend, options={"dynamic_shapes": "specialize"})
    for n in (0, 1, 3, 4, 8):
        wanted = expected(x, n)
        if wanted is not None:
            result = executable(x, np.int32(n))
            assert result.shape == np.shape(wanted)
            np.testing.assert_allclose(result, wanted, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_compilation_serves_all_sizes_and_the_type_says_so(backend: str) -> None:
    executable = hlojit.compile(CASES["elementwise"][0], backend=backend)
    assert executable.dynamic_shapes == "static"
    assert str(executable.output_types[0]) == B8
    assert str(executable.input_types[0]) == "tensor<8xf32>"
    assert B8 in repr(executable)


@pytest.mark.parametrize("size", [-1, 9, 2**31 - 1])
@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_beyond_the_bound_are_errors(size: int, backend: str) -> None:
    executable = hlojit.compile(CASES["itself"][0], backend=backend)
    with pytest.raises(hlojit.ExecutionError, match=f"size {size}"):
        executable(X, np.int32(size))


def test_results_can_stay_on_a_device() -> None:
    executable = hlojit.compile(CASES["itself"][0])
    for result in (executable.execute(X, np.int32(3)), executable(hlojit.put(X), hlojit.put(np.int32(3)))):
        assert isinstance(result, hlojit.Array)
        assert result.device is not None
        np.testing.assert_array_equal(np.asarray(result), X[:3])


def test_beside_sizes_of_arguments() -> None:
    kind = "tensor<?x?xf32, #stablehlo.bounds<8, ?>>"
    executable = hlojit.compile(f"""
    func.func @main(%x: tensor<8x?xf32>, %n: tensor<i32>) -> {kind} {{
      %s = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<8x?xf32>, tensor<i32>) -> {kind}
      %0 = stablehlo.negate %s : {kind}
      return %0 : {kind}
    }}
    """)
    for columns in (1, 4):
        x = np.ones((8, columns), np.float32)
        for n in (2, 5):
            np.testing.assert_array_equal(executable(x, np.int32(n)), -x[:n])
    assert len(executable.specializations) == 2


def test_ops_that_cannot_be_padded_are_named_with_their_place() -> None:
    kind, line = "tensor<3x?xf32, #stablehlo.bounds<?, 8>>", "tensor<?xf32, #stablehlo.bounds<24>>"
    text = f"""
    func.func @main(%x: tensor<3x8xf32>, %n: tensor<i32>) -> {line} {{
      %s = stablehlo.set_dimension_size %x, %n, dim = 1 : (tensor<3x8xf32>, tensor<i32>) -> {kind}
      %0 = stablehlo.reshape %s : ({kind}) -> {line}
      return %0 : {line}
    }}
    """
    with pytest.raises(hlojit.UnsupportedError, match="(?s)reshape.*must be the outermost of the dimensions.*:4:7"):
        hlojit.compile(text)
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_array_equal(hlojit.compile(text, backend="reference")(x, np.int32(5)), x[:, :5].reshape(-1))


def test_the_pass_alone_makes_sizes_results() -> None:
    module = hlojit.parse(CASES["a product over the size"][0])
    parse_pipeline("dynamic-padder,cse,dce").run(module, verify="always")
    assert "?" not in str(module)
    fault = ["tensor<i32>", "tensor<i32>"]
    assert [str(type) for type in module.main.result_types] == ["tensor<3x3xf32>", *fault]
    module = hlojit.parse(CASES["elementwise"][0])
    parse_pipeline("dynamic-padder").run(module, verify="always")
    assert [str(type) for type in module.main.result_types] == ["tensor<8xf32>", "tensor<i32>", *fault]


SUM = f"""
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0] : ({B8}, tensor<f32>) -> tensor<f32>
"""
AT_ONCE = program(f"{SUM} return %0 : tensor<f32>", "tensor<f32>")
IN_A_LOOP = f"""
func.func @main(%x: tensor<8xf32>, %n: tensor<i32>) -> tensor<f32> {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %c = stablehlo.constant dense<4> : tensor<i32>
  %four = stablehlo.minimum %n, %c : tensor<i32>
  %begin = stablehlo.set_dimension_size %x, %four, dim = 0 : (tensor<8xf32>, tensor<i32>) -> {B8}
  %r:3 = stablehlo.while(%i = %zero, %v = %begin, %total = %z) : tensor<i32>, {B8}, tensor<f32>
  cond {{
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<1> : tensor<i32>
    %k = stablehlo.add %i, %one : tensor<i32>
    %t = stablehlo.set_dimension_size %x, %k, dim = 0 : (tensor<8xf32>, tensor<i32>) -> {B8}
    %sum = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [0] : ({B8}, tensor<f32>) -> tensor<f32>
    %all = stablehlo.add %total, %sum : tensor<f32>
    stablehlo.return %k, %t, %all : tensor<i32>, {B8}, tensor<f32>
  }}
  return %r#2 : tensor<f32>
}}
"""
IN_A_BRANCH = f"""
func.func @main(%x: tensor<8xf32>, %n: tensor<i32>) -> tensor<f32> {{
  %c = stablehlo.constant dense<5> : tensor<i32>
  %p = stablehlo.compare GT, %n, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %r = "stablehlo.if"(%p) ({{
    %s = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<8xf32>, tensor<i32>) -> {B8}
    {SUM} stablehlo.return %0 : tensor<f32>
  }}, {{
    %z = stablehlo.constant dense<-1.0> : tensor<f32>
    stablehlo.return %z : tensor<f32>
  }}) : (tensor<i1>) -> tensor<f32>
  return %r : tensor<f32>
}}
"""
WIDE = f"""
func.func @main(%f: tensor<f64>) -> tensor<f32> {{
  %n = stablehlo.convert %f : (tensor<f64>) -> tensor<i64>
  %l = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
  %c = stablehlo.constant dense<2.0> : tensor<f32>
  %s = stablehlo.dynamic_broadcast_in_dim %c, %l, dims = [] : (tensor<f32>, tensor<1xi64>) -> {B8}
  {SUM} return %0 : tensor<f32>
}}
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "text, size, expected",
    [
        (AT_ONCE, 3, 6.0),
        (AT_ONCE, 20, "set_dimension_size at .*dimension 0 of size 8 cannot have the size 20"),
        (AT_ONCE, -1, "cannot have the size -1"),
        (IN_A_LOOP, 4, 20.0),
        (IN_A_LOOP, 8, 120.0),
        (IN_A_LOOP, 11, "cannot have the size 9"),
        (IN_A_BRANCH, 6, 21.0),
        (IN_A_BRANCH, -3, -1.0),
        (IN_A_BRANCH, 9, "cannot have the size 9"),
    ],
)
def test_sizes_beyond_the_bound_are_errors_though_no_result_has_them(
    text: str, size: int, expected: Any, backend: str
) -> None:
    executable = hlojit.compile(text, backend=backend)
    if isinstance(expected, float):
        assert float(executable(X, np.int32(size))) == expected
    else:
        with pytest.raises(hlojit.ExecutionError, match=expected):
            executable(X, np.int32(size))


@pytest.mark.parametrize("size", [2**32 + 3, -(2**40), 2**31, 2**63 - 1024])
def test_sizes_of_64_bits_do_not_wrap(size: int) -> None:
    executable = hlojit.compile(WIDE)
    assert float(executable(np.float64(3))) == 6
    with pytest.raises(hlojit.ExecutionError, match="size"):
        executable(np.float64(size))


def test_the_first_one_is_named() -> None:
    executable = hlojit.compile(
        program(
            f"%m = stablehlo.add %n, %n : tensor<i32> "
            f"%t = stablehlo.set_dimension_size %x, %m, dim = 0 : (tensor<8xf32>, tensor<i32>) -> {B8} "
            f"return %s, %t : {B8}, {B8}",
            f"{B8}, {B8}",
        )
    )
    assert [each.shape for each in executable(X, np.int32(4))] == [(4,), (8,)]
    for n, size in ((5, 10), (9, 9)):
        with pytest.raises(hlojit.ExecutionError, match=f"cannot have the size {size}$"):
            executable(X, np.int32(n))


def test_nothing_is_left_of_what_was_padded() -> None:
    module = hlojit.parse(CASES["a branch"][0])
    parse_pipeline("dynamic-padder").run(module, verify="always")
    assert "?" not in str(module)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_programs_with_bounded_results_are_saved(backend: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    text = program(f"%0 = stablehlo.negate %s : {B8} return %n, %0 : tensor<i32>, {B8}", f"tensor<i32>, {B8}")
    hlojit.compile(text, backend=backend).save(tmp_path / "bounded")
    loaded = hlojit.load(tmp_path / "bounded")
    assert [str(each) for each in loaded.output_types] == ["tensor<i32>", B8]
    for n in (0, 3, 8):
        count, found = loaded(X, np.int32(n))
        assert count == n
        np.testing.assert_array_equal(found, -X[:n])
    with pytest.raises(hlojit.ExecutionError, match="cannot have the size 9"):
        loaded(X, np.int32(9))
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(hlojit.load(tmp_path / "again")(X, np.int32(2))[1], -X[:2])


def test_a_file_whose_sizes_are_of_no_result_is_refused(tmp_path: Any) -> None:
    executable = hlojit.compile(program(f"return %s : {B8}", B8))
    compiled = executable.spec.compiled
    type = executable.output_types[0]
    for wrong in (
        ((type, ((1, 1),)),),
        ((type, ((0, 7),)),),
        ((type, ((0, 0),)),),
        ((type, (0,)),),
        ((3, ()),),
        ((type, ()), (type, ()), (type, ())),
    ):
        write(replace(compiled, bounded=wrong), tmp_path / "wrong")
        with pytest.raises(hlojit.HlojitError, match="does not hold a compiled program"):
            hlojit.load(tmp_path / "wrong")


SECOND = f"%t = stablehlo.set_dimension_size %x, %m, dim = 0 : (tensor<8xf32>, tensor<i32>) -> {B8}"
ROWS_OF_S = (
    "%r = stablehlo.broadcast_in_dim %s, dims = [0] : "
    f"({B8}) -> {ROWS} %q = stablehlo.broadcast_in_dim %t, dims = [0] : ({B8}) -> {ROWS}"
)
NUMBERS = "%l = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>"
NEEDS: dict[str, tuple[str, str, Any, list[tuple[int, int]], list[tuple[int, int]]]] = {
    # the op, the type of its result, what it computes, sizes that fit, and sizes that do not
    "operands": (f"stablehlo.add %s, %t : {B8}", B8, lambda s, t: s + t, [(3, 3), (0, 0)], [(3, 4), (4, 3), (1, 4)]),
    "an operand of known size": (
        f"stablehlo.add %s, %x : ({B8}, tensor<8xf32>) -> {B8}", B8, lambda s, t: s + X, [(8, 0)], [(3, 0), (1, 8)],
    ),
    "a result of known size": (
        f"stablehlo.negate %s : ({B8}) -> tensor<5xf32>", "tensor<5xf32>", lambda s, t: -s, [(5, 0)], [(4, 0), (8, 5)],
    ),
    "a result of a smaller bound": (
        f"stablehlo.negate %s : ({B8}) -> tensor<?xf32, #stablehlo.bounds<5>>",
        "tensor<?xf32, #stablehlo.bounds<5>>",
        lambda s, t: -s,
        [(5, 0), (2, 0)],
        [(6, 0)],
    ),
    "transposed to a known size": (
        f"stablehlo.transpose %s, dims = [0] : ({B8}) -> tensor<5xf32>", "tensor<5xf32>", lambda s, t: s, [(5, 0)], [(4, 0)],
    ),
    "a part": (f"stablehlo.slice %s [1:3] : ({B8}) -> tensor<2xf32>", "tensor<2xf32>", lambda s, t: s[1:3], [(3, 0), (8, 0)], [(2, 0), (1, 0), (0, 0)]),
    "growth": (
        f"stablehlo.set_dimension_size %s, %m, dim = 0 : ({B8}, tensor<i32>) -> {B8}",
        B8,
        lambda s, t: s[: len(t)],
        [(6, 3), (3, 3), (8, 0)],
        [(3, 6), (0, 1)],
    ),
    "concatenated": (
        f"stablehlo.concatenate %r, %q, dim = 1 : ({ROWS}, {ROWS}) -> tensor<?x6xf32, #stablehlo.bounds<8, ?>>",
        "tensor<?x6xf32, #stablehlo.bounds<8, ?>>",
        lambda s, t: np.concatenate([np.tile(s[:, None], 3), np.tile(t[:, None], 3)], 1),
        [(3, 3), (0, 0)],
        [(3, 4)],
    ),
    "a product": (
        f"stablehlo.dot_general %s, %t, contracting_dims = [0] x [0] : ({B8}, {B8}) -> tensor<f32>",
        "tensor<f32>",
        lambda s, t: np.float32(s @ t),
        [(3, 3), (0, 0)],
        [(3, 4), (1, 4)],
    ),
    "a product with a known size": (
        f"stablehlo.dot_general %x, %t, contracting_dims = [0] x [0] : (tensor<8xf32>, {B8}) -> tensor<f32>",
        "tensor<f32>",
        lambda s, t: np.float32(X @ t),
        [(3, 8)],
        [(3, 4)],
    ),
    "given to a reshape": (
        f"stablehlo.dynamic_reshape %s, %l : ({B8}, tensor<1xi32>) -> {B8}", B8, lambda s, t: s, [(3, 3), (8, 8)], [(3, 4), (4, 3)],
    ),
    "given to a broadcast": (
        f"stablehlo.dynamic_broadcast_in_dim %s, %l, dims = [0] : ({B8}, tensor<1xi32>) -> {B8}",
        B8,
        lambda s, t: s,
        [(3, 3)],
        [(3, 4), (4, 1)],
    ),
    "a broadcast beyond its bound": (
        f"stablehlo.dynamic_broadcast_in_dim %z, %l, dims = [] : (tensor<f32>, tensor<1xi32>) -> {B8}",
        B8,
        lambda s, t: 0 * t,
        [(3, 3), (3, 8)],
        [(3, 9), (3, -1)],
    ),
    "broadcast": (f"stablehlo.broadcast_in_dim %s, dims = [0] : ({B8}) -> {ROWS}", ROWS, lambda s, t: np.tile(s[:, None], 3), [(3, 0), (0, 0)], [(9, 0)]),
    "padding": (
        f"stablehlo.pad %s, %z, low = [-1], high = [-1], interior = [0] : ({B8}, tensor<f32>) -> tensor<?xf32, #stablehlo.bounds<6>>",
        "tensor<?xf32, #stablehlo.bounds<6>>",
        lambda s, t: s[1:-1],
        [(3, 0), (2, 0), (8, 0)],
        [(1, 0), (0, 0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NEEDS)
def test_what_ops_need_of_sizes_is_looked_at_by_the_run(name: str, backend: str) -> None:
    line, result, expected, fitting, unfit = NEEDS[name]
    body = f"{SECOND} {ROWS_OF_S} {NUMBERS} %z = stablehlo.constant dense<0.0> : tensor<f32> %0 = {line} return %0 : {result}"
    text = program(body, result, "%x: tensor<8xf32>, %n: tensor<i32>, %m: tensor<i32>")
    # Sizes that no op reads may be any.
    text = (
        text.replace(SECOND, "").replace(ROWS_OF_S, "")
        if not ({"%t", "%q"} & set(line.replace(",", " ").split()))
        else text
    )
    executable = hlojit.compile(text, backend=backend)
    for n, m in fitting:
        found = executable(X, np.int32(n), np.int32(m))
        np.testing.assert_array_equal(found, expected(X[:n], X[:m]), strict=True)
    # NumPy words some of the reference's.
    said = (
        r"size -?\d+ .*(must|does not fit)|cannot have the size|would have the shape|1 fault in the program"
        if backend == "cpu"
        else ""
    )
    for n, m in unfit:
        with pytest.raises((hlojit.ExecutionError, hlojit.ArgumentError), match=said):
            executable(X, np.int32(n), np.int32(m))
