"""Kernels as PTX by LLVM's own NVPTX target, through llvmlite: no GPU, no driver, nothing of NVIDIA's is needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target


@cache
def _machine(cpu: str, triple: str) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)


def assemble(code: KernelCode, target: Target) -> str:
    """The assembler text of a kernel."""
    import llvmlite.binding as llvm

    machine = _machine(target.cpu, target.triple)
    module = llvm.parse_assembly(f'target triple = "{target.triple}"\n{code.ir}')
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.slp_vectorization = True
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return str(machine.emit_assembly(module))
