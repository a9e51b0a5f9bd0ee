"""``check_block_format``: formats that are right conform, and every defect that is put in is found."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit import testing
from hlojit.extensions import BlockFormat, FloatFormat
from hlojit.ir import block_arrays
from hlojit.ir.errors import HlojitError
from hlojit.ir.ops import block_arithmetic, block_movement
from hlojit.ir.ops.slicing import SLICE
from hlojit.testing.plugins import check_part, parts_of
from hlojit.testing.recorder import Budget

TINY = Budget("tiny", samples=32, programs=1, sizes=1, threads=2, reduction_seconds=1.0)
NOVA5 = FloatFormat("nova5", exponent_bits=2, mantissa_bits=2, bias=1)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")


def check(row: BlockFormat | str, *groups: str) -> testing.Report:
    return testing.check_block_format(row, budget=TINY, groups=groups)


@pytest.mark.parametrize(
    "row",
    [
        "nvfp4_t",
        BlockFormat("novafirst", element="f8E4M3FN", scale="bf16", block=3, axis=0),
        BlockFormat("novalong", element="f4E2M1FN", block=4096),
        BlockFormat("careful", scale="f16", block=1, scaling=lambda largest: largest * 1.25 / 448),
    ],
    ids=str,
)
def test_formats_that_are_right_conform(row: BlockFormat | str) -> None:
    groups = ["encodings", "rounding", "movement", "products", "control flow", "constants", "text", "jit"]
    report = check(row, *groups)
    report.raise_if_failed()
    assert report.verdict == "conforms" and {result.group for result in report.results} == set(groups)


def _too_large(numbers: Any, format: Any) -> Any:
    """Numbers a little above the middle between two elements, too, are rounded up."""
    return _encode(np.asarray(numbers) * np.float32(1.001), format)


_encode = block_arrays.encode_array
_spread = block_arithmetic.spread
_power = block_arithmetic._power_of_two

DEFECTS: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "elements on the host": (block_arrays, "encode_array", _too_large, "rounding"),
    "scales in programs": (
        block_arithmetic,
        "_power_of_two",
        lambda builder, largest, format: _power(builder, builder.add(largest, largest), format),
        "rounding",
    ),
    "spreading of scales": (
        block_arithmetic,
        "spread",
        lambda builder, scales, type: _spread(builder, builder.reverse(scales, (scales.tensor_type.rank - 1,)), type),
        "encodings",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_defects_are_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, wrong, group = DEFECTS[defect]
    monkeypatch.setattr(module, name, wrong)
    report = check("mxfp8", group)
    assert not report.ok and any("mxfp8: " in finding.message for finding in report.findings)


def test_scales_that_do_not_move_with_their_blocks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SLICE.parts[BlockFormat]

    def wrong(builder: Any, instruction: Any, operands: Any) -> Any:
        ((elements, scales),) = right(builder, instruction, operands)
        return [(elements, builder.reverse(scales, (scales.tensor_type.rank - 1,)))]

    monkeypatch.setattr(
        block_movement.BlockMove, "__call__", lambda self, *rest: wrong(*rest) if self is right else None
    )
    assert not check("mxfp4", "movement").ok


def test_a_plugins_block_formats_are_tried() -> None:
    rows = [NOVA5, BlockFormat("novablock", element=NOVA5, scale="f16", block=8, scaling="maximum")]
    plugin = SimpleNamespace(__name__="nova-blocks", hlojit_formats=ext.hookimpl(lambda: rows))
    with ext.using(plugin):
        (part,) = [each for each in parts_of("nova-blocks") if each.name == "novablock"]
        report = check_part(part, budget=TINY)
        assert report.ok and sum(each.count for each in report.results) > 1000
        with pytest.raises(HlojitError, match="check_block_format checks block formats"):
            testing.check_format("novablock")
