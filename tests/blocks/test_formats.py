"""The format itself: what fits together, how types are written, what is known of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import BlockFormat, FloatFormat, hookimpl, using
from hlojit.ir import Module, build_function
from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.binary import Reader, Writer
from hlojit.ir.fingerprint import fingerprint
from hlojit.ir.format_fields import Rounding
from hlojit.ir.formats import element_type
from hlojit.ir.text.parser import parse_module
from hlojit.ir.types import tensor

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"block": 0}, "block = 0; a block has 1 to"),
    ({"block": 2.5}, "block = 2.5 is no whole number"),
    ({"axis": 70}, "axis = 70; arrays have at most 64"),
    ({"axis": None}, "axis = None is no whole number"),
    ({"element": "f9"}, "element = 'f9' is unknown; give a FloatFormat"),
    ({"element": "i8"}, "element = 'i8' is no float format"),
    ({"element": 8}, "element = 8; give a FloatFormat"),
    ({"element": "f8E8M0FNU"}, "has no sign"),
    ({"element": "f64"}, "is beyond f32"),
    ({"scale": "f4E2M1FN"}, "has no NaN"),
    ({"scale": "f32"}, "28 significant bits, f32 has 24"),
    ({"scaling": "mean"}, "scaling = 'mean'; it is 'exponent' or 'maximum'"),
    ({"tensor_scale": "f32"}, "are chosen by scaling='maximum'"),
    ({"tensor_scale": "f16", "scaling": "maximum"}, "tensor_scale = f16; it is 'f32' or None"),
    (
        {"element": FloatFormat("dice8", exponent_bits=4, mantissa_bits=3, bias=7, rounding=Rounding.STOCHASTIC)},
        "element = dice8 is rounded by random bits",
    ),
    ({"bits": 7}, "bits = 7, and its elements have 8; leave bits out"),
    (
        {"element": FloatFormat("table8", bits=8, decode=lambda bits: 0.0, encode=lambda number: 0)},
        "made of functions",
    ),
]


@pytest.mark.parametrize(("fields", "expected"), WRONG)
def test_fields_that_do_not_fit_say_what_to_change(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(hlojit.HlojitError) as caught:
        BlockFormat("mine", **fields)
    assert str(caught.value).startswith("block format 'mine': ") and expected in str(caught.value)


def test_a_built_in_name_means_one_format() -> None:
    with pytest.raises(hlojit.HlojitError, match="'mxfp8': it is a type of hlojit's own; choose another name"):
        BlockFormat("mxfp8", block=16)

    class Same:
        @hookimpl
        def hlojit_formats(self) -> list[Any]:
            return [BlockFormat("mxfp8", element="f8E4M3FN", scale="f8E8M0FNU", block=32, axis=-1)]

    with using(Same()):
        found = hlojit.Array.from_values(np.ones((1, 32), np.float32), "mxfp8")
        assert found.type is tensor((1, 32), "mxfp8")
        np.testing.assert_array_equal(hlojit.jit(lambda x: x.astype("mxfp8"))(np.ones((1, 32), np.float32)), found)


def test_a_module_and_arrays_of_a_format_that_changed() -> None:
    def renewed(block: int) -> Any:
        class Own:
            @hookimpl
            def hlojit_formats(self) -> list[Any]:
                return [BlockFormat("renewed", block=block)]

        return using(Own())

    with renewed(32):
        module = hlojit.parse(
            "func.func @main() -> tensor<2x32xrenewed> {\n"
            "%c = stablehlo.constant dense<1.75> : tensor<2x32xrenewed>\nreturn %c : tensor<2x32xrenewed>\n}"
        )
        array = hlojit.compile(module)()
        assert array.parts[1].shape == (2, 1)
    with renewed(8):
        again = hlojit.compile(module)()
        assert again.parts[1].shape == (2, 4)
        np.testing.assert_array_equal(again, np.full((2, 32), 1.75))
        with pytest.raises(hlojit.HlojitError, match="registered again since the array was made"):
            hlojit.jit(lambda x: x.to_values())(array)


def test_directed_rounding_of_elements() -> None:
    class Cut:
        @hookimpl
        def hlojit_formats(self) -> list[Any]:
            cut = FloatFormat("cut8", exponent_bits=4, mantissa_bits=3, bias=7, rounding=Rounding.TOWARD_ZERO)
            return [cut, BlockFormat("cutblock", element=cut, block=4)]

    numbers = np.float32([[1.99, -1.99, 1.06, 0.0009]])
    with using(Cut()):
        for backend in ("cpu", "reference"):
            found = hlojit.jit(lambda x: x.astype("cutblock"), backend=backend)(numbers)
            np.testing.assert_array_equal(np.asarray(found), np.float32([[1.875, -1.875, 1, 0.00085449219]]))


def test_parts_of_a_tensor() -> None:
    row = element_type("mxfp8")
    assert isinstance(row, BlockFormat)
    assert row.part_shapes((5, 33)) == ((5, 33), (5, 2))
    assert tensor((5, 33), row).nbytes == 5 * 33 + 5 * 2
    nvfp4 = element_type("nvfp4_t")
    assert isinstance(nvfp4, BlockFormat)
    assert nvfp4.part_shapes((4, 16, 3)) == ((4, 16, 3), (4, 1, 3), ())
    assert [part.name for part in nvfp4.part_formats] == ["f4E2M1FN", "f8E4M3FN", "f32"]


TEXT = """
func.func @main(%x: tensor<4x64xmxfp8>) -> tensor<4x64xmxfp8> {
  %0 = stablehlo.constant dense<1.5> : tensor<4x64xmxfp8>
  %1 = stablehlo.add %x, %0 : tensor<4x64xmxfp8>
  return %1 : tensor<4x64xmxfp8>
}
"""


def test_text_and_bytes_keep_types_and_constants() -> None:
    module = parse_module(TEXT)
    text = str(module)
    assert "dense<1.500000e+00> : tensor<4x64xmxfp8>" in text
    assert str(parse_module(text)) == text
    writer = Writer({})
    writer.put(tensor((4, 64), "mxfp8"))
    assert Reader(memoryview(writer.finish()), {}).value() is tensor((4, 64), "mxfp8")


def test_formats_are_identified_by_their_fields() -> None:
    first, second, third = (BlockFormat("mine", block=block) for block in (32, 16, 32))
    assert first == third and fingerprint(first) == fingerprint(third)
    assert first != second and fingerprint(first) != fingerprint(second)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor<mxfp8>", "a single number has no block: use f32"),
        ("tensor<32xmxfp8_t>", "has no dimension -2, along which the blocks of mxfp8_t lie"),
        ("tensor<?x32xmxfp8>", "the sizes of tensors in blocks must be known"),
    ],
)
def test_tensor_types_that_cannot_be(text: str, expected: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=expected):
        hlojit.compile(f"func.func @main(%x: {text}) -> {text} {{ return %x : {text} }}")


class Own:
    """A vendor's elements of 5 bits in blocks of 8, with scales that are no powers of two."""

    elements = FloatFormat("nova5", exponent_bits=2, mantissa_bits=2, bias=1)
    blocks = BlockFormat("novablock", element=elements, scale="f16", block=8, scaling="maximum")

    @hookimpl
    def hlojit_formats(self) -> list[Any]:
        return [self.elements, self.blocks]


def test_the_builder_infers_types() -> None:
    module = Module()
    with build_function(module, "main", [tensor((4, 64), "mxfp8")] * 2) as builder:
        x, y = builder.arguments
        total, below = builder.add(x, y), builder.compare(x, y, "LT")
        turned = builder.transpose(total, (1, 0))
        product = builder.dot_general(x, y, DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(1,)))
        part = builder.slice(x, (0, 32), (4, 64), (1, 1))
        with pytest.raises(hlojit.HlojitError, match="1:33:1 are no whole blocks"):
            builder.slice(x, (0, 1), (4, 33), (1, 1))
        builder.return_(total, below, turned, product, part)
    found = [str(type) for type in module.main.result_types]
    assert found == [
        "tensor<4x64xmxfp8>", "tensor<4x64xi1>", "tensor<64x4xmxfp8_t>", "tensor<4x4xf32>", "tensor<4x32xmxfp8>",
    ]  # fmt: skip
    hlojit.verify(module)
    hlojit.compile(module)


class Chosen:
    """Scales that a function chooses: the largest number becomes 80 % of the largest element, and nothing small is scaled."""

    def __init__(self, factor: float = 1.25):
        self.factor = factor

    @hookimpl
    def hlojit_formats(self) -> list[Any]:
        factor = self.factor

        def choose(largest: float) -> float:
            return largest * factor / 448 if largest > 1 else 0.0

        return [BlockFormat("careful", scale="f16", block=4, scaling=choose)]


@pytest.mark.parametrize("backend", ["host", "cpu", "reference"])
def test_scales_that_a_function_chooses(backend: str) -> None:
    numbers = np.float32([[448, 1, 2, -448, 896, 7, 3, 0, 0.5, 0.25, 1, 0, np.nan, 1, 1, 1]])
    with using(Chosen()):
        if backend == "host":
            found = hlojit.Array.from_values(numbers, "careful")
        else:
            found = hlojit.jit(lambda x: x.astype("careful"), backend=backend)(numbers)
    elements, scales = (np.asarray(part).astype(np.float64)[0] for part in found.parts)
    assert scales.tolist()[:3] == [1.25, 2.5, 2.0**-24] and np.isnan(scales[3])
    assert elements[:8].tolist() == [352, 0.8125, 1.625, -352, 352, 2.75, 1.25, 0]
    assert elements[8:].tolist() == [448, 448, 448, 0, 0, 0, 0, 0]


def test_another_function_is_another_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path))
    numbers = np.full((2, 8), 448, np.float32)
    for factor in (1.25, 2.0, 1.25, 4.0):
        with using(Chosen(factor)):
            found = hlojit.jit(lambda x: x.astype("careful"))(numbers)
        assert np.asarray(found.parts[1]).astype(np.float64).tolist() == [[factor] * 2] * 2


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_vendors_own_format(backend: str) -> None:
    numbers = np.random.default_rng(0).normal(size=(3, 20)).astype(np.float32)
    numbers[0, :8] = [7, 6, 5, 4, 3.5, 1, 0.5, 0]  # elements end at 3.5
    with using(Own()):
        found = hlojit.jit(lambda x: x.astype("novablock"), backend=backend)(numbers)
        again = hlojit.Array.from_values(numbers, "novablock")
        np.testing.assert_array_equal(found.to_values(), again.to_values())
        assert np.asarray(found.parts[1])[0, 0] == 2
        np.testing.assert_array_equal(found.to_values()[0, :8], numbers[0, :8])
        largest = np.abs(numbers).max(axis=1, keepdims=True)
        assert np.all(np.abs(found.to_values() - numbers) <= largest / 3.5 * 0.26)
        assert hlojit.Array.from_parts(found.parts, "novablock").type is found.type
