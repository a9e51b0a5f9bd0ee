"""Kernels for ops and back ends of plugins, and what lowered programs say of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import (
    CompileOptions,
    CompositePattern,
    Declined,
    KernelGroup,
    OpPattern,
    hookimpl,
    kernel_answer,
    no,
    using,
)
from hlojit.extensions.backends.backend import YES, Backend, Capability
from hlojit.ir import Instruction, Module, evaluate, tensor
from hlojit.ir.builder import build_function
from hlojit.ir.ops.definition import Kernel as KernelLowering
from hlojit.ir.ops.definition import OpDefinition, Operand

from .kernel_plugins import NEGATE, Kernels, X, declining, kernel, llvm, program, times


class Units(Kernels):
    """A plugin with an op that only its kernel can compute."""

    @hookimpl
    def hlojit_ops(self) -> Sequence[OpDefinition]:
        def infer(request: Any) -> Any:
            return [request.operand_types[0]]

        return [
            OpDefinition(
                "nova.unit",
                operands=(Operand("x"),),
                infer=infer,
                reference=lambda call, x: 6 * x,
                lowering=KernelLowering("nova_unit", without="only nova's units do that"),
            )
        ]


UNIT = """func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %0 = "nova.unit"(%x) : (tensor<1000xf32>) -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}"""


def test_a_kernel_is_all_that_an_op_needs_on_a_back_end() -> None:
    with using(Units(kernel(OpPattern("nova.unit"), llvm(times(6.0))))):
        np.testing.assert_array_equal(hlojit.compile(UNIT)(X), 6 * X)
    with using(Units(kernel(OpPattern("nova.unit"), declining("units are busy")))):
        with pytest.raises(hlojit.UnsupportedError) as raised:
            hlojit.compile(UNIT)
        assert "only nova's units do that" in str(raised.value)
        assert "kernel 'nova.kernel' (plugin 'Units') declined: units are busy" in str(raised.value)
        assert "units are busy" in str(hlojit.kernel_report(UNIT))


def test_reasons_are_those_of_the_instruction_even_where_it_has_no_place() -> None:
    """Instructions that a builder made, of one op, all are at the place that is not known."""

    def build(group: KernelGroup) -> Any:
        return Declined(f"no unit for {group.result_types[0].size} numbers")

    with using(Units(kernel(OpPattern("nova.unit"), build))):
        module = Module()
        with build_function(module, "main", [tensor((8,), "f32"), tensor((9,), "f32")]) as b:
            b.return_(*(b.create("nova.unit", [argument]).result for argument in b.arguments))
        with pytest.raises(hlojit.UnsupportedError, match="declined: no unit for 8 numbers") as raised:
            hlojit.compile(module)
        assert "for 9 numbers" not in str(raised.value)


class Answer:
    """The form of a vendor's own back end."""

    def __init__(self, factor: float):
        self.factor = factor


class Nova(Backend):
    name = "nova"
    kernel_forms = (Answer,)

    def capability(self, instruction: Instruction) -> Capability:
        return no("it has no sorter") if instruction.op.name == "stablehlo.sort" else YES

    def compile(self, module: Module, options: CompileOptions) -> Callable[..., Sequence[Any]]:
        factors = [built.answer.factor for each in module.walk() if (built := kernel_answer(each)) is not None]
        assert factors == [2.0]
        return lambda *arrays: [10 * np.asarray(each) for each in evaluate(module, *arrays)]


class Device(Kernels):
    @hookimpl
    def hlojit_backends(self) -> Sequence[Backend]:
        return [Nova()]


def test_back_ends_of_plugins_take_forms_of_their_own() -> None:
    def build(group: KernelGroup) -> Any:
        return Answer(2.0) if group.backend == "nova" else Declined("elsewhere")

    with using(Device(kernel(CompositePattern("nova.negate"), build, backend="nova"))):
        text = program().replace("stablehlo.negate %x", 'stablehlo.composite "nova.negate" %x {decomposition = @f}')
        text = text.replace("} : tensor<1000xf32>", "} : (tensor<1000xf32>) -> tensor<1000xf32>")
        text += program().replace("@main", "private @f")
        np.testing.assert_array_equal(hlojit.compile(text, backend="nova")(X), -10 * X)
        np.testing.assert_array_equal(hlojit.compile(text)(X), -X)


def test_the_text_of_a_lowered_program_names_the_kernel_and_is_read_again() -> None:
    from hlojit.compiler import lower
    from hlojit.extensions import registry

    with using(Kernels(kernel(NEGATE, llvm(times(2.0))))):
        module = lower(hlojit.parse(program()), registry().backend("cpu"), CompileOptions())
        text = str(module)
        assert 'kernel = "nova.kernel"' in text and 'kind = "kernel"' in text
        again = hlojit.parse(text)
        hlojit.verify(again)
        np.testing.assert_array_equal(evaluate(again, X)[0], -X)
        with pytest.raises(hlojit.UnsupportedError, match="of the kernel 'nova.kernel' there is the name alone"):
            hlojit.compile(again)
