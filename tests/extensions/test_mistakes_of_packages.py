"""Mistakes of installed packages, and of cells that are run again: said once, with names, and nothing else suffers."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

from .mistakes import clean
from .processes import install, run

left_as_found = pytest.fixture(autouse=True)(clean)

GOOD = """
import hlojit.extensions as ext

@ext.hookimpl
def hlojit_custom_calls():
    return [ext.ElementwiseCall("NAME.twice", function=lambda x: x * 2)]
"""
BROKEN = {
    "broken_import": ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
    "broken_syntax": ("def f(:", "SyntaxError: invalid syntax"),
    "broken_exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "broken_hook": (GOOD.replace("hlojit_custom_calls", "hlojit_custom_call"), "did you mean 'hlojit_custom_calls'?"),
    "broken_empty": ("", "has no hooks: none of its functions is marked @hookimpl"),
    "broken_api": (GOOD + "hlojit_api = (1, 99)", "is written for version 1.99 of the hooks, this hlojit has 1.2"),
    "broken_mark": (
        GOOD.replace("@ext.hookimpl", ""),
        "has no hooks; hlojit_custom_calls lacks the decorator @hookimpl",
    ),
}
COMPILE = """
import warnings
import hlojit, numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        f = hlojit.compile("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.custom_call @good.twice(%x) : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32> }")
print(f(np.ones(2, "f4"))[0])
for each in caught:
    print(each.category.__name__, each.filename, " ".join(str(each.message).split()))
"""


def test_packages_that_fail_are_warned_of_once_and_the_others_work(tmp_path: Path) -> None:
    install(tmp_path, "good", GOOD.replace("NAME", "good"))
    for name, (code, _) in BROKEN.items():
        install(tmp_path, name, code, entry=name)
    install(tmp_path, "broken_entry", GOOD, entry="broken_entry:nothing")
    printed, *said = run(COMPILE, tmp_path).splitlines()
    assert printed == "2.0"
    assert len(said) == len(BROKEN) + 1
    for name, message in [*((name, message) for name, (_, message) in BROKEN.items()), ("broken_entry", "nothing")]:
        (line,) = (each for each in said if f"the plugin '{name}' (package {name} 1.5) could not be loaded" in each)
        assert line.startswith("PluginWarning <stdin> ") and message in line


def test_two_packages_with_plugins_of_one_name(tmp_path: Path) -> None:
    install(tmp_path, "good", GOOD.replace("NAME", "good"))
    install(tmp_path, "other", GOOD.replace("NAME", "other"))
    (tmp_path / "other-1.5.dist-info" / "entry_points.txt").write_text("[hlojit]\ngood = other\n")
    printed, said = run(COMPILE, tmp_path).splitlines()
    assert printed == "2.0"
    assert (
        "the packages good 1.5 and other 1.5 both bring a plugin called 'good'; rename the entry point of one" in said
    )


def calls(name: str, factor: float = 2.0) -> Any:
    call = ext.ElementwiseCall("nova.scale", function=lambda x: x * factor)
    return SimpleNamespace(__name__=name, hlojit_custom_calls=ext.hookimpl(lambda: [call]))


def refusing(x: Any) -> Any:
    raise OSError("the card is gone")


def beyond(x: Any, result: Any) -> None:
    result[x.shape[0]] = x[0]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", ["refusing", "beyond"])
def test_what_fails_at_run_time_is_named_with_its_package(name: str, backend: str) -> None:
    form = {"refusing": (refusing, "python"), "beyond": (beyond, "numba")}[name]
    call = ext.ArrayCall("nova.fails", function=form[0], trust=form[1], result_types=lambda call: call.operands[0])
    hooks = SimpleNamespace(__name__="nova", hlojit_custom_calls=ext.hookimpl(lambda: [call]))
    ext.register(hooks, package="hlojit-nova", version="0.1.0")
    failing = hlojit.jit(lambda x: hlojit.custom_call("nova.fails", x), backend=backend)
    with pytest.raises(hlojit.HlojitError, match=r"custom call target 'nova.fails' \(hlojit-nova 0.1.0\): "):
        failing(np.ones(3, "f4"))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_functions_of_a_format_are_named_with_their_package(backend: str) -> None:
    row = ext.FloatFormat("nova20", bits=20, decode=lambda code: code * 0.5, encode=lambda value: 1 << 25)
    hooks = SimpleNamespace(__name__="nova", hlojit_formats=ext.hookimpl(lambda: [row]))
    ext.register(hooks, package="hlojit-nova", version="0.1.0")
    with pytest.raises(hlojit.HlojitError, match=r"the encode function of nova20 \(hlojit-nova 0.1.0\)"):
        hlojit.jit(lambda x: x.astype("nova20"), backend=backend)(np.ones(3, "f4"))


def test_another_package_under_a_name_that_is_taken() -> None:
    ext.register(calls("nova"), package="hlojit-nova", version="0.1.0")
    ext.register(calls("nova", 3.0), package="hlojit-nova", version="0.2.0")
    with pytest.raises(
        hlojit.PluginError, match=r"packages hlojit-nova 0\.2\.0 and nova-fork 1\.0 both bring a plugin called 'nova'"
    ):
        ext.register(calls("nova"), package="nova-fork", version="1.0")
    assert ext.registry().records["nova"].version == "0.2.0"


def test_a_misspelt_name_is_not_unregistered_silently() -> None:
    ext.register(calls("nova"))
    with pytest.warns(hlojit.PluginWarning, match="there is no plugin 'novva' to unregister; did you mean 'nova'"):
        ext.unregister("novva")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ext.unregister("something else")
    assert "nova" in ext.registry().records


RENAMED = """
import warnings
import hlojit, numpy as np
import hlojit.extensions as ext
x = np.ones(3, "f4")
text = "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> { %0 = stablehlo.custom_call @nova.scale(%x) : (tensor<3xf32>) -> tensor<3xf32> return %0 : tensor<3xf32> }"
module = None
@hlojit.jit
def f(x):
    return x + 1
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name, factor in (("Nova", 2.0), ("Nova", 3.0), ("NovaPlugin", 4.0)):
        kind = type(name, (), {"hlojit_custom_calls": ext.hookimpl(
            lambda self, factor=factor: [ext.ElementwiseCall("nova.scale", function=lambda x: x * factor)])})
        ext.register(kind())
        module = module or hlojit.parse(text)
        print(hlojit.compile(module)(x)[0], f(x)[0], sorted(set(ext.registry().records) - {"cpu", "cuda", "reference"}))
for each in caught:
    print(each.category.__name__, each.message)
class Other:
    @ext.hookimpl
    def hlojit_custom_calls(self):
        return [ext.ElementwiseCall("nova.other", function=lambda x: x)]
ext.register(Other())
class Both:
    @ext.hookimpl
    def hlojit_custom_calls(self):
        return [ext.ElementwiseCall("nova.other", function=lambda x: -x), ext.ElementwiseCall("nova.third", function=lambda x: x)]
class Neither:
    @ext.hookimpl
    def hlojit_custom_calls(self):
        return [ext.ElementwiseCall("nova.third", function=lambda x: x)]
ext.register(Both())
ext.register(Neither()) if False else None
try:
    ext.register(Neither())
except hlojit.PluginError as error:
    print(error)
"""


def test_a_cell_that_is_run_again_under_another_name_is_said_to_replace(tmp_path: Path) -> None:
    lines = run(RENAMED, tmp_path).splitlines()
    assert lines[:3] == ["2.0 2.0 ['Nova']", "3.0 2.0 ['Nova']", "4.0 2.0 ['NovaPlugin']"]
    assert lines[3].startswith(
        "PluginWarning plugin 'NovaPlugin' takes the place of 'Nova': it brings all that this one brought"
    )
    assert "plugin 'Neither' and plugin 'Both' both register the custom call target 'nova.third'" in lines[4]
    assert "unregister('Both')" in lines[4]


STEP = 0.25


def decode(code: int) -> float:
    return code * STEP


def encode(value: float) -> int:
    return max(0, min(255, int(value / STEP + 0.5)))


def test_a_format_whose_functions_read_a_global_that_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In programs of before, in jitted functions and in constants."""

    @hlojit.jit
    def rounded(x: Any) -> Any:
        return x.astype("nova8").astype("f4")

    text = """
    func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
      %c = stablehlo.constant dense<1.4> : tensor<3xnova8>
      %0 = stablehlo.convert %x : (tensor<3xf32>) -> tensor<3xnova8>
      %1 = stablehlo.convert %0 : (tensor<3xnova8>) -> tensor<3xf32>
      %2 = stablehlo.convert %c : (tensor<3xnova8>) -> tensor<3xf32>
      return %1, %2 : tensor<3xf32>, tensor<3xf32>
    }
    """
    x = np.array([0.3, 1.0, 2.7], "f4")
    module = None
    for step in (0.25, 0.5, 0.125):
        monkeypatch.setitem(globals(), "STEP", step)
        row = ext.FloatFormat(
            "nova8", bits=8, decode=decode, encode=encode, has_infinity=False, nan=ext.NanEncoding.NONE
        )
        ext.register(SimpleNamespace(__name__="nova", hlojit_formats=ext.hookimpl(lambda row=row: [row])))
        module = module or hlojit.parse(text)
        expected = np.floor(x / step + 0.5) * step
        np.testing.assert_array_equal(hlojit.compile(text)(x)[0], expected)
        np.testing.assert_array_equal(hlojit.compile(module)(x)[0], expected)
        np.testing.assert_array_equal(rounded(x), expected)
        np.testing.assert_array_equal(hlojit.compile(text)(x)[1], np.floor(1.4 / step + 0.5) * step)
