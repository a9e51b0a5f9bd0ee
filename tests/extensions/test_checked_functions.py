"""Scalar functions of plugins are checked: they read no memory but their own, and what goes wrong in them is an error."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numba
import numpy as np
import pytest

Array = np.ndarray[Any, Any]
TABLE = np.arange(256, dtype="f4") * 0.5
MATRIX = np.arange(12.0).reshape(3, 4)
WIDE = np.arange(200_000.0)


def plugin(function: Callable[..., Any], target: str = "test.f") -> Any:
    calls = [ext.ElementwiseCall(target, function=function)]
    return SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: calls))


def unary(kind: str = "i32", result: str = "f32", shape: str = "1000") -> str:
    return (
        f"func.func @main(%x: tensor<{shape}x{kind}>) -> tensor<{shape}x{result}> {{\n"
        f"%0 = stablehlo.custom_call @test.f(%x) : (tensor<{shape}x{kind}>) -> tensor<{shape}x{result}>\n"
        f"return %0 : tensor<{shape}x{result}>\n}}"
    )


def compiled(function: Callable[..., Any], text: str | None = None) -> Any:
    with ext.using(plugin(function)):
        return hlojit.compile(text or unary())


def look_up(x: int) -> float:
    return TABLE[x]


# ------------------------------------------------------------------------------------------------------------- indices


@pytest.mark.parametrize("index", [256, -257, 10**9, -(10**9), 2**31 - 1, -(2**31)])
def test_index_out_of_range_is_a_named_error(index: int) -> None:
    executable = compiled(look_up)
    x = np.zeros(1000, "i4")
    x[777] = index
    with pytest.raises(
        hlojit.ExecutionError,
        match=r"main(?: on cuda:0)?: custom call target 'test\.f': an index is out of range in look_up",
    ):
        executable(x)
    assert executable(x * 0).tolist() == [0.0] * 1000, "the next call begins anew"


@pytest.mark.parametrize("cached", [False, True])
def test_errors_say_where_the_function_is_written(cached: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files with the same function share its kernel, and each is named by its own errors."""
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path) if cached else "off")
    executables = {}
    for path in ("/first/acme.py", "/second/acme.py"):
        scope: dict[str, Any] = {"TABLE": TABLE, "__name__": "acme"}
        exec(compile("\n\ndef find(x): return TABLE[x]", path, "exec"), scope)
        executables[path] = compiled(scope["find"])
    kernels = {executable.spec.program.launches()[0].kernel.ir for executable in executables.values()}
    assert len(kernels) == 1 and "acme.py" not in kernels.pop()
    for path, executable in executables.items():
        with pytest.raises(hlojit.ExecutionError, match=rf"'test\.f': an index is out of range in find \({path}:3\)$"):
            executable(np.full(1000, 999, "i4"))


def test_errors_of_what_a_factory_made_and_of_codecs_say_where() -> None:
    calls = [ext.ElementwiseCall("test.f", factory=lambda site: look_up)]
    made = SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: calls))
    with ext.using(made), pytest.raises(hlojit.ExecutionError, match=r"\(made by .*test_checked_functions\.py:\d+\)$"):
        hlojit.compile(unary())(np.full(1000, 999, "i4"))


def test_negative_indices_count_from_the_end() -> None:
    x = np.resize(np.arange(-256, 256, dtype="i4"), 1000)
    np.testing.assert_array_equal(compiled(look_up)(x), TABLE[x])


@numba.njit
def unchecked_look_up(x: int) -> float:
    return TABLE[x]


def through_helper(x: int) -> float:
    return unchecked_look_up(x) + unchecked_look_up(x // 2)


def captured() -> Callable[[int], float]:
    helper, table = unchecked_look_up, MATRIX
    return lambda x: helper(x) + table[x % 3, 0]


INDEXING: dict[str, Callable[[int], Any]] = {
    "table": look_up,
    "two dimensions": lambda x: MATRIX[1, x],
    "rows": lambda x: MATRIX[x][1],
    "column of a view": lambda x: MATRIX.T[x, 2],
    "slice": lambda x: TABLE[3:][x],
    "tuple": lambda x: (1.0, 2.0, 3.0)[x],
    "jitted helper": through_helper,
    "captured helper": captured(),
    "reshaped": lambda x: TABLE.reshape(16, 16)[x, 1],
    "raveled": lambda x: MATRIX.ravel()[x],
    "flat": lambda x: MATRIX.flat[x],
    "item": lambda x: TABLE.item(x),
    "take": lambda x: np.take(TABLE, x),
    "view": lambda x: TABLE.view(np.int32)[x],
    "wide": lambda x: WIDE[x],
    "sum of a slice": lambda x: TABLE[x : x + 2].sum(),
    "minimum": lambda x: min(TABLE[x], TABLE[x + 1]),
    "as strided": lambda x: np.lib.stride_tricks.as_strided(TABLE, (10**9,), (4,))[x],
    "diagonal": lambda x: np.diag(MATRIX)[x],
    "real": lambda x: TABLE.real[x],
    "enumerated": lambda x: next(iter(TABLE[x:])),
    "searched": lambda x: np.searchsorted(TABLE, x),
    "broadcast": lambda x: np.broadcast_to(TABLE, (4, 256))[x, x],
    "computed": lambda x: TABLE[x * x + x],
    "expanded": lambda x: np.expand_dims(TABLE, 0)[0, x],
}


@pytest.mark.parametrize("name", INDEXING)
def test_no_function_reads_beyond_its_arrays(name: str) -> None:
    """Each is refused, fails with an error, or reads nothing there."""
    try:
        executable = compiled(INDEXING[name])
    except hlojit.PluginError as error:
        assert "test.f" in str(error)
        return
    for index in (10**9, -(10**9), 2**30 + 12345):
        try:
            executable(np.full(1000, index, "i4"))
        except hlojit.ExecutionError as error:
            assert "out of range" in str(error)


def test_random_indices_read_what_numpy_reads() -> None:
    random = np.random.default_rng(0)
    for number in range(12):
        shape = tuple(random.integers(1, 6, int(random.integers(1, 4))).tolist())
        table = random.random(shape)
        factors, offsets = random.integers(-2, 3, len(shape)).tolist(), random.integers(-3, 4, len(shape)).tolist()
        indices = ", ".join(f"x * {a} + {b}" for a, b in zip(factors, offsets))
        scope = {"table": table}
        function = eval(f"lambda x: table[{indices}]", scope)
        executable = compiled(function, unary("i32", "f64", "8"))
        for x in (-2, -1, 0, 1, 2, 3):
            try:
                expected = float(function(x))
            except IndexError:
                with pytest.raises(hlojit.ExecutionError, match="out of range"):
                    executable(np.full(8, x, "i4"))
            else:
                assert executable(np.full(8, x, "i4")).tolist() == [expected] * 8, (number, x)


# --------------------------------------------------------------------- elements that do not exist cause no errors

ONE_TO_N = "%x: tensor<37x19xi32>"
KERNELS: dict[str, tuple[str, str, Callable[[Array], Array]]] = {
    "transpose": ("%r = stablehlo.transpose %f, dims = [1, 0] : (tensor<37x19xf32>) -> tensor<19x37xf32>", "19x37", lambda f: f.T),
    "pad": (
        "%r = stablehlo.pad %f, %c, low = [1, 3], high = [2, 1], interior = [0, 1] : (tensor<37x19xf32>, tensor<f32>) -> tensor<40x41xf32>",
        "40x41", lambda f: np.pad(np.insert(f, range(1, 19), 7, 1), ((1, 2), (3, 1)), constant_values=7)),
    "concatenate": (
        "%r = stablehlo.concatenate %f, %f, dim = 1 : (tensor<37x19xf32>, tensor<37x19xf32>) -> tensor<37x38xf32>",
        "37x38", lambda f: np.concatenate([f, f], 1)),
    "row sums": ("%r = stablehlo.reduce(%f init: %c) applies stablehlo.add across dimensions = [1] : (tensor<37x19xf32>, tensor<f32>) -> tensor<37xf32>",
                 "37", lambda f: 7 + f.sum(1)),
    "column sums": ("%r = stablehlo.reduce(%f init: %c) applies stablehlo.add across dimensions = [0] : (tensor<37x19xf32>, tensor<f32>) -> tensor<19xf32>",
                    "19", lambda f: 7 + f.sum(0)),
    "rows minus their maxima": (
        "%m = stablehlo.reduce(%f init: %c) applies stablehlo.maximum across dimensions = [1] : (tensor<37x19xf32>, tensor<f32>) -> tensor<37xf32>\n"
        "%b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<37xf32>) -> tensor<37x19xf32>\n"
        "%r = stablehlo.subtract %f, %b : tensor<37x19xf32>", "37x19", lambda f: f - np.maximum(f.max(1), 7)[:, None]),
    "reverse": ("%r = stablehlo.reverse %f, dims = [0, 1] : tensor<37x19xf32>", "37x19", lambda f: f[::-1, ::-1]),
    "slice": ("%r = stablehlo.slice %f [1:36:3, 2:19:2] : (tensor<37x19xf32>) -> tensor<12x9xf32>", "12x9", lambda f: f[1:36:3, 2:19:2]),
    "window": (
        '%r = "stablehlo.reduce_window"(%f, %c) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%s = stablehlo.add %a, %b : tensor<f32>\n'
        "stablehlo.return %s : tensor<f32>\n}) {window_dimensions = array<i64: 1, 2>, padding = dense<[[0, 0], [1, 0]]> : tensor<2x2xi64>}"
        " : (tensor<37x19xf32>, tensor<f32>) -> tensor<37x19xf32>", "37x19",
        lambda f: 7 + f + np.concatenate([np.full((37, 1), 7), f[:, :-1]], 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_elements_that_do_not_exist_cause_no_errors(name: str) -> None:
    """Lanes and paddings that take no part would look up an element that the table has not."""
    body, shape, oracle = KERNELS[name]
    text = (
        f"func.func @main({ONE_TO_N}) -> tensor<{shape}xf32> {{\n%c = stablehlo.constant dense<7.0> : tensor<f32>\n"
        "%f = stablehlo.custom_call @test.f(%x) : (tensor<37x19xi32>) -> tensor<37x19xf32>\n"
        f"{body}\nreturn %r : tensor<{shape}xf32>\n}}"
    )
    executable = compiled(lambda x: TABLE[x - 300], text)
    x = (np.arange(37 * 19, dtype="i4") % 200 + 300).reshape(37, 19)
    np.testing.assert_allclose(executable(x), oracle(TABLE[x - 300]), rtol=1e-6)
    x[36, 18] = 0
    with pytest.raises(hlojit.ExecutionError, match="out of range"):
        executable(x) if name != "slice" else compiled(lambda x: TABLE[x - 300])(np.zeros(1000, "i4"))


# ---------------------------------------------------------------------------------------------------------- what is refused

libm = ctypes.CDLL(ctypes.util.find_library("m"))
libm.tgamma.restype, libm.tgamma.argtypes = ctypes.c_double, [ctypes.c_double]
tgamma = libm.tgamma
LARGE = np.zeros(300_000)
pointer = TABLE.ctypes.data


@numba.extending.intrinsic
def address_as_void_pointer(context: Any, source: Any) -> Any:
    def code(compiler: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], numba.core.cgutils.voidptr_t)

    return numba.types.voidptr(source), code


@numba.njit
def factorial(x: int) -> int:
    return 1 if x <= 1 else x * factorial(x - 1)


def asserts(x: int) -> float:
    if x > 5:
        raise AssertionError("too large")
    return x * 1.0


REFUSED: dict[str, tuple[Callable[[int], Any], str]] = {
    "ctypes": (lambda x: tgamma(x), "C function"),
    "carray": (lambda x: numba.carray(address_as_void_pointer(pointer), (10,), np.float32)[x], "uses"),
    "as_strided": (
        lambda x: np.lib.stride_tricks.as_strided(TABLE, (10**9,), (4,))[x],
        "as_strided|numba cannot compile",
    ),
    "intrinsic": (lambda x: 1.0 if address_as_void_pointer(x) else 2.0, "uses|numba cannot compile"),
    "large array": (lambda x: LARGE[x], "more than 1 MB"),
    "recursion": (lambda x: factorial(x), "calls itself"),
    "assertion": (asserts, "can raise AssertionError"),
    "allocation": (lambda x: np.ones(x).sum(), "allocates memory"),
    "printing": (lambda x: print(x) or 1.0, "calls|allocates|can raise"),
    "flat": (lambda x: MATRIX.flat[x], "flat"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_touch_other_memory_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(hlojit.PluginError, match=f"custom call target 'test.f': .*({message})"):
        compiled(function)


def test_ui64_mixed_with_signed_numbers_is_refused_in_divisions() -> None:
    text = unary("ui64", "ui64")
    with pytest.raises(hlojit.PluginError, match=r"write np\.uint64\(2\)"):
        compiled(lambda x: x // 2, text)
    with pytest.raises(hlojit.PluginError, match=r"write -np\.int64\(x\)"):
        compiled(lambda x: math.exp(-x), unary("ui64", "f64"))
    x = np.resize(np.array([2**64 - 1, 2**63 + 5, 7], "u8"), 1000)
    np.testing.assert_array_equal(compiled(lambda x: x // np.uint64(2), text)(x), x // np.uint64(2))
    np.testing.assert_array_equal(compiled(lambda x: x * 31 + 7, text)(x), x * np.uint64(31) + np.uint64(7))


def test_division_by_zero_is_defined_or_reported() -> None:
    powers = compiled(lambda x: 2.0 ** (x - 64))
    np.testing.assert_array_equal(
        powers(np.resize(np.arange(128, dtype="i4"), 1000))[:128], 2.0 ** np.arange(-64.0, 64)
    )
    executable = compiled(lambda x: math.pow(x, -1))
    with pytest.raises(hlojit.ExecutionError, match="a division by zero in"):
        executable(np.zeros(1000, "i4"))
    assert executable(np.full(1000, 4, "i4"))[0] == 0.25
    for kind in ("i8", "i16", "i32", "i64"):
        divide = compiled(lambda x: x // -1 + x % -1 + (7 // x), unary(kind, kind))
        lowest = np.iinfo(kind.replace("i", "int")).min
        assert divide(np.full(1000, lowest, f"i{int(kind[1:]) // 8}")).shape == (1000,)
        assert divide(np.zeros(1000, f"i{int(kind[1:]) // 8}")).shape == (1000,)


# ------------------------------------------------------------------------------------------------------------------- speed


def test_a_lookup_is_part_of_the_vectorized_loop() -> None:
    from hlojit.cpu.inspection import assembly_of

    executable = compiled(look_up)
    (launch,) = executable.spec.program.launches()
    assembly = assembly_of(launch.kernel)
    if "gather" not in assembly:
        pytest.skip("the processor has no gathers")
    assert assembly.count("hlojit_fail") <= 2, "reported once, at the end of the kernel"


# -------------------------------------------------------------------------------------------------------------------- math


def math_programs() -> dict[str, tuple[Callable[..., Any], str]]:
    """A call of every function of ``math``, and the kind of its arguments."""
    programs = {}
    for name in sorted(vars(math)):
        function = getattr(math, name)
        if not callable(function) or name.startswith("_"):
            continue
        scope: dict[str, Any] = {"math": math}
        part = "[0]" if name in ("frexp", "modf") else ""
        count = {"atan2": 2, "copysign": 2, "fmod": 2, "gcd": 2, "hypot": 2, "isclose": 2, "ldexp": 2, "nextafter": 2,
                 "pow": 2, "remainder": 2, "comb": 2, "lcm": 2, "perm": 2, "fma": 3}.get(name, 1)  # fmt: skip
        integers = name in ("gcd", "lcm", "isqrt", "factorial", "comb", "perm")
        second = "int(y)" if name == "ldexp" else "y"
        arguments = ", ".join(["x", second, "z"][:count])
        programs[name] = (
            eval(f"lambda {', '.join('xyz'[:count])}: math.{name}({arguments}){part}", scope),
            "i64" if integers else "f64",
        )
    return programs


MATH = math_programs()


@pytest.mark.parametrize("name", MATH)
def test_functions_of_math_work_or_are_refused_by_name(name: str) -> None:
    function, kind = MATH[name]
    count = function.__code__.co_argcount
    one = f"tensor<8x{kind}>"
    names = ", ".join("%" + letter for letter in "xyz"[:count])
    text = (
        f"func.func @main({', '.join(f'%{letter}: {one}' for letter in 'xyz'[:count])}) -> {one} {{\n"
        f"%0 = stablehlo.custom_call @test.f({names}) : ({', '.join([one] * count)}) -> {one}\nreturn %0 : {one}\n}}"
    )
    try:
        executable = compiled(function, text)
    except hlojit.PluginError as error:
        assert name in str(error) and "test.f" in str(error)
        return
    values = (
        [1.25, 1.5, 3.0, 2.5, 1.0, 1.75, 5.0, 2.0] if name == "acosh" else [0.25, 0.5, 0.75, 0.125, 0.9, 0.3, 0.6, 0.1]
    )
    x = np.array([6, 4, 9, 12, 7, 8, 3, 2], "i8") if kind == "i64" else np.array(values)
    y = x[::-1].copy() + (0 if kind == "i64" else 1)
    arguments = [x, y, x][:count]
    result = executable(*arguments)
    with np.errstate(all="ignore"):
        expected = [float(function(*values)) for values in zip(*(each.tolist() for each in arguments))]
    np.testing.assert_allclose(result.astype("f8"), expected, rtol=1e-14)


WORKING = ("acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh degrees erf erfc exp expm1 fabs floor frexp gamma "
           "gcd hypot isfinite isinf isnan ldexp lgamma log log10 log1p log2 nextafter pow radians sin sinh sqrt tan tanh "
           "trunc").split()  # fmt: skip


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.parametrize("kind", ["f32"])
def test_functions_that_numba_has_work(name: str, kind: str) -> None:
    function, _ = MATH[name]
    count = function.__code__.co_argcount
    one = f"tensor<8x{kind}>"
    names = ", ".join("%" + letter for letter in "xyz"[:count])
    text = (
        f"func.func @main({', '.join(f'%{letter}: {one}' for letter in 'xyz'[:count])}) -> {one} {{\n"
        f"%0 = stablehlo.custom_call @test.f({names}) : ({', '.join([one] * count)}) -> {one}\nreturn %0 : {one}\n}}"
    )
    executable = compiled(function, text)
    dtype = executable.input_types[0].element_type.dtype
    assert executable(*[np.ones(8, dtype)] * count).shape == (8,)


def test_python_version_has_the_functions() -> None:
    assert sys.version_info >= (3, 10) and set(WORKING) <= set(MATH)


@pytest.mark.parametrize("function", [lambda x: MATRIX.ctypes.data, lambda x: x + (WIDE.ctypes.data & 7)])
def test_addresses_of_arrays_are_refused_by_name(function: Callable[..., Any]) -> None:
    with pytest.raises(hlojit.HlojitError, match=r"uses \.ctypes, the address of an array"):
        compiled(function, unary("i64", "i64"))
