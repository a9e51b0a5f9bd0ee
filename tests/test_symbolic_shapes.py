"""Programs that are compiled once for all sizes (``dynamic_shapes="symbolic"``)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.extensions import Pass, hookimpl, using
from hlojit.ir.builder import Builder
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.pass_manager import PHASES
from hlojit.ir.sizes import add, apply, extent, multiply
from hlojit.ir.sizes import evaluate as size_of
from hlojit.ir.sizes import text as spelt

from .test_dynamic_shapes import COUNTED, SCALED, f32

SYMBOLIC = {"dynamic_shapes": "symbolic"}
SIZES = (0, 1, 7, 16, 17, 100, 8192, 20_000)


def function(body: str, arguments: str, results: str) -> str:
    return f"func.func @main({arguments}) -> {results} {{ {body} }}"


def agree(text: str, *inputs: Any, tolerance: float = 0.0) -> Any:
    executable = hlojit.compile(text, options=SYMBOLIC)
    assert executable.dynamic_shapes == "symbolic", executable.why
    results = executable(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    for result, expected in zip(results, evaluate(hlojit.parse(text), *inputs), strict=True):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        wide = np.float64 if result.dtype.kind not in "iub" else result.dtype
        np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)
    return executable


@pytest.mark.parametrize("size", SIZES)
def test_sizes_at_and_beside_multiples_of_lanes_and_tasks(size: int) -> None:
    executable = hlojit.compile(SCALED, options=SYMBOLIC)
    x, y = f32(size, 4), f32(size, 4) + 1
    np.testing.assert_array_equal(executable(x, y), x * 2 + y)
    counted = hlojit.compile(COUNTED, options=SYMBOLIC)
    np.testing.assert_array_equal(counted(size, f32(size)), np.arange(size, dtype=np.float32) + f32(size))


ELEMENTS = {
    "i1": np.bool_,
    "i8": np.int8,
    "ui8": np.uint8,
    "i16": np.int16,
    "i32": np.int32,
    "ui32": np.uint32,
    "i64": np.int64,
    "ui64": np.uint64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f32": np.float32,
    "f64": np.float64,
}


@pytest.mark.parametrize("element", ELEMENTS)
def test_element_types(element: str) -> None:
    kind, rows = f"tensor<?x3x{element}>", f"tensor<?x{element}>"
    op = "or" if element == "i1" else "maximum"
    body = f"""
      %c = stablehlo.constant dense<{"false" if element == "i1" else "1"}> : tensor<{element}>
      %0 = stablehlo.{op} %x, %y : {kind}
      %1 = stablehlo.transpose %0, dims = [1, 0] : ({kind}) -> tensor<3x?x{element}>
      %2 = stablehlo.reduce(%0 init: %c) applies stablehlo.{op} across dimensions = [1] : ({kind}, tensor<{element}>) -> {rows}
      %3 = stablehlo.reduce(%0 init: %c) applies stablehlo.{op} across dimensions = [0] : ({kind}, tensor<{element}>) -> tensor<3x{element}>
      %4 = stablehlo.concatenate %0, %x, dim = 0 : ({kind}, {kind}) -> {kind}
      return %1, %2, %3, %4 : tensor<3x?x{element}>, {rows}, tensor<3x{element}>, {kind}
    """
    results = f"(tensor<3x?x{element}>, {rows}, tensor<3x{element}>, {kind})"
    generator = np.random.default_rng(0)
    x, y = (generator.integers(0, 2 if element == "i1" else 9, (21, 3)).astype(ELEMENTS[element]) for _ in range(2))
    agree(function(body, f"%x: {kind}, %y: {kind}", results), x, y)


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i8", "i32"])
@pytest.mark.parametrize("contracting", ["[1] x [0]", "[1] x [1]", "[0] x [0]"])
def test_products(contracting: str, element: str) -> None:
    result = "i32" if element == "i8" else element
    body = f"""
      %0 = stablehlo.dot_general %x, %y, contracting_dims = {contracting} : (tensor<?x?x{element}>, tensor<?x?x{element}>)
        -> tensor<?x?x{result}>
      return %0 : tensor<?x?x{result}>
    """
    text = function(body, f"%x: tensor<?x?x{element}>, %y: tensor<?x?x{element}>", f"tensor<?x?x{result}>")
    generator = np.random.default_rng(0)
    for m, k, n in ((1, 1, 1), (5, 37, 19), (3, 0, 4), (16, 64, 33)):
        shapes = [(k, m) if contracting[1] == "0" else (m, k), (n, k) if contracting.endswith("[1]") else (k, n)]
        x, y = (generator.integers(-3, 4, shape).astype(ELEMENTS[element]) for shape in shapes)
        agree(text, x, y, tolerance=1e-5)


def test_what_has_to_be_equal_is_checked_and_named() -> None:
    executable = hlojit.compile(SCALED, options=SYMBOLIC)
    message = (
        r"4 \(argument 1, dimension 0\).*3 \(argument 0, dimension 0\)|3 \(argument 0.*4 \(argument 1, dimension 0\)"
    )
    with pytest.raises(hlojit.ArgumentError, match=rf"(?s){message}"):
        executable(f32(3, 4), f32(4, 4))
    with pytest.raises(hlojit.ArgumentError, match="dimension 1 is 5, not 4"):
        executable(f32(3, 5), f32(3, 5))
    with pytest.raises(hlojit.ArgumentError, match="float64"):
        executable(f32(3, 4), f32(3, 4).astype("f8"))
    np.testing.assert_array_equal(executable(f32(3, 4), f32(3, 4)), f32(3, 4) * 3)


def test_the_user_sees_it() -> None:
    executable = hlojit.compile(SCALED, options=SYMBOLIC)
    assert executable.dynamic_shapes == "symbolic"
    assert repr(executable).endswith("compiled once for all sizes>")
    first, second = (executable.specialized(f32(n, 4), f32(n, 4)) for n in (3, 5))
    assert first.spec.entry == second.spec.entry
    pending = executable.execute(f32(3, 4), f32(3, 4))
    np.testing.assert_array_equal(np.asarray(pending), f32(3, 4) * 3)


def test_back_ends_without_such_code_say_so() -> None:
    executable = hlojit.compile(SCALED, backend="reference", options=SYMBOLIC)
    assert executable.dynamic_shapes == "specialize"
    assert "the back end compiles for sizes that are known" in executable.why
    np.testing.assert_array_equal(executable(f32(3, 4), f32(3, 4)), f32(3, 4) * 3)


def test_a_thousand_shapes_take_no_more_than_the_last_ones_and_no_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = hlojit.compile(SCALED, options={**SYMBOLIC, "specializations": 8})
    monkeypatch.setattr("hlojit.cpu.symbolic.compile_to_object", None)
    for rows in range(1000):
        x = f32(rows, 4)
        np.testing.assert_array_equal(executable(x, x), x * 3)
        assert len(executable.specializations) <= 8


def test_threads() -> None:
    executable = hlojit.compile(SCALED, options=SYMBOLIC)
    barrier, wrong = threading.Barrier(6), []

    def run(number: int) -> None:
        barrier.wait()
        for rows in range(number, 60, 3):
            x = f32(rows, 4)
            if not np.array_equal(executable(x, x), x * 3):
                wrong.append((number, rows))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_that_are_arguments_or_known() -> None:
    body = """
      %c = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      return %x, %x, %c, %n : tensor<?xf32>, tensor<?xf32>, tensor<2xf32>, tensor<i32>
    """
    agree(function(body, "%x: tensor<?xf32>", "(tensor<?xf32>, tensor<?xf32>, tensor<2xf32>, tensor<i32>)"), f32(5))


@pytest.mark.parametrize("through", ["{0}", "n"])
def test_a_value_that_is_read_many_times_is_computed_once(through: str) -> None:
    # 2**40 elements if each reading computed it again, here or through an elementwise op that has one reader.
    lines, last = [], "x"
    for number in range(40):
        turned = last if through != "n" else f"n{number}"
        lines.append(f"%n{number} = stablehlo.negate %{last} : tensor<?xf32>")
        lines.append(f"%m{number} = stablehlo.abs %{last} : tensor<?xf32>")
        lines.append(f"%r{number} = stablehlo.reverse %{turned}, dims = [0] : tensor<?xf32>")
        lines.append(f"%s{number} = stablehlo.add %m{number}, %r{number} : tensor<?xf32>")
        lines.append(f"%t{number} = stablehlo.tanh %s{number} : tensor<?xf32>")
        last = f"t{number}"
    text = function("\n".join([*lines, f"return %{last} : tensor<?xf32>"]), "%x: tensor<?xf32>", "tensor<?xf32>")
    agree(text, f32(33), tolerance=1e-5)


def test_bits_of_the_same_width() -> None:
    body = """
      %0 = stablehlo.bitcast_convert %x : (tensor<?xf32>) -> tensor<?xi32>
      %1 = stablehlo.bitcast_convert %0 : (tensor<?xi32>) -> tensor<?xf32>
      return %0, %1 : tensor<?xi32>, tensor<?xf32>
    """
    agree(function(body, "%x: tensor<?xf32>", "(tensor<?xi32>, tensor<?xf32>)"), f32(21))


def test_indices_beyond_the_operand_are_clamped() -> None:
    body = """
      %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>}>
        : (tensor<?x3xf32>, tensor<?x1xi32>) -> tensor<?x3xf32>
      return %0 : tensor<?x3xf32>
    """
    text = function(body, "%x: tensor<?x3xf32>, %i: tensor<?x1xi32>", "tensor<?x3xf32>")
    agree(text, f32(5, 3), np.array([[-7], [0], [4], [5], [2**31 - 1], [-(2**31)]], np.int32))
    with pytest.raises(hlojit.ArgumentError, match="slice size 1 must be at most 0"):
        hlojit.compile(text, options=SYMBOLIC)(f32(0, 3), np.zeros((1, 1), np.int32))


def test_sizes_as_expressions() -> None:
    b, n = extent(0, 0), extent(1, 0)
    assert apply("subtract", add(b, 3), add(b, 3)) == 0
    assert apply("equal", b, b) == 1
    assert apply("less", b, b) == 0
    assert apply("select", 0, b, n) == n
    assert spelt(apply("divide", multiply(b, 4), 2)) == "((input0.shape[0] * 4) / 2)"
    shapes = [(7,), (3,)]
    assert size_of(apply("divide", apply("subtract", n, b), 3), shapes) == -1
    assert size_of(apply("remainder", apply("subtract", n, b), 3), shapes) == -1
    assert size_of(apply("divide", b, 0), shapes) == -1
    assert size_of(apply("minimum", b, n), shapes) == 3


def computed_from_size(element: str, *ops: tuple[str, int], how: str = "symbolic") -> Any:
    """``n`` copies of what ops make of ``n``, one after the other, each with a constant on the right."""
    kind, steps, last = f"tensor<{element}>", [], "%n"
    for number, (op, constant) in enumerate(ops):
        steps.append(f"%c{number} = stablehlo.constant dense<{constant}> : {kind}")
        steps.append(f"%{number} = stablehlo.{op} {last}, %c{number} : {kind}")
        last = f"%{number}"
    body = f"""
      {" ".join(steps)}
      %s = stablehlo.reshape %n : ({kind}) -> tensor<1x{element}>
      %r = stablehlo.dynamic_broadcast_in_dim {last}, %s, dims = [] : ({kind}, tensor<1x{element}>) -> tensor<?x{element}>
      return %r : tensor<?x{element}>
    """
    text = function(body, f"%n: {kind}, %x: tensor<?xf32>", f"tensor<?x{element}>")
    return hlojit.compile(text, options={"dynamic_shapes": how})


@pytest.mark.parametrize(
    "element, ops, size, expected",
    [
        ("i32", [("multiply", 100_000), ("divide", 2)], 50_000, 352_516_352),
        ("i32", [("multiply", 100_000), ("divide", 2)], 5, 250_000),
        ("ui32", [("subtract", 5), ("remainder", 1000)], 3, 294),
        ("ui32", [("subtract", 5), ("maximum", 7)], 3, 2**32 - 2),
        ("i8", [("add", 100), ("divide", 3)], 100, -18),
        ("ui8", [("add", 200), ("minimum", 90)], 100, 44),
        ("i64", [("multiply", 2**62), ("divide", 2)], 3, -(2**61)),
        ("i64", [("multiply", 2**62), ("divide", 2)], 1, 2**61),
        ("ui64", [("subtract", 5), ("divide", 2)], 3, 2**63 - 1),
        ("ui32", [("multiply", 3), ("divide", 4)], 7, 5),
        ("ui32", [("multiply", 3), ("remainder", 8)], 7, 5),
    ],
)
def test_what_does_not_fit_its_type_wraps(element: str, ops: Any, size: int, expected: int) -> None:
    executable = computed_from_size(element, *ops)
    assert executable.dynamic_shapes == "symbolic"
    for how in (executable, computed_from_size(element, *ops, how="specialize")):
        result = how(ELEMENTS[element](size), f32(3))
        assert result.shape == (size,)
        assert set(result.tolist()) == {expected}


def test_a_call_whose_sizes_wrap_is_compiled_for_them_alone_and_says_so() -> None:
    executable = computed_from_size("i32", ("multiply", 100_000), ("divide", 2))
    executable(np.int32(5), f32(3))
    assert executable.exceptions == {}
    executable(np.int32(50_000), f32(3))
    ((shapes, why),) = executable.exceptions.items()
    assert shapes == ((), (3,))
    assert why.startswith(
        "the size 5000000000, (input0.flat[0] * 100000), does not fit its type in stablehlo.multiply"
    ), why
    assert "1 exception" in repr(executable)


@pytest.mark.parametrize("terms", [0, 1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("known", [True, False])
def test_sums_of_few_products_are_rounded_one_by_one(terms: int, known: bool) -> None:
    k = terms if known else "?"
    kinds = f"(tensor<?x{k}xf32>, tensor<{k}x?xf32>) -> tensor<?x?xf32>"
    body = f"%0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : {kinds} return %0 : tensor<?x?xf32>"
    executable = hlojit.compile(
        function(body, f"%x: tensor<?x{k}xf32>, %y: tensor<{k}x?xf32>", "tensor<?x?xf32>"), options=SYMBOLIC
    )
    assert executable.dynamic_shapes == "symbolic"
    x, y = f32(50, terms), f32(terms, 50)[:, ::-1]
    plain = np.zeros((50, 50), np.float32)
    for number in range(terms):
        plain += x[:, number, None] * y[number]
    found = executable(x, np.ascontiguousarray(y))
    if terms <= 4:
        np.testing.assert_array_equal(found, plain)
    else:
        np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-5)


def test_what_the_back_end_declines_is_declined_for_all_sizes_too() -> None:
    accuracy = "#stablehlo.result_accuracy<atol = 0.0, rtol = 0.0, ulps = 0, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>"
    text = function(
        f'%0 = "stablehlo.exponential"(%x) {{result_accuracy = {accuracy}}} : (tensor<?xf32>) -> tensor<?xf32> '
        "return %0 : tensor<?xf32>",
        "%x: tensor<?xf32>",
        "tensor<?xf32>",
    )
    executable = hlojit.compile(text, options=SYMBOLIC)
    assert executable.dynamic_shapes == "specialize"
    assert "accuracy" in executable.why
    with pytest.raises(hlojit.UnsupportedError, match="accuracy"):
        executable(f32(3))


NEGATED = function(
    "%0 = stablehlo.negate %x : tensor<?xf32> return %0 : tensor<?xf32>", "%x: tensor<?xf32>", "tensor<?xf32>"
)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("takes", [True, False])
def test_vendors_passes_run_where_they_take_open_sizes(phase: str, takes: bool) -> None:
    seen = []

    @dataclass(frozen=True)
    class Spy(Pass):
        name: ClassVar[str] = "acme-spy"
        phase: ClassVar[str] = "import"
        open_sizes: ClassVar[bool] = takes

        def run(self, module: Any) -> bool:
            seen.append("?" in str(module))
            return False

    with using(SimpleNamespace(__name__="acme", hlojit_passes=hookimpl(lambda: [Spy().in_phase(phase)]))):
        executable = hlojit.compile(NEGATED, options=SYMBOLIC)
        for rows in (2, 3):
            np.testing.assert_array_equal(executable(f32(rows)), -f32(rows))
    assert seen == ([True] if takes else [False, False])
    assert executable.dynamic_shapes == ("symbolic" if takes else "specialize")
    assert takes or "the pass 'acme-spy' (plugin 'acme') takes no programs whose sizes are open" in executable.why


def test_what_vendors_passes_build_is_legalized() -> None:
    @dataclass(frozen=True)
    class ToSine(Pass):
        name: ClassVar[str] = "acme-to-sinh"
        phase: ClassVar[str] = "before-fusion"
        open_sizes: ClassVar[bool] = True

        def run(self, module: Any) -> bool:
            for instruction in module.main.body:
                if instruction.op.name == "stablehlo.negate":
                    made = Builder.in_front_of(instruction).create("chlo.sinh", instruction.operands)
                    instruction.replace_with(made.results)
                    return True
            return False

    with using(SimpleNamespace(__name__="acme", hlojit_passes=hookimpl(lambda: [ToSine()]))):
        executable = hlojit.compile(NEGATED, options=SYMBOLIC)
        assert executable.dynamic_shapes == "symbolic", executable.why
        np.testing.assert_allclose(executable(f32(9)), np.sinh(f32(9)), rtol=1e-6)


UNKNOWN_BEFORE = """
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %u = chlo.broadcast_add %x, %x : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %v = stablehlo.negate %u : tensor<?xf32>
  %w = stablehlo.add %x, %y : tensor<?xf32>
  %z = stablehlo.negate %x : tensor<?xf32>
  return %z : tensor<?xf32>
}"""
IN_A_COMPOSITE = """
func.func private @sum(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.add %x, %y : tensor<?xf32>
  return %0 : tensor<?xf32>
}
func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.composite "acme.sum" %x, %y {decomposition = @sum} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %z = stablehlo.negate %x : tensor<?xf32>
  return %z : tensor<?xf32>
}"""


@pytest.mark.parametrize("text", [UNKNOWN_BEFORE, IN_A_COMPOSITE], ids=["behind what says nothing", "in a composite"])
def test_what_nobody_reads_needs_its_sizes_all_the_same(text: str) -> None:
    for executable in (hlojit.compile(text, options=SYMBOLIC), hlojit.compile(text)):
        np.testing.assert_array_equal(executable(f32(3), f32(3)), -f32(3))
        with pytest.raises(
            hlojit.ArgumentError, match="must be equal for stablehlo.add|add .C1.: lhs and rhs have different types"
        ):
            executable(f32(3), f32(4))
    assert hlojit.compile(text, options=SYMBOLIC).dynamic_shapes == "symbolic"


def test_memory_that_is_read_no_more_is_another_values() -> None:
    """Layers of sums that are taken off again: what they hold at a time does not grow with their number."""

    def layers(count: int) -> str:
        lines, x = [], "%x"
        for n in range(count):
            lines += [
                f"%s{n} = stablehlo.reduce({x} init: %f) applies stablehlo.add across dimensions = [1] : ({M}, tensor<f32>) -> {V}",
                f"%t{n} = stablehlo.reverse {x}, dims = [1] : {M}",
                f"%h{n} = stablehlo.get_dimension_size {x}, dim = 0 : ({M}) -> tensor<i32>",
                f"%g{n} = stablehlo.get_dimension_size {x}, dim = 1 : ({M}) -> tensor<i32>",
                f"%i{n} = stablehlo.reshape %h{n} : (tensor<i32>) -> tensor<1xi32>",
                f"%j{n} = stablehlo.reshape %g{n} : (tensor<i32>) -> tensor<1xi32>",
                f"%k{n} = stablehlo.concatenate %i{n}, %j{n}, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>",
                f"%b{n} = stablehlo.dynamic_broadcast_in_dim %s{n}, %k{n}, dims = [0] : ({V}, tensor<2xi32>) -> {M}",
                f"%a{n} = stablehlo.subtract %t{n}, %b{n} : {M}",
                f"%y{n} = stablehlo.tanh %a{n} : {M}",
            ]
            x = f"%y{n}"
        return function(
            "\n".join(["%f = stablehlo.constant dense<0.0> : tensor<f32>", *lines, f"return {x} : {M}"]), f"%x: {M}", M
        )

    M, V = "tensor<?x?xf32>", "tensor<?xf32>"
    x = np.random.default_rng(0).standard_normal((64, 32)).astype("f4")
    few, many = (agree(layers(count), x, tolerance=1e-4) for count in (4, 12))
    bytes_of = [each.specialized(x).spec.arena_bytes for each in (few, many)]
    assert bytes_of[0] == bytes_of[1] <= 4 * x.nbytes
