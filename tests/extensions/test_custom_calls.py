"""Custom calls: numba functions inside kernels, expansions, and what is refused."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest


def plugin(*calls: ext.CustomCall) -> Any:
    return SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: list(calls)))


def call(target: str, kind: str = "f32", operands: int = 1, result: str = "") -> str:
    one = f"tensor<1000x{kind}>"
    result = result or one
    names = ", ".join(f"%{letter}" for letter in "xyz"[:operands])
    arguments = ", ".join(f"%{letter}: {one}" for letter in "xyz"[:operands])
    return (
        f"func.func @main({arguments}) -> {result} {{\n%0 = stablehlo.custom_call @{target}({names}) : "
        f"({', '.join([one] * operands)}) -> {result}\nreturn %0 : {result}\n}}"
    )


X = np.linspace(-3, 3, 1000, dtype="f4")


def leaky(site: Any) -> Any:
    slope = site.config["slope"] if site.config else 0.5
    return lambda x: x if x > 0 else slope * x


def leaky_text(*configs: str) -> str:
    lines = ["func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {"]
    for number, config in enumerate(configs):
        operand = f"%{number - 1}" if number else "%x"
        lines.append(
            f"%{number} = stablehlo.custom_call @test.leaky({operand}) {config} : (tensor<1000xf32>) -> tensor<1000xf32>"
        )
    return "\n".join([*lines, f"return %{len(configs) - 1} : tensor<1000xf32>", "}"])


def config(slope: float) -> str:
    return f"{{api_version = 4 : i32, backend_config = {{slope = {slope} : f64}}}}"


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("kind", "tolerance"), [("f32", 1e-6), ("f64", 1e-14), ("bf16", 1e-2), ("f16", 2e-3)])
def test_elementwise_call_computes(backend: str, kind: str, tolerance: float) -> None:
    with ext.using(plugin(ext.ElementwiseCall("test.softplus", function=softplus))):
        executable = hlojit.compile(call("test.softplus", kind), backend=backend)
    x = X.astype(executable.input_types[0].element_type.dtype)
    result = executable(x)
    assert result.dtype == x.dtype
    np.testing.assert_allclose(result.astype("f8"), np.logaddexp(0, x.astype("f8")), rtol=tolerance)


def test_elementwise_call_of_integers_and_three_operands() -> None:
    with ext.using(plugin(ext.ElementwiseCall("test.mix", function=lambda x, y, z: x * y - z if x > y else z ^ 5))):
        executable = hlojit.compile(call("test.mix", "i32", 3))
    x, y, z = np.random.default_rng(0).integers(-50, 50, (3, 1000)).astype("i4")
    np.testing.assert_array_equal(executable(x, y, z), np.where(x > y, x * y - z, z ^ 5))


def test_elementwise_call_is_inlined_into_one_vectorized_loop() -> None:
    from hlojit.cpu.inspection import assembly_of

    text = """
    func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
      %0 = stablehlo.abs %x : tensor<1000xf32>
      %1 = stablehlo.custom_call @test.cube(%0) : (tensor<1000xf32>) -> tensor<1000xf32>
      %2 = stablehlo.negate %1 : tensor<1000xf32>
      return %2 : tensor<1000xf32>
    }
    """
    with ext.using(plugin(ext.ElementwiseCall("test.cube", function=lambda x: x * x * x))):
        executable = hlojit.compile(text, backend="cpu")
    launches = executable.spec.program.launches()
    assert len(launches) == 1
    assembly = assembly_of(launches[0].kernel)
    assert "call" not in assembly and any(register in assembly for register in ("ymm", "zmm", ".4s"))
    np.testing.assert_allclose(executable(X), -(np.abs(X) ** 3), rtol=1e-6)


def raises(x: float) -> float:
    if x < 0:
        raise ValueError("negative")
    return x


def allocates(x: float) -> float:
    return np.ones(3).sum() * x


def unknown_type(x: Any) -> Any:
    return {x: object()}


def index_error(x: float) -> float:
    return (1.0, 2.0)[int(x)]


@pytest.mark.parametrize(("function", "message"), [
    (raises, r"raises \(.*test_custom_calls.py:\d+\) can raise ValueError"), (allocates, "allocates"), (unknown_type, "numba cannot compile"), (lambda x: undefined_name, "numba cannot compile"),  # type: ignore[name-defined]  # noqa: F821
    (lambda x, y: x, "takes 2 arguments, not 1"), (lambda x: [x] * 1000000000, r"returns .*list\(float32\).*a bool, an integer or a float"),
])  # fmt: skip
def test_functions_that_cannot_run_in_a_kernel_are_refused(function: Any, message: str) -> None:
    with (
        ext.using(plugin(ext.ElementwiseCall("test.bad", function=function))),
        pytest.raises(hlojit.PluginError, match=message),
    ):
        hlojit.compile(call("test.bad"))


def test_integer_division_in_a_function_is_numpys_and_cannot_crash() -> None:
    with ext.using(plugin(ext.ElementwiseCall("test.divide", function=lambda x, y: x // y))):
        executable = hlojit.compile(call("test.divide", "i32", 2))
    x, y = np.random.default_rng(3).integers(-9, 10, (2, 1000)).astype("i4")
    x[:3], y[:3] = -(2**31), (-1, 0, 1)
    assert (y == 0).sum() > 10
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(executable(x, y), np.floor_divide(x, y))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_divisions_by_zero_are_numpys_on_all_back_ends(backend: str) -> None:
    x = np.resize(np.int32([-7, 0, 7]), 1000)
    for kind, function, expected in (
        ("i32", lambda x, y: x // y, np.int32([0, 0, 0])),
        ("i32", lambda x, y: x % y, np.int32([0, 0, 0])),
        ("f32", lambda x, y: x / y, np.float32([-np.inf, np.nan, np.inf])),
    ):
        with ext.using(plugin(ext.ElementwiseCall("test.divide", function=function))):
            executable = hlojit.compile(call("test.divide", kind, 2), backend=backend)
        dtype = f"{kind[0]}4"
        np.testing.assert_array_equal(executable(x.astype(dtype), np.zeros(1000, dtype)), np.resize(expected, 1000))


@pytest.mark.parametrize(
    ("expand", "message"),
    [
        (
            lambda b, i: i.operands[0],
            r"returned a Value, not a list of one: return \[value\] \(at \S+:\d+\)\n  at .*3:",
        ),
        (
            lambda b, i: [],
            r"returned \[\]; expected one value for each result, \[tensor<1000xf32>\] \(at \S+:\d+\)\n  at .*3:",
        ),
        (
            lambda b, i: None,
            r"returned None; expected one value for each result, \[tensor<1000xf32>\] \(at \S+:\d+\)\n  at .*3:",
        ),
        (
            lambda b, i: [3],
            r"returned \[3\], not a list of the values that stand for its results \(at \S+:\d+\)\n  at .*3:",
        ),
        (
            lambda b, i: [*i.operands, *i.operands],
            r"returned \[tensor<1000xf32>, tensor<1000xf32>\]; .* \(at \S+:\d+\)\n  at .*3:",
        ),
    ],
)
def test_what_an_expansion_may_not_return(expand: Any, message: str) -> None:
    with (
        ext.using(plugin(ext.ExpansionCall("test.bad", expand=expand))),
        pytest.raises(hlojit.PluginError, match=f"'test.bad': the expansion {message}"),
    ):
        hlojit.compile("\n" + call("test.bad"))


def test_a_factory_that_fails_is_named_with_types_and_configuration() -> None:
    def factory(site: Any) -> Any:
        raise KeyError("slope")

    with (
        ext.using(plugin(ext.ElementwiseCall("test.bad", factory=factory))),
        pytest.raises(hlojit.PluginError, match=r"the factory failed for \(f32\) -> f32, config None: KeyError"),
    ):
        hlojit.compile(call("test.bad"))


def test_wrong_shapes_are_refused() -> None:
    with (
        ext.using(plugin(ext.ElementwiseCall("test.f", function=softplus))),
        pytest.raises(hlojit.PluginError, match=r"'test\.f' is elementwise"),
    ):
        hlojit.compile(call("test.f", result="tensor<999xf32>"))


def test_unknown_target_names_near_ones() -> None:
    with (
        ext.using(plugin(ext.ElementwiseCall("test.softplus", function=softplus))),
        pytest.raises(hlojit.UnsupportedError, match=r"test\.softplus2.*did you mean 'test\.softplus'"),
    ):
        hlojit.compile(call("test.softplus2"))


def test_expansion_builds_other_ops() -> None:
    def expand(builder: Any, instruction: Any) -> Any:
        (x,) = instruction.operands
        return [builder.multiply(builder.add(x, x), x)]

    with ext.using(plugin(ext.ExpansionCall("test.expand", expand=expand))):
        for backend in ("cpu", "reference"):
            np.testing.assert_array_equal(hlojit.compile(call("test.expand"), backend=backend)(X), (X + X) * X)


@pytest.mark.parametrize("expand", [
    lambda builder, instruction: [], lambda builder, instruction: instruction.operands[0], lambda builder, instruction: [1.0], lambda builder, instruction: None,
    lambda builder, instruction: [builder.reshape(instruction.operands[0], (10, 100))], lambda builder, instruction: 1 // 0, lambda: [],
    lambda builder, instruction: [builder.add(instruction.operands[0])],
])  # fmt: skip
def test_wrong_expansions_are_plugin_errors(expand: Any) -> None:
    with (
        ext.using(plugin(ext.ExpansionCall("test.expand", expand=expand))),
        pytest.raises(hlojit.PluginError, match=r"test\.expand"),
    ):
        hlojit.compile(call("test.expand"))


def times(factor: float) -> Any:
    def expand(builder: Any, instruction: Any) -> Any:
        (x,) = instruction.operands
        return [builder.multiply(x, builder.constant(factor, x.type))]

    return expand


@pytest.mark.parametrize(
    ("target", "factor"),
    [("family_f", 2), ("family_", 2), ("family_of_f", 3), ("family_of_all", 5), ("family_of_all2", 3)],
)
def test_a_target_with_a_star_is_for_all_targets_of_its_form_that_nobody_names(target: str, factor: float) -> None:
    general, longer = (ext.ExpansionCall(form, expand=times(n)) for form, n in (("family_*", 2), ("fam*_of_*", 3)))
    exact = SimpleNamespace(
        __name__="exact",
        hlojit_custom_calls=ext.hookimpl(lambda: [ext.ExpansionCall("family_of_all", expand=times(5))]),
    )
    with ext.using(plugin(general, longer), exact):
        np.testing.assert_array_equal(hlojit.compile(call(target))(X), X * np.float32(factor))
        for other in ("familiy", "a_family_f", "family"):
            with pytest.raises(hlojit.UnsupportedError, match=f"unknown custom call target '{other}'"):
                hlojit.compile(call(other))


def test_an_expansion_may_refuse_a_call() -> None:
    def expand(builder: Any, instruction: Any) -> Any:
        raise hlojit.UnsupportedError("custom_call @test.odd", "", "its operand is odd", instruction.location)

    with (
        ext.using(plugin(ext.ExpansionCall("test.odd", expand=expand))),
        pytest.raises(hlojit.UnsupportedError, match=r"(?s)test\.odd.*its operand is odd.*<string>:3"),
    ):
        hlojit.compile("\n" + call("test.odd"))


def test_calls_of_lapack_are_the_cpu_plugins() -> None:
    from hlojit.extensions import registry

    families = [each for each in registry().load().records["cpu"].custom_calls if each.is_family]
    assert registry().custom_call("lapack_dpotrf_ffi") in families
    assert registry().custom_call("tridiagonal_solve_perturbed_ffi") in families


def test_calls_inside_loops_and_functions_are_bound() -> None:
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %c, %a = %x) : tensor<i32>, tensor<4xf32>
      cond {
        %n = stablehlo.constant dense<3> : tensor<i32>
        %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %t : tensor<i1>
      } do {
        %o = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %o : tensor<i32>
        %b = func.call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>
        stablehlo.return %j, %b : tensor<i32>, tensor<4xf32>
      }
      return %r#1 : tensor<4xf32>
    }
    func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @test.twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """
    with ext.using(plugin(ext.ElementwiseCall("test.twice", function=lambda x: x + x))):
        np.testing.assert_array_equal(hlojit.compile(text)(np.ones(4, "f4")), 8)


def test_one_function_in_several_kernels_of_a_program() -> None:
    text = """
    func.func @main(%x: tensor<200xf32>, %y: tensor<300xf32>) -> (tensor<200xf32>, tensor<300xf32>) {
      %0 = stablehlo.custom_call @test.softplus(%x) : (tensor<200xf32>) -> tensor<200xf32>
      %1 = stablehlo.custom_call @test.softplus(%y) : (tensor<300xf32>) -> tensor<300xf32>
      return %0, %1 : tensor<200xf32>, tensor<300xf32>
    }
    """
    x, y = X[:200], X[:300]
    with ext.using(plugin(ext.ElementwiseCall("test.softplus", function=softplus))):
        for ours, theirs in zip(hlojit.compile(text)(x, y), (x, y)):
            np.testing.assert_allclose(ours, np.logaddexp(0, theirs.astype("f8")), rtol=1e-6)


# ---------------------------------------------------------------------------------------------------------------- records


def bound(text: str) -> Any:
    from hlojit.compiler import lower

    return lower(hlojit.parse(text), ext.registry().backend("reference"), ext.CompileOptions())


@pytest.mark.parametrize("attributes", ["", config(0.25)])
def test_a_bound_call_is_printed_read_cloned_and_interpreted(attributes: str) -> None:
    from hlojit.ir import evaluate

    slope = 0.25 if attributes else 0.5
    expected = np.where(X > 0, X, np.float32(slope) * X)
    with ext.using(plugin(ext.ElementwiseCall("test.leaky", factory=leaky))):
        module = bound(leaky_text(attributes))
        printed = str(module)
        assert '"hlojit.call.test.leaky"(%x)' in printed and ("slope" in printed) == bool(attributes)
        again = hlojit.parse(printed)
        hlojit.verify(again)
        assert str(again) == printed
        for each in (module, again, again.clone()):
            np.testing.assert_array_equal(evaluate(each, X)[0], expected)
        np.testing.assert_array_equal(hlojit.compile(again)(X), expected)
    with pytest.raises(hlojit.ParseError, match=r"hlojit\.call\.test\.leaky"):
        hlojit.parse(printed)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_result_has_the_declared_type(backend: str) -> None:
    text = """
    func.func @main(%p: tensor<4xi1>, %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi1>, tensor<4xi8>) {
      %0 = stablehlo.custom_call @test.pick(%p, %x) : (tensor<4xi1>, tensor<4xf32>) -> tensor<4xf32>
      %1 = stablehlo.custom_call @test.positive(%x) : (tensor<4xf32>) -> tensor<4xi1>
      %2 = stablehlo.custom_call @test.large(%p) : (tensor<4xi1>) -> tensor<4xi8>
      return %0, %1, %2 : tensor<4xf32>, tensor<4xi1>, tensor<4xi8>
    }
    """
    calls = [
        ext.ElementwiseCall("test.pick", function=lambda p, x: x if p else -x),
        ext.ElementwiseCall("test.positive", function=lambda x: x > 0),
        ext.ElementwiseCall("test.large", function=lambda p: 300 if p else 7),
    ]
    p, x = np.array([True, False, True, False]), np.array([1.5, 2.5, -3.5, -4.5], "f4")
    with ext.using(plugin(*calls)):
        picked, positive, large = hlojit.compile(text, backend=backend)(p, x)
    np.testing.assert_array_equal(picked, np.array([1.5, -2.5, -3.5, 4.5], "f4"))
    np.testing.assert_array_equal(positive, [True, True, False, False])
    np.testing.assert_array_equal(large, np.array([44, 7, 44, 7], "i1"))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_map_with_a_call(backend: str) -> None:
    text = """
    func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
      %0 = "stablehlo.map"(%x) <{dimensions = array<i64: 0>}> ({
      ^bb0(%a: tensor<f32>):
        %1 = stablehlo.custom_call @test.leaky(%a) {api_version = 4 : i32, backend_config = {slope = 0.25 : f64}} : (tensor<f32>) -> tensor<f32>
        %2 = stablehlo.add %1, %a : tensor<f32>
        stablehlo.return %2 : tensor<f32>
      }) : (tensor<1000xf32>) -> tensor<1000xf32>
      return %0 : tensor<1000xf32>
    }
    """
    with ext.using(plugin(ext.ElementwiseCall("test.leaky", factory=leaky))):
        expected = np.where(X > 0, X, np.float32(0.25) * X) + X
        np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(X), expected)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"])
def test_integers_reach_the_function_with_their_sign(kind: str, backend: str) -> None:
    with ext.using(plugin(ext.ElementwiseCall("test.signs", function=lambda x, y: (x >> 1) if x > y else (y >> 2)))):
        executable = hlojit.compile(call("test.signs", kind, 2), backend=backend)
    dtype = np.dtype(kind.replace("ui", "uint") if kind[0] == "u" else kind.replace("i", "int"))
    limits = np.iinfo(dtype)
    x = np.resize(np.array([limits.max, limits.min, limits.max - 3, 0, 1], dtype), 1000)
    y = np.resize(np.array([1, limits.max, 7], dtype), 1000)
    expected = np.where(x > y, x >> dtype.type(1), y >> dtype.type(2))
    np.testing.assert_array_equal(executable(x, y), expected)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_division_of_an_unsigned_byte(backend: str) -> None:
    with ext.using(plugin(ext.ElementwiseCall("test.half", function=lambda x: x // 2))):
        executable = hlojit.compile(call("test.half", "ui8"), backend=backend)
    x = np.resize(np.arange(256, dtype="u1"), 1000)
    np.testing.assert_array_equal(executable(x), x // 2)


CONSTANT_CALLS = {
    "no operands": ("() -> tensor<4xf32>", "", lambda: 3.5, 3.5),
    "constants": ("(tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>", "%c, %c", lambda x, y: x * y, 4.0),
    "a logarithm": ("(tensor<4xf32>) -> tensor<4xf32>", "%c", lambda x: math.log(x + 3.0), 0.0),
}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", CONSTANT_CALLS)
def test_calls_of_constants_or_of_nothing(name: str, backend: str) -> None:
    types, operands, function, expected = CONSTANT_CALLS[name]
    text = f"""func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {{
      %c = stablehlo.constant dense<-2.0> : tensor<4xf32>
      %0 = stablehlo.custom_call @test.f({operands}) : {types}
      %1 = stablehlo.add %0, %x : tensor<4xf32>
      return %0, %1 : tensor<4xf32>, tensor<4xf32>
    }}"""
    with ext.using(plugin(ext.ElementwiseCall("test.f", function=function))):
        alone, added = hlojit.compile(text, backend=backend)(np.ones(4, "f4"))
    np.testing.assert_array_equal(alone, np.full(4, expected, "f4"))
    np.testing.assert_array_equal(added, np.full(4, expected + 1, "f4"))


def test_what_cannot_be_folded_is_computed_at_run_time() -> None:
    """Python's logarithm of a negative number raises, the compiled one is NaN."""
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c = stablehlo.constant dense<-2.0> : tensor<4xf32>
      %0 = stablehlo.custom_call @test.f(%c) : (tensor<4xf32>) -> tensor<4xf32>
      %1 = stablehlo.add %0, %x : tensor<4xf32>
      return %1 : tensor<4xf32>
    }"""
    with ext.using(plugin(ext.ElementwiseCall("test.f", function=lambda x: math.log(x)))):
        assert np.isnan(hlojit.compile(text)(np.ones(4, "f4"))).all()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("kind", ["ui8", "ui16", "ui32"])
def test_unsigned_elements_are_python_integers(kind: str, backend: str) -> None:
    """In numba a negated or subtracted unsigned integer is unsigned."""
    with ext.using(plugin(ext.ElementwiseCall("test.f", function=lambda x, y: -abs(x) / 4 + (x - y)))):
        executable = hlojit.compile(call("test.f", kind, 2, "tensor<1000xf64>"), backend=backend)
    random, dtype = np.random.default_rng(0), np.dtype(kind.replace("ui", "uint"))
    x, y = random.integers(0, np.iinfo(dtype).max, (2, 1000), dtype, endpoint=True)
    np.testing.assert_array_equal(executable(x, y), -x.astype("f8") / 4 + (x.astype("i8") - y.astype("i8")))


def test_an_expansion_that_returns_the_call_is_refused_by_name() -> None:
    itself = ext.ExpansionCall("test.f", expand=lambda builder, instruction: list(instruction.results))
    message = r"'test\.f': the expansion returned the results of the instruction that it stands for(.|\n)*at "
    with ext.using(plugin(itself)), pytest.raises(hlojit.PluginError, match=message):
        hlojit.compile(call("test.f"))


def test_a_star_is_refused_in_a_form_that_has_no_families() -> None:
    starred = ext.ElementwiseCall("test.*", function=lambda x: x)
    with pytest.raises(hlojit.PluginError, match=r"test\.\*.*an ExpansionCall only"), ext.using(plugin(starred)):
        pass
