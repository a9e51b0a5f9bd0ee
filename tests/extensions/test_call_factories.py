"""Custom calls with a configuration: factories, what they are told, and how often they are asked."""

from __future__ import annotations

from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

from .test_custom_calls import X, config, leaky, leaky_text, plugin, softplus


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_factory_gets_the_configuration(backend: str) -> None:
    with ext.using(plugin(ext.ElementwiseCall("test.leaky", factory=leaky))):
        for slopes, text in (
            ((0.25,), leaky_text(config(0.25))),
            ((0.125,), leaky_text(config(0.125))),
            ((0.25, 4.0), leaky_text(config(0.25), config(4.0))),
            ((0.5,), leaky_text("")),
            ((2.0,), leaky_text("{mhlo.backend_config = {slope = 2.0 : f64}}")),
        ):
            product = np.float32(np.prod(slopes))
            np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(X), np.where(X > 0, X, product * X))


def test_a_configuration_is_a_constant_of_the_kernel() -> None:
    from hlojit.cpu.inspection import assembly_of

    with ext.using(plugin(ext.ElementwiseCall("test.leaky", factory=leaky))):
        executable = hlojit.compile(leaky_text(config(0.25), config(4.0)), backend="cpu")
    (launch,) = executable.spec.program.launches()
    assert "call" not in assembly_of(launch.kernel)


def test_what_a_factory_is_told() -> None:
    seen = []

    def factory(site: Any) -> Any:
        seen.append(site)
        return lambda x, y: x

    text = """
    func.func @main(%x: tensor<3xf32>, %y: tensor<3xi8>) -> tensor<3xbf16> {
      %0 = stablehlo.custom_call @test.f(%x, %y) {api_version = 4 : i32, backend_config = {
        mode = "fast", n = 3 : i64, flags = [true, false], lanes = array<i64: 1, 2>, alone, inner = {a = 1.5 : f32}}}
        : (tensor<3xf32>, tensor<3xi8>) -> tensor<3xbf16>
      return %0 : tensor<3xbf16>
    }
    """
    with ext.using(plugin(ext.ElementwiseCall("test.f", factory=factory))):
        hlojit.compile(text)
    site = seen[0]
    assert len(seen) == 1, "one call site, one function"
    assert site.target == "test.f" and site.api_version == 4
    assert site.config == {
        "mode": "fast", "n": 3, "flags": (True, False), "lanes": (1, 2), "alone": True, "inner": {"a": 1.5},
    }  # fmt: skip
    assert [each.name for each in site.operand_types] == ["f32", "i8"] and site.result_type.name == "bf16"


def test_a_configuration_that_a_function_does_not_look_at_is_refused() -> None:
    with ext.using(plugin(ext.ElementwiseCall("test.leaky", function=softplus))):
        for attributes in (
            config(0.25), "{mhlo.backend_config = {slope = 2.0 : f64}}", '{backend_config = "slope=3"}',
        ):  # fmt: skip
            with pytest.raises(hlojit.PluginError, match=r"(?s)'test\.leaky'.*backend_config.*factory.*<string>:2"):
                hlojit.compile(leaky_text(attributes))
        for empty in (
            '{backend_config = ""}',
            "{api_version = 4 : i32, backend_config = {}}",
            "{api_version = 4 : i32, mhlo.backend_config = {}}",
        ):
            np.testing.assert_allclose(hlojit.compile(leaky_text(empty))(X), np.logaddexp(0, X), rtol=1e-6)


def test_called_computations_of_an_elementwise_call_are_refused() -> None:
    text = (
        leaky_text("{called_computations = [@f]}")
        + "\nfunc.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
    )
    with (
        ext.using(plugin(ext.ElementwiseCall("test.leaky", function=softplus))),
        pytest.raises(hlojit.PluginError, match=r"test\.leaky.*called_computations"),
    ):
        hlojit.compile(text)


@pytest.mark.parametrize("factory", [lambda site: 1 // 0, lambda site: None, lambda: lambda x: x])
def test_a_factory_that_fails_is_named(factory: Any) -> None:
    with (
        ext.using(plugin(ext.ElementwiseCall("test.leaky", factory=factory))),
        pytest.raises(hlojit.PluginError, match=r"'test\.leaky': the factory"),
    ):
        hlojit.compile(leaky_text(""))


def test_a_call_is_a_function_or_a_factory() -> None:
    for given in ({}, {"function": softplus, "factory": leaky}):
        with pytest.raises(hlojit.PluginError, match=r"'test\.f'.*either function or factory"):
            ext.ElementwiseCall("test.f", **given)


SCALE = 2.0


def scaling(site: Any) -> Any:
    scale = SCALE
    return lambda x: x * scale


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_factory_is_asked_by_every_compilation(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """What it reads may have changed."""
    x = np.arange(1000, dtype="f4")
    with ext.using(plugin(ext.ElementwiseCall("test.leaky", factory=scaling))):
        for scale in (2.0, 3.0, 2.0):
            monkeypatch.setitem(globals(), "SCALE", scale)
            np.testing.assert_array_equal(hlojit.compile(leaky_text(""), backend=backend)(x), x * scale)


def test_constants_in_a_configuration_are_told_apart() -> None:
    """Whatever is in the configuration belongs to the identity of the kernel."""

    def factory(site: Any) -> Any:
        first, second = (float(each) for each in site.config["table"])
        return lambda x: x * first + second

    x = np.arange(1000, dtype="f4")
    with ext.using(plugin(ext.ElementwiseCall("test.leaky", factory=factory))):
        for first, second in ((2, 3), (5, 7)):
            text = leaky_text(
                f"{{api_version = 4 : i32, backend_config = {{table = dense<[{first}, {second}]> : tensor<2xi32>}}}}"
            )
            np.testing.assert_array_equal(hlojit.compile(text)(x), x * first + second)
