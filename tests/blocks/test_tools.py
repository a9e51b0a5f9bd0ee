"""What takes a program takes one with blocks at its entry: ``lower``, reports, the reference, the command, bisection."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import hlojit
import numpy as np
import pytest
from hlojit import testing
from hlojit.command import main
from hlojit.extensions import BlockFormat, FloatFormat, Pass, hookimpl, using
from hlojit.ir import Builder, Module, evaluate, evaluate_instruction
from hlojit.ir.errors import ArgumentError

M = "tensor<4x64xmxfp8>"
TEXT = f"""
func.func @main(%x: {M}, %w: tensor<8x64xnvfp4>) -> (tensor<4x8xf32>, {M}) {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : ({M}, tensor<8x64xnvfp4>) -> tensor<4x8xf32>
  %1 = stablehlo.add %x, %x : {M}
  return %0, %1 : tensor<4x8xf32>, {M}
}}
"""


NUMBERS = (np.random.default_rng(3).normal(size=(4, 64)), np.random.default_rng(4).normal(size=(8, 64)))


def arguments() -> tuple[Any, Any]:
    return hlojit.Array.from_values(NUMBERS[0], "mxfp8"), hlojit.Array.from_values(NUMBERS[1], "nvfp4")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_lower_gives_the_program_of_the_parts(backend: str) -> None:
    module = hlojit.lower(TEXT, backend=backend)
    given = [str(argument.type) for argument in module.main.body.arguments]
    assert given == ["tensor<4x64xf8E4M3FN>", "tensor<4x2xf8E8M0FNU>", "tensor<8x64xf4E2M1FN>", "tensor<8x4xf8E4M3FN>", "tensor<f32>"]  # fmt: skip
    parts = [part for array in arguments() for part in array.parts]
    product, elements, scales = evaluate(module, *parts)
    expected, doubled = hlojit.compile(TEXT, backend="reference")(*arguments())
    np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-5)
    for part, other in zip((elements, scales), doubled.parts):
        assert part.tobytes() == np.asarray(other).tobytes()


def test_kernel_reports_are_of_programs_with_blocks() -> None:
    report = hlojit.kernel_report(TEXT)
    assert not report.note and not report.decisions


def test_the_reference_takes_and_gives_parts() -> None:
    module = hlojit.parse(TEXT)
    expected, doubled = hlojit.compile(TEXT, backend="reference")(*arguments())
    for given in (arguments(), tuple(array.parts for array in arguments())):
        product, twice = evaluate(module, *given)
        np.testing.assert_array_equal(product, expected)
        np.testing.assert_array_equal(hlojit.Array.from_parts(twice, "mxfp8"), doubled)
    x, w = arguments()
    with pytest.raises(
        ArgumentError, match=r"argument 0 of @main is tensor<4x64xmxfp8>: expected a tuple of its parts"
    ):
        evaluate(module, x.to_values(), w)
    with pytest.raises(ArgumentError, match="part 1 of argument 1 of @main has shape"):
        evaluate(module, x, (w.parts[0], w.parts[1][:1], w.parts[2]))
    total = next(each for each in module.main.body if each.name == "stablehlo.add")
    (parts,) = evaluate_instruction(total, [x.parts, x.parts])
    assert [part.dtype for part in parts] == [part.dtype for part in x.parts]


def test_the_reference_takes_formats_that_numpy_does_not_have() -> None:
    class Own:
        @hookimpl
        def hlojit_formats(self) -> list[Any]:
            nova5 = FloatFormat("nova5", exponent_bits=2, mantissa_bits=2, bias=1)
            return [nova5, BlockFormat("novablock", element=nova5, scale="f16", block=8, scaling="maximum")]

    with using(Own()):
        text = (
            "func.func @main(%x: tensor<2x8xnovablock>) -> tensor<2x8xnovablock> { return %x : tensor<2x8xnovablock> }"
        )
        x = hlojit.Array.from_values(np.arange(16.0).reshape(2, 8), "novablock")
        ((elements, scales),) = evaluate(hlojit.parse(text), x)
        assert (
            elements.tobytes() == x.parts[0].storage.tobytes() and scales.tobytes() == np.asarray(x.parts[1]).tobytes()
        )


def test_the_command_runs_and_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(TEXT)
    assert main(["run", str(path), "--random-inputs"]) == 0
    assert "result 1: tensor<4x64xmxfp8>" in capsys.readouterr().out
    names = []
    for number, array in enumerate(NUMBERS):
        names.append(str(tmp_path / f"{number}.npy"))
        np.save(names[-1], array)
    assert main(["run", str(path), "--input", *names, "--output", str(tmp_path / "results.npz")]) == 0
    with np.load(tmp_path / "results.npz") as found:
        expected, doubled = hlojit.compile(TEXT)(*arguments())
        np.testing.assert_array_equal(found["arr_0"], expected)
        np.testing.assert_array_equal(found["arr_1"], doubled.to_values())
    for words in (["opt"], ["parse"], ["verify"], ["kernels"]):
        assert main([*words, str(path)]) == 0
    assert "dot_general" in capsys.readouterr().out


def test_the_roofline_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(os.environ, "HLOJIT_CUDA", "simulator")
    path = tmp_path / "program.mlir"
    path.write_text(TEXT)
    assert main(["roofline", str(path)]) == 0
    assert capsys.readouterr().out


@dataclass(frozen=True)
class _Halves(Pass):
    """Additions become subtractions."""

    name: ClassVar[str] = "nova-halves"
    phase: ClassVar[str] = "import"

    def run(self, module: Module) -> bool:
        found = [
            each for each in module.walk() if each.name == "stablehlo.add" and len(each.operand_types[0].shape) == 2
        ]  # type: ignore[attr-defined]
        for each in found:
            each.replace_with([Builder.in_front_of(each).subtract(*each.operands)])
        return bool(found)


class _Nova:
    @hookimpl
    def hlojit_passes(self) -> list[Any]:
        return [_Halves()]


EXACT = f"""
func.func @main(%x: {M}, %w: tensor<8x64xnvfp4>) -> ({M}, tensor<8x64xf32>) {{
  %0 = stablehlo.add %x, %x : {M}
  %1 = stablehlo.convert %w : (tensor<8x64xnvfp4>) -> tensor<8x64xf32>
  return %0, %1 : {M}, tensor<8x64xf32>
}}
"""


@pytest.mark.parametrize("given", [False, True])
def test_bisect_names_the_pass_that_breaks_a_program_with_blocks(given: bool) -> None:
    with using(_Nova()):
        found = testing.bisect(EXACT, arguments=arguments() if given else None, seconds=5)
        assert (found.kind, found.name) == ("pass", "nova-halves")
        assert "stablehlo.add" in str(found.module) and "convert" not in str(found.module)
        compile(found.script, "found", "exec")
    with pytest.raises(hlojit.HlojitError, match="nothing is wrong"):
        testing.bisect(EXACT, arguments=arguments() if given else None)


def test_the_reducer_makes_programs_with_blocks_smaller() -> None:
    small = testing.reduce(TEXT, lambda module: "stablehlo.add" in str(module))
    assert sum(1 for _ in small.walk()) <= 3 and hlojit.compile(small)

    def adds(module: Module, arrays: Any) -> bool:
        return "stablehlo.add" in str(module) and all(np.isfinite(each.astype("f4")).all() for each in evaluate(module, *arrays))  # fmt: skip

    small, arrays = testing.reduce_with_arguments(TEXT, arguments(), adds)
    assert "dot_general" not in str(small) and len(arrays) == len(small.main.body.arguments)


def test_the_commands_bisect_and_reduce_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(EXACT)
    names = []
    for number, array in enumerate(NUMBERS):
        names.append(str(tmp_path / f"{number}.npy"))
        np.save(names[-1], array)
    with using(_Nova()):
        assert main(["bisect", str(path), "--input", *names, "--seconds", "0"]) == 0
    assert "pass nova-halves" in capsys.readouterr().out
    assert main(["reduce", str(path), "--check", "grep -q stablehlo.add"]) == 0
    assert "convert" not in capsys.readouterr().out
