"""What a back end is asked about, and what becomes of parts that it refuses when it is given them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import YES, Backend, Capability, CompileOptions, DeviceProgram, UnsupportedError, no
from hlojit.ir import Instruction, Module

from .test_placement import SORTED, X, Y, devices_of, refusing
from .vendor import OwnMemoryBackend, everything

Register = Callable[..., None]


def only(*names: str) -> Callable[[Instruction], Capability]:
    """Takes a list of ops, as a vendor writes it: nothing is said of what ends a block."""

    def answers(instruction: Instruction) -> Capability:
        return Capability(YES.support, cost=1.0) if instruction.name in names else no(f"no unit for {instruction.name}")

    return answers


class Recording(OwnMemoryBackend):
    """Notes what it was asked about."""

    def capability(self, instruction: Instruction) -> Capability:
        self.asked.add(instruction.name)
        return super().capability(instruction)

    asked: set[str]


LOOP = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %n = stablehlo.constant dense<3> : tensor<i32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %i0, %v = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %w = stablehlo.add %v, %v : tensor<4xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
    }
  return %r#1 : tensor<4xf32>
}
"""


def test_what_ends_a_block_is_not_asked_about(registered: Register) -> None:
    """Alone and in a list; constants are: segments hold them."""
    nova = Recording("nova", only("stablehlo.while", "stablehlo.add", "stablehlo.compare", "stablehlo.constant"))
    nova.asked = set()
    registered(nova, OwnMemoryBackend("last", everything(1e6)))
    for backend in ("nova", ["nova", "last"]):
        nova.asked.clear()
        executable = hlojit.compile(LOOP, backend=backend)
        assert nova.asked == {"stablehlo.while", "stablehlo.add", "stablehlo.compare", "stablehlo.constant"}
        np.testing.assert_array_equal(executable(np.ones(4, "f4")), np.full(4, 8, "f4"))
    assert devices_of(executable)["while"] == "nova:0"


class Refusing(OwnMemoryBackend):
    """Says yes to everything, and refuses some ops when it compiles them."""

    refused: tuple[str, ...] = ()
    named = True
    compiled = 0

    def compile(self, module: Module, options: CompileOptions) -> Any:
        self.compiled += 1
        for each in module.main.body:
            if each.name in self.refused:
                if not self.named:
                    raise UnsupportedError("the program", self.name, "it does not fit")
                raise UnsupportedError(each.name, self.name, "the unit is full", each.location)
        return super().compile(module, options)


@pytest.mark.parametrize("named", [True, False])
def test_what_is_refused_at_compile_is_placed_again(registered: Register, named: bool) -> None:
    nova = Refusing("nova", everything(1.0))
    nova.refused, nova.named = ("stablehlo.exponential",), named
    registered(nova, OwnMemoryBackend("last", everything(1e6)))
    executable = hlojit.compile(SORTED, backend=["nova", "last"])
    np.testing.assert_array_equal(executable(X, Y), hlojit.compile(SORTED, backend="reference")(X, Y))
    rows = {row.instruction.split()[0]: row for row in executable.placement().rows}
    why = rows["stablehlo.exponential"].why
    assert rows["stablehlo.exponential"].device == "last:0"
    assert f"it was refused when it was compiled: {'the unit is full' if named else 'it does not fit'}" in why
    # With a name only that op goes; without one all of the part.
    assert rows["stablehlo.sort"].device == ("nova:0" if named else "last:0")


def test_what_all_refuse_at_compile_is_an_error_with_their_reasons(registered: Register) -> None:
    nova, other = Refusing("nova", everything(1.0)), Refusing("other", everything(2.0))
    nova.refused = other.refused = ("stablehlo.sort",)
    registered(nova, other)
    with pytest.raises(hlojit.UnsupportedError) as caught:
        hlojit.compile(SORTED, backend=["nova", "other"])
    assert "stablehlo.sort is not supported by the back end 'nova:0+other:0'" in str(caught.value)
    for name in ("nova", "other"):
        assert f"{name}: it was refused when it was compiled: the unit is full" in str(caught.value)
    assert "<string>:5" in str(caught.value)


def test_many_refusals_end(registered: Register) -> None:
    """One op is refused at a time; the rest of what is left goes away with the last of a few rounds."""
    nova = Refusing("nova", everything(1.0))
    nova.refused = ("stablehlo.sine",)
    registered(nova, OwnMemoryBackend("last", everything(1e3)))
    lines = "\n".join(
        f"%{n} = stablehlo.{'sine' if n % 2 else 'cosine'} %{n - 1} : tensor<64xf32>" for n in range(1, 201)
    )
    text = f"func.func @main(%0: tensor<64xf32>) -> tensor<64xf32> {{\n{lines}\nreturn %200 : tensor<64xf32>\n}}"
    executable = hlojit.compile(text, backend=["nova", "last"])
    np.testing.assert_array_equal(executable(X), hlojit.compile(text, backend="reference")(X))
    assert nova.compiled < 40


def test_a_part_of_a_loop_that_is_refused_is_placed_again(registered: Register) -> None:
    class InLoops(OwnMemoryBackend):
        def compile(self, module: Module, options: CompileOptions) -> Any:
            for each in module.walk():
                if each.name == "stablehlo.add" and each.block is not module.main.body:
                    raise UnsupportedError(each.name, self.name, "no adders in loops", each.location)
            return DeviceProgram.of(module, module)

    registered(InLoops("nova", everything(1.0)), OwnMemoryBackend("last", everything(1e6)))
    executable = hlojit.compile(LOOP, backend=["nova", "last"])
    np.testing.assert_array_equal(executable(np.ones(4, "f4")), np.full(4, 8, "f4"))


def test_other_errors_of_compile_are_no_refusals(registered: Register) -> None:
    class Broken(Backend):
        name = "nova"

        def capability(self, instruction: Instruction) -> Capability:
            return Capability(YES.support, cost=1.0)

        def compile(self, module: Module, options: CompileOptions) -> Any:
            raise ValueError("a mistake")

    registered(Broken(), OwnMemoryBackend("last", everything(1e6)))
    with pytest.raises(hlojit.PluginError, match="compile raised ValueError..a mistake"):
        hlojit.compile(SORTED, backend=["nova", "last"])


def test_an_answer_that_looks_at_neighbours(registered: Register) -> None:
    """A neighbour that goes elsewhere is an argument of the part: the answer changes, and the op goes elsewhere, too."""

    def answers(instruction: Instruction) -> Capability:
        if instruction.name == "stablehlo.negate" and instruction.operands[0].producer is None:
            return no("it is fused into what is before it")
        return refusing("stablehlo.sort")(instruction)

    registered(OwnMemoryBackend("nova", answers), OwnMemoryBackend("last", everything(1e5)))
    text = SORTED.replace("multiply %2, %x", "add %2, %2").replace("negate %3", "negate %2")
    executable = hlojit.compile(text, backend=["nova", "last"])
    np.testing.assert_array_equal(executable(X, Y), hlojit.compile(text, backend="reference")(X, Y))
