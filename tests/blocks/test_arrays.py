"""Arrays in blocks: what they offer, and the ways of programs to devices, files and caches."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.tracing.errors import TracingError

NUMBERS = np.random.default_rng(2).normal(size=(4, 64)).astype(np.float32)


@hlojit.jit
def layer(x: Any, weights: Any) -> Any:
    quantized = x.astype("mxfp8")
    return quantized @ weights.T, quantized


def arguments() -> tuple[Any, Any]:
    return NUMBERS, hlojit.Array.from_values(np.random.default_rng(4).normal(size=(8, 64)), "mxfp4")


def expected() -> Any:
    x, weights = arguments()
    return hlojit.Array.from_values(x, "mxfp8").to_values() @ weights.to_values().T


def test_parts_values_and_what_is_said_of_them() -> None:
    x = hlojit.Array.from_values(NUMBERS, "mxfp8")
    assert isinstance(x, hlojit.Array)
    elements, scales = x.parts
    assert elements.dtype == ml_dtypes.float8_e4m3fn and scales.dtype == ml_dtypes.float8_e8m0fnu
    assert (x.shape, x.ndim, x.size, x.nbytes, len(x)) == ((4, 64), 2, 256, 264, 4)
    assert np.asarray(x).dtype == np.float32 and np.asarray(x, np.float64).dtype == np.float64
    again = hlojit.Array.from_parts((elements, scales), "mxfp8")
    assert again.parts[0] is elements
    np.testing.assert_array_equal(again.to_values(), x.to_values())
    assert repr(x).endswith("tensor<4x64xmxfp8>)")
    assert x.device is None and x.is_ready and x.wait(0)


def test_what_arrays_in_blocks_do_not_offer_says_why() -> None:
    x = hlojit.Array.from_values(NUMBERS, "mxfp8")
    with pytest.raises(BufferError, match="have no type for mxfp8; pass .parts"):
        np.from_dlpack(x)
    with pytest.raises(BufferError, match="have no type"):
        x.__dlpack_device__()
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(HlojitError, match="is several arrays, .parts"):
        _ = x.storage
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, copy=False)
    with pytest.raises(HlojitError, match="make it by Array.from_values or Array.from_parts"):
        hlojit.Array(NUMBERS, "mxfp8")
    with pytest.raises(HlojitError, match="a single number has no block"):
        hlojit.Array.from_values(1.5, "mxfp8")


def test_parts_are_checked() -> None:
    elements, scales = hlojit.Array.from_values(NUMBERS, "mxfp8").parts
    for wrong, message in (
        ((elements,), r"has 2 parts \(elements, scales\), not 1"),
        ((elements, scales[:, :1]), r"scales of tensor<4x64xmxfp8>: expected tensor<4x2xf8E8M0FNU>"),
        ((elements.astype("f4"), scales), "elements of tensor<4x64xmxfp8>: expected tensor<4x64xf8E4M3FN>"),
    ):
        with pytest.raises(ArgumentError, match=message):
            hlojit.Array.from_parts(wrong, "mxfp8")
    with pytest.raises(HlojitError, match="is for block formats, f16 is none"):
        hlojit.Array.from_parts((elements, scales), "f16")


def test_a_jitted_function_takes_and_gives_them() -> None:
    product, quantized = layer(*arguments())
    np.testing.assert_allclose(product, expected(), rtol=1e-6)
    np.testing.assert_array_equal(quantized.to_values(), hlojit.Array.from_values(NUMBERS, "mxfp8").to_values())


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_a_matrix_that_is_transposed_for_a_product_is_read_where_it_lies(name: str) -> None:
    weights = hlojit.Array.from_values(np.random.default_rng(9).normal(size=(40, 96)), name)
    row = np.random.default_rng(8).normal(size=(1, 96)).astype(np.float32)
    function = hlojit.jit(lambda x, w: x @ w.T)
    np.testing.assert_allclose(function(row, weights), row @ weights.to_values().T, rtol=1e-5, atol=1e-5)
    executable = hlojit.compile(function.lower(row, weights))
    assert executable.flat.spec.arena_bytes < 40 * 96  # not decoded into memory

    batched = hlojit.Array.from_values(np.random.default_rng(7).normal(size=(2, 3, 4, 64)), name)
    several = hlojit.jit(
        lambda w: (w.transpose(0, 2, 1, 3) @ w.transpose(0, 2, 3, 1), np.tensordot(w, w, ((0, 3), (0, 3))))
    )
    numbers = batched.to_values()
    expected = (
        numbers.transpose(0, 2, 1, 3) @ numbers.transpose(0, 2, 3, 1), np.tensordot(numbers, numbers, ((0, 3), (0, 3))),
    )  # fmt: skip
    for found, each in zip(several(batched), expected):
        np.testing.assert_allclose(found, each, rtol=1e-4, atol=1e-4)


def test_numpys_functions_see_numbers() -> None:
    weights = hlojit.Array.from_values(NUMBERS.T, "mxfp6_e3m2_t")

    @hlojit.jit
    def several(x: Any) -> Any:
        return x.sum(0), x[1], np.concatenate([x, x]), x * 2 + np.matmul(x, weights).sum(), np.sort(x), x > 0

    x = hlojit.Array.from_values(NUMBERS, "mxfp8")
    values, right = x.to_values(), weights.to_values()
    wanted = (
        values.sum(0), values[1], np.concatenate([values, values]), values * 2 + (values @ right).sum(), np.sort(values), values > 0,
    )  # fmt: skip
    for found, each in zip(several(x), wanted):
        assert found.dtype == each.dtype
        np.testing.assert_allclose(found, each, rtol=1e-5)

    @hlojit.jit
    def assigned(x: Any) -> Any:
        x[0] = 1.0
        return x

    with pytest.raises(TracingError, match="cannot be assigned: each shares a scale"):
        assigned(x)


def test_arguments_are_named_as_the_caller_has_them() -> None:
    executable = hlojit.compile(layer.lower(*arguments()))
    x, weights = arguments()
    with pytest.raises(
        ArgumentError, match=r"argument 1: expected tensor<8x64xmxfp4>, got an array of shape \(8, 64\)"
    ):
        executable(x, weights.to_values())
    with pytest.raises(ArgumentError, match="argument 1: expected tensor<8x64xmxfp4>, got tensor<8x64xmxfp8>"):
        executable(x, hlojit.Array.from_values(weights, "mxfp8"))
    with pytest.raises(ArgumentError, match="takes 2 arguments, not 1"):
        executable(x)
    with pytest.raises(ArgumentError, match=r"argument 0: expected tensor<4x64xf32>"):
        executable(x[:2], weights)


def test_on_a_device_they_stay_there() -> None:
    x, weights = arguments()
    there = hlojit.put(weights, "cpu")
    assert str(there.device) == "cpu:0" and "on cpu:0" in repr(there)
    product, quantized = layer(hlojit.put(x, "cpu"), there)
    assert str(quantized.device) == "cpu:0" and quantized.wait(10)
    np.testing.assert_allclose(np.asarray(product), expected(), rtol=1e-6)
    here = hlojit.get(quantized)
    assert here.device is None and here.parts[0].dtype == ml_dtypes.float8_e4m3fn
    pending = layer.execute(x, weights)[1]
    np.testing.assert_array_equal(np.asarray(pending), here.to_values())
    there.delete()
    with pytest.raises(HlojitError, match="deleted"):
        layer(x, there)


def test_saved_programs_and_what_is_donated(tmp_path: Path) -> None:
    executable = hlojit.compile(layer.lower(*arguments()))
    executable.save(tmp_path / "layer")
    loaded = hlojit.load(tmp_path / "layer")
    assert loaded.input_types == executable.input_types
    np.testing.assert_array_equal(loaded(*arguments())[0], executable(*arguments())[0])

    text = """
    func.func @main(%x: tensor<4x64xmxfp8> {tf.aliasing_output = 0 : i32}) -> tensor<4x64xmxfp8> {
      %0 = stablehlo.add %x, %x : tensor<4x64xmxfp8>
      return %0 : tensor<4x64xmxfp8>
    }"""
    given = hlojit.Array.from_values(NUMBERS, "mxfp8")
    numbers = given.to_values().copy()
    np.testing.assert_array_equal(hlojit.compile(text)(given).to_values(), 2 * numbers)
    assert not given.parts[0].flags.writeable


def test_programs_are_found_in_the_cache_by_their_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path))
    from hlojit.extensions import BlockFormat, hookimpl, using

    def result(block: int) -> Any:
        class Own:
            @hookimpl
            def hlojit_formats(self) -> list[Any]:
                return [BlockFormat("changing", block=block)]

        with using(Own()):
            return hlojit.jit(lambda x: x.astype("changing"))(
                np.resize(NUMBERS, (4, 32)) * np.logspace(0, 5, 32, dtype="f4")
            )

    for block in (32, 8, 32, 8):
        assert result(block).parts[1].shape == (4, 32 // block)


def test_threads_from_a_cold_start() -> None:
    found: list[Any] = []

    def work(size: int) -> None:
        x = hlojit.Array.from_values(NUMBERS[:, :size], "nvfp4")
        doubled = hlojit.jit(lambda x: (x * 2).astype("nvfp4"))(x)
        found.append(np.array_equal(doubled.to_values(), 2 * x.to_values()))

    threads = [threading.Thread(target=work, args=(size,)) for size in (16, 32, 48, 64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
