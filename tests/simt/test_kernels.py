"""The table of kernels of machines with threads: what is in it can be emitted, what is not is refused by name."""

from __future__ import annotations

import hlojit
import pytest
from hlojit.compiler import lower
from hlojit.cuda.nvptx import SM_90, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Instruction
from hlojit.ir.ops import BUILT_IN
from hlojit.simt.kernels import _FUSIONS, _KERNELS, _imported, emit_kernel, has_kernel, lowering_reason


def last(text: str) -> Instruction:
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    return [each for each in module.main.body if not each.op.is_terminator][-1]


@pytest.mark.parametrize("path", [*_FUSIONS.values(), *_KERNELS.values()])
def test_every_entry_names_an_emitter(path: str) -> None:
    assert callable(_imported(path))


def test_a_fusion_goes_to_the_emitter_of_its_kind() -> None:
    code = emit_kernel(
        last("""
        func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
          %0 = stablehlo.add %x, %x : tensor<8x8xf32>
          %1 = stablehlo.multiply %0, %x : tensor<8x8xf32>
          return %1 : tensor<8x8xf32>
        }"""),
        SM_90,
        NvptxDialect(),
        "kernel",
    )
    assert code.symbol == "kernel" and code.phases[0].tasks > 0 and "ptx_kernel" in code.ir


def test_results_without_elements_take_no_block() -> None:
    text = """
    func.func @main(%x: tensor<0x8xf32>, %i: tensor<i32>) -> tensor<0x8xf32> {
      %1 = stablehlo.tanh %x : tensor<0x8xf32>
      return %1 : tensor<0x8xf32>
    }"""
    (instruction,) = [each for each in hlojit.parse(text).walk() if not each.op.is_terminator]
    (phase,) = emit_kernel(instruction, SM_90, NvptxDialect(), "nothing").phases
    assert phase.tasks == 0


def test_what_is_not_in_the_table_is_refused_by_name() -> None:
    for record in BUILT_IN.values():
        name = getattr(record.lowering, "name", "")
        if name and not has_kernel(name):
            stated = getattr(record.lowering, "without", "")
            assert lowering_reason(record) == (stated or f"no GPU kernel {name!r} yet")
