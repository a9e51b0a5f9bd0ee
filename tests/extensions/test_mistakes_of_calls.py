"""Mistakes in functions of arrays, kernels and formats, and what is said of those that nobody can refuse."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

from .mistakes import X, clean, nova, one_line

left_as_found = pytest.fixture(autouse=True)(clean)

CALL = """
func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %0 = stablehlo.custom_call @nova.call(%x) {mhlo.backend_config = {slope = 2.0 : f64}} : (tensor<50xf32>) -> tensor<50xf32>
  return %0 : tensor<50xf32>
}
"""
PLAIN = CALL.replace(" {mhlo.backend_config = {slope = 2.0 : f64}}", "")
TARGET = r"custom call target 'nova\.call' \(hlojit-nova 0\.1\.0\): "


def register(**hooks: Any) -> None:
    ext.register(nova(**hooks), package="hlojit-nova", version="0.1.0")


def writes_operand(x: Any, result: Any) -> None:
    x[0] = 5
    result[:] = x


PYTHON: dict[str, tuple[Callable[..., Any], str, str]] = {
    "misspelt keyword": (lambda x, sloep=1.0: x, CALL, r"has no parameter 'slope' for the attribute of the call; it takes sloep by keyword; did you mean 'sloep'\?"),
    "no such keyword": (lambda x: x, CALL, r"has no parameter 'slope' for the attribute of the call; it takes none by keyword"),
    "keyword that nobody gives": (lambda x, *, slope: x, PLAIN, r"cannot be called with 1 array: missing a required argument: 'slope'"),
    "too few parameters": (lambda: X, PLAIN, r"cannot be called with 1 array: too many positional arguments"),
    "too many parameters": (lambda x, y, z: x, PLAIN, r"cannot be called with 1 array: missing a required argument: 'y'"),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("mistake", PYTHON)
def test_python_functions_that_cannot_be_called_so_are_refused_when_they_are_compiled(
    mistake: str, backend: str
) -> None:
    function, text, message = PYTHON[mistake]
    register(custom_calls=[ext.ArrayCall("nova.call", function=function, trust="python")])
    with pytest.raises(hlojit.PluginError, match=rf"{TARGET}.*{message}") as caught:
        hlojit.compile(text, backend=backend)
    assert f"(at {__file__}:" in one_line(caught.value)


def test_python_functions_that_take_whatever_comes() -> None:
    function: Any
    for function in (lambda *x, **k: x[0], lambda x, slope: x * slope, lambda x, /, **k: x, np.negative):
        text = PLAIN if function is np.negative else CALL
        with ext.using(nova(custom_calls=[ext.ArrayCall("nova.call", function=function, trust="python")])):
            hlojit.compile(text)


def leaves(x: Any) -> Any:
    raise GeneratorExit


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("function", "message"), [
    (lambda x: sys.exit(3), r"its function raised SystemExit\(3\) at "),
    (leaves, r"its function raised GeneratorExit\(\) at "),
    (lambda x: None, r"its function returned None, not "),
    (lambda x: (x, x), r"its function returned .*, not "),
])  # fmt: skip
def test_what_python_functions_do_is_told_alike_on_all_back_ends(function: Any, message: str, backend: str) -> None:
    register(custom_calls=[ext.ArrayCall("nova.call", function=function, trust="python")])
    executable = hlojit.compile(PLAIN, backend=backend)
    with pytest.raises(hlojit.HlojitError, match=TARGET + message):
        executable(X)


def test_an_operand_is_not_written() -> None:
    register(custom_calls=[ext.ArrayCall("nova.call", function=writes_operand)])
    with pytest.raises(
        hlojit.PluginError, match=rf"{TARGET}.*it writes to an operand, and operands are read-only.*line"
    ):
        hlojit.compile(PLAIN)


def test_a_name_is_said_once() -> None:
    register(custom_calls=[ext.ArrayCall("nova.call", function=writes_operand, result_types=lambda call: None)])
    line = r"^test_mistakes_of_calls\.py:\d+: hlojit\.\S+, X\) : "
    with pytest.raises(hlojit.HlojitError, match=rf"{line}{TARGET}result_types returned None"):
        hlojit.custom_call("nova.call", X)
    with pytest.raises(hlojit.HlojitError, match=r" : op \'add\': takes 2 operands \(lhs, rhs\), found 1"):
        hlojit.op("add")(X)


# ----------------------------------------------------------------------------------------------------------------- kernels

MULTIPLIES = """
func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %0 = stablehlo.multiply %x, %x : tensor<50xf32>
  %1 = stablehlo.tanh %0 : tensor<50xf32>
  %2 = stablehlo.multiply %1, %x : tensor<50xf32>
  return %2 : tensor<50xf32>
}
"""


def kernel(pattern: Any) -> Any:
    return ext.Kernel("nova.kernel", backend="cpu", pattern=pattern, build=lambda group: ext.Declined("no"))


def test_a_report_says_of_how_many_instructions_match_was_asked() -> None:
    for root, what in (("stablehlo.multiply", "2 instructions of stablehlo.multiply"), ("", "3 instructions")):
        with ext.using(nova(kernels=[kernel(ext.SubgraphPattern(lambda instruction: None, root=root))])):
            said = str(hlojit.kernel_report(MULTIPLIES, backend="cpu"))
            split = str(hlojit.kernel_report(MULTIPLIES, backend=["cpu", "reference"]))
        assert said == f"nova.kernel (plugin 'nova'): match was asked of {what} and took none"
        assert f"{said}; kernels see one segment, not what other devices compute" in split
    with ext.using(nova(kernels=[kernel(ext.SubgraphPattern(lambda instruction: None, root="stablehlo.sine"))])):
        said = str(hlojit.kernel_report(MULTIPLIES, backend="cpu"))
    assert said == "nova.kernel (plugin 'nova'): the program has no subgraphs that end in stablehlo.sine"


def test_numbers_of_tasks_may_be_numpys() -> None:
    assert ext.TaskFunction(lambda x, r, begin, end: None, tasks=np.int64(4)).tasks == 4  # type: ignore[arg-type]
    made = ext.LlvmKernel("define void @kernel()", tasks=np.int32(3), workspace_bytes=np.int64(64))  # type: ignore[arg-type]
    assert made.phases[0].tasks == 3 and made.workspace_bytes == 64 and type(made.workspace_bytes) is int
    for wrong in (2.5, True, np.True_, None, "4", -1):
        with pytest.raises(hlojit.PluginError, match=r"TaskFunction: tasks is .*, no number of tasks"):
            ext.TaskFunction(lambda x, r, begin, end: None, tasks=wrong)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------------------- formats


def test_a_format_without_a_bias_has_ieees() -> None:
    assert ext.FloatFormat("nova6", exponent_bits=3, mantissa_bits=2).bias == 3
    assert ext.FloatFormat("nova6", exponent_bits=3, mantissa_bits=2) == ext.FloatFormat(
        "nova6", exponent_bits=3, mantissa_bits=2, bias=3
    )
    assert ext.FloatFormat("nova6", exponent_bits=3, mantissa_bits=2, bias=0).bias == 0
    assert ext.FloatFormat("nova8", bits=8, decode=float, encode=int).bias == 0
    for field in ("signed", "has_infinity", "has_zero"):
        with pytest.raises(hlojit.HlojitError, match=f"{field}='no' is neither True nor False"):
            ext.FloatFormat("nova6", exponent_bits=3, mantissa_bits=2, **{field: "no"})  # type: ignore[arg-type]
    with pytest.raises(hlojit.HlojitError, match="exponent_bits='3' is no integer"):
        ext.FloatFormat("nova6", exponent_bits="3", mantissa_bits=2)  # type: ignore[arg-type]


BLOCKS: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt names": ({"element": "f4E2M1", "scale": "f8E8MO"}, r"element = 'f4E2M1' is unknown; .*did you mean 'f4E2M1FN'\?; scale = 'f8E8MO' is unknown; .*did you mean 'f8E8M0FNU'"),
    "name and block": ({"element": "f4E2M1", "block": 0}, r"element = 'f4E2M1' .*; block = 0; a block has 1 to"),
    "integers": ({"element": "i8", "axis": "x"}, r"element = 'i8' is no float format; axis = 'x' is no whole number"),
    "None": ({"element": None, "scaling": None}, r"scaling = None; .*; element = None; give a FloatFormat"),
    "a class": ({"scale": ext.FloatFormat}, r"scale = the class FloatFormat; give an instance, FloatFormat\(...\)"),
    "misspelt scaling": ({"scaling": "max", "block": 1.5}, r"scaling = 'max'; it is 'exponent' or 'maximum'; block = 1\.5 is no whole number"),
    "bits": ({"bits": 3, "element": "f8E8M0FNU"}, r"bits = 3, and its elements have 8; .*; the element format f8E8M0FNU has no sign.*; .* has no zero"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BLOCKS)
def test_all_that_is_wrong_with_a_block_format_is_said_at_once(mistake: str) -> None:
    fields, message = BLOCKS[mistake]
    with pytest.raises(hlojit.HlojitError, match=rf"block format 'novab': {message}") as caught:
        ext.BlockFormat("novab", **fields)
    assert len(str(caught.value)) < 500


def saturating(code: Any) -> Callable[[float], int]:
    return lambda x: code if x != x or x > 100 or x < 0 else 2 * int(x)


def test_functions_of_a_format_that_do_not_agree_are_warned_of_once() -> None:
    text = "func.func @main(%x: tensor<50xf32>) -> tensor<50xnova8> {\n%0 = stablehlo.convert %x : (tensor<50xf32>) -> "
    text += "tensor<50xnova8>\nreturn %0 : tensor<50xnova8>\n}"
    for code, is_sound in ((3, False), (200, True)):
        made = ext.FloatFormat("nova8", bits=8, decode=lambda code: code * 0.5, encode=saturating(code))
        register(formats=[made])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            hlojit.compile(text)(X)
            hlojit.compile(text, backend="reference")(X)
        told = [str(each.message) for each in said if issubclass(each.category, hlojit.PluginWarning)]
        assert len(told) == (not is_sound)
        if told:
            assert told[0].startswith(
                "the format 'nova8' (hlojit-nova 0.1.0): encode gives the code 3, decode makes 1.5 of"
            )
            assert "encode of that gives 2, which is 1.0" in told[0] and f"at {__file__}:" in told[0]
        ext.unregister("nova")
