"""Back ends decide themselves what becomes one kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import DECOMPOSE, YES, Backend, Capability, Cost, Pass, can_decompose, hookimpl, registry
from hlojit.ir import Instruction, Module, evaluate

CHAIN = """
func.func @main(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = stablehlo.add %x, %x : tensor<8xf32>
  %1 = stablehlo.exponential %0 : tensor<8xf32>
  %2 = stablehlo.multiply %1, %x : tensor<8xf32>
  %3 = stablehlo.negate %x : tensor<8xf32>
  return %2, %3 : tensor<8xf32>, tensor<8xf32>
}
"""


class Fusing(Backend):
    """Interprets what it is given, and remembers it."""

    name = "fusing"
    fuses = True

    def __init__(self) -> None:
        self.modules: list[Module] = []

    def capability(self, instruction: Instruction) -> Capability:
        return DECOMPOSE if can_decompose(instruction) else YES

    def compile(self, module: Module, options: Any) -> Any:
        self.modules.append(module)
        return lambda *arrays: evaluate(module, *arrays)

    @property
    def groups(self) -> list[list[str]]:
        """The names in each fusion, and of what stands alone."""
        return [
            [
                each.name.partition(".")[2]
                for each in (instruction.regions[0] if instruction.regions else [instruction])
                if not each.op.is_terminator
            ]
            for instruction in self.modules[-1].main.body
            if not instruction.op.is_terminator
        ]


@contextmanager
def registered(backend: Backend, *passes: Pass) -> Iterator[None]:
    class Vendor:
        hlojit_api = (1, 1)

        @hookimpl
        def hlojit_backends(self) -> list[Backend]:
            return [backend]

        @hookimpl
        def hlojit_passes(self) -> list[Pass]:
            return list(passes)

    with registry().load().using(Vendor()):
        yield


def compiled(backend: Fusing, text: str = CHAIN) -> list[list[str]]:
    with registered(backend):
        executable = hlojit.compile(text, backend="fusing")
        x = np.arange(8, dtype="f4") / 8
        for found, right in zip(executable(x), hlojit.compile(text, backend="reference")(x)):
            np.testing.assert_array_equal(found, right)
    return backend.groups


def test_by_default_the_chain_is_one_kernel() -> None:
    assert compiled(Fusing()) == [["add", "exponential", "multiply", "negate"]]


def test_a_no_keeps_a_producer_out_of_its_readers_and_groups_apart() -> None:
    class Wary(Fusing):
        def fuses_into(self, producer: Instruction, group: Sequence[Instruction]) -> bool | None:
            assert all(isinstance(each, Instruction) for each in group)
            return False if producer.name == "stablehlo.exponential" else None

    assert compiled(Wary()) == [["add", "exponential"], ["multiply", "negate"]]


def test_a_yes_goes_beyond_the_limits() -> None:
    from hlojit.ir.passes.fusion_limits import FusionLimits

    class Small(Fusing):
        fusion_limits = FusionLimits(instructions=1)

    class Eager(Small):
        def fuses_into(self, producer: Instruction, group: Sequence[Instruction]) -> bool | None:
            return True if producer.name == "stablehlo.add" else None

    assert compiled(Small()) == [["add"], ["exponential"], ["multiply"], ["negate"]]
    assert compiled(Eager()) == [["add", "exponential"], ["multiply"], ["negate"]]


PRODUCT = """
func.func @main(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = stablehlo.tanh %0 : tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}
"""


@pytest.mark.parametrize("answer", [None, False])
def test_a_no_keeps_an_anchor_out_of_what_follows_it(answer: bool | None) -> None:
    from hlojit.ir.ops.definition import op
    from hlojit.ir.passes.fusion_limits import FusionLimits

    class Anchored(Fusing):
        fusion_limits = FusionLimits(anchors=frozenset({op("stablehlo.dot_general").lowering.name}))  # type: ignore[union-attr]

        def fuses_into(self, producer: Instruction, group: Sequence[Instruction]) -> bool | None:
            return answer if producer.name == "stablehlo.dot_general" else None

    backend = Anchored()
    with registered(backend):
        hlojit.compile(PRODUCT, backend="fusing")
    together = ["dot_general", "tanh"]
    assert backend.groups == ([together] if answer is None else [[each] for each in together])


TWICE = """
func.func @main(%x: tensor<64x32xf32>) -> (tensor<64xf32>, tensor<32xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.exponential %x : tensor<64x32xf32>
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  %2 = stablehlo.reduce(%0 init: %z) applies stablehlo.maximum across dimensions = [0] : (tensor<64x32xf32>, tensor<f32>) -> tensor<32xf32>
  return %1, %2 : tensor<64xf32>, tensor<32xf32>
}
"""


@pytest.mark.parametrize(("cost", "times"), [(None, 1), (Cost.EXPENSIVE, 1), (Cost.CHEAP, 2)])
def test_costs_are_the_back_ends(cost: Cost | None, times: int) -> None:
    """What is cheap is computed by each kernel that reads it."""

    class Priced(Fusing):
        def element_cost(self, instruction: Instruction) -> Cost | None:
            return cost

    backend = Priced()
    with registered(backend):
        hlojit.compile(TWICE, backend="fusing")
    assert sum(group.count("exponential") for group in backend.groups) == times


def test_wrong_answers_name_the_back_end() -> None:
    def answering(answer: Callable[[], Any]) -> Fusing:
        class Wrong(Fusing):
            def fuses_into(self, producer: Instruction, group: Sequence[Instruction]) -> Any:
                return answer()

        return Wrong()

    with pytest.raises(
        hlojit.PluginError, match="back end 'fusing' .*: fuses_into for stablehlo.exponential returned 'yes'"
    ):
        compiled(answering(lambda: "yes"))
    with pytest.raises(hlojit.PluginError, match="fuses_into for stablehlo.exponential raised ZeroDivisionError"):
        compiled(answering(lambda: 1 // 0))


# ----------------------------------------------------------------------------------------------------- dead code


@pytest.mark.parametrize("fuses", [False, True])
def test_dead_code_of_before_fusion_passes_reaches_no_back_end(fuses: bool) -> None:
    from hlojit.ir import Builder

    class Litter(Pass):
        name = "litter"
        phase = "before-fusion"

        def run(self, module: Module) -> bool:
            body = module.main.body
            builder = Builder(body, before=body.terminator)
            builder.exponential(builder.add(body.arguments[0], body.arguments[0]))
            return True

    backend = Fusing()
    backend.fuses = fuses
    with registered(backend, Litter()):
        hlojit.compile(
            "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> { return %x : tensor<8xf32> }", backend="fusing"
        )
    assert backend.groups == []
