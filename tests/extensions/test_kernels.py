"""Kernels by hook: what plugins' kernels are offered, which of them is taken, and what becomes of the others."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import (
    AnchorPattern,
    ArrayFunction,
    CompileOptions,
    CompositePattern,
    Declined,
    Kernel,
    KernelGroup,
    LlvmKernel,
    OpPattern,
    SubgraphPattern,
    hookimpl,
    register,
    unregister,
    using,
)
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Kernel as Lowered
from hlojit.ir.ops.definition import OpDefinition, Operand

from .kernel_plugins import Kernels, declining, kernel, launched, llvm, loop, times

X = np.linspace(-2, 2, 999, dtype="f4")
NEGATED = """func.func @main(%x: tensor<999xf32>) -> tensor<999xf32> {
  %0 = stablehlo.negate %x : tensor<999xf32>
  return %0 : tensor<999xf32>
}"""
COMPOSITE = """func.func @main(%x: tensor<999xf32>) -> tensor<999xf32> {
  %0 = stablehlo.composite "nova.triple" %x {decomposition = @triple} : (tensor<999xf32>) -> tensor<999xf32>
  return %0 : tensor<999xf32>
}
func.func private @triple(%x: tensor<999xf32>) -> tensor<999xf32> {
  %0 = func.call @twice(%x) : (tensor<999xf32>) -> tensor<999xf32>
  %1 = stablehlo.add %0, %x : tensor<999xf32>
  return %1 : tensor<999xf32>
}
func.func private @twice(%x: tensor<999xf32>) -> tensor<999xf32> {
  %0 = stablehlo.add %x, %x : tensor<999xf32>
  return %0 : tensor<999xf32>
}"""
CHAIN = """func.func @main(%x: tensor<999xf32>, %y: tensor<999xf32>) -> (tensor<999xf32>, tensor<999xf32>) {
  %two = stablehlo.constant dense<2.0> : tensor<999xf32>
  %0 = stablehlo.multiply %x, %two : tensor<999xf32>
  %1 = stablehlo.sine %0 : tensor<999xf32>
  %2 = stablehlo.cosine %y : tensor<999xf32>
  %3 = stablehlo.negate %0 : tensor<999xf32>
  return %3, %1 : tensor<999xf32>, tensor<999xf32>
}"""


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    yield
    unregister("Kernels")


def is_negation_of_product(instruction: Instruction) -> Sequence[Instruction] | None:
    inner = instruction.operands[0].producer if instruction.op.name == "stablehlo.negate" else None
    return [instruction, inner] if inner is not None and inner.op.name == "stablehlo.multiply" else None


def test_an_op_is_taken_over() -> None:
    with using(Kernels(kernel(OpPattern("stablehlo.negate"), llvm(times(-3.0))))):
        executable = hlojit.compile(NEGATED)
    np.testing.assert_array_equal(executable(X), -3 * X)
    assert launched(executable) == ["nova.kernel"]


def test_a_composite_is_taken_over_with_its_decomposition_as_its_meaning() -> None:
    groups: list[KernelGroup] = []

    def build(group: KernelGroup) -> LlvmKernel:
        groups.append(group)
        return LlvmKernel(times(3.0), tasks=group.result_types[0].size)

    with using(Kernels(kernel(CompositePattern("nova.triple"), build))):
        executable = hlojit.compile(COMPOSITE)
    np.testing.assert_array_equal(executable(X), 3 * X)
    assert launched(executable) == ["nova.kernel"]
    (group,) = groups
    assert [each.op.name for each in group.instructions] == ["stablehlo.add", "stablehlo.add"]
    assert group.anchor is None and group.backend == "cpu" and group.target.machine is not None
    np.testing.assert_array_equal(group.evaluate(X)[0], 3 * X)


def test_what_declines_is_decomposed_as_ever() -> None:
    with using(Kernels(kernel(CompositePattern("nova.triple"), declining("too short")))):
        executable = hlojit.compile(COMPOSITE)
        report = hlojit.kernel_report(COMPOSITE)
    np.testing.assert_array_equal(executable(X), 3 * X)
    assert launched(executable) == ["hlojit.fusion"]
    assert "nova.kernel (plugin 'Kernels') for composite 'nova.triple'" in str(
        report
    ) and "not taken: too short" in str(report)
    assert not report.taken


def test_a_subgraph_is_taken_over_and_what_stands_between_moves_behind_it() -> None:
    groups: list[KernelGroup] = []

    def build(group: KernelGroup) -> LlvmKernel:
        groups.append(group)
        body = "  %value = fmul float %element, -2.0"
        # Both results are wanted: the product, and its negation.
        two = loop(body + "\n  %product = fneg float %value\n  %first = getelementptr ptr, ptr %buffers, i64 1\n"
                   "  %other = load ptr, ptr %first\n  %there = getelementptr float, ptr %other, i64 %i\n"
                   "  store float %product, ptr %there", operands=2)  # fmt: skip
        return LlvmKernel(two, tasks=999)

    plugin = Kernels(kernel(SubgraphPattern(is_negation_of_product, root="stablehlo.negate"), build))
    with using(plugin):
        executable = hlojit.compile(CHAIN)
    negated, sine = executable(X, X)
    np.testing.assert_array_equal(negated, -2 * X)
    np.testing.assert_allclose(sine, np.sin(2 * X), rtol=1e-5, atol=1e-6)
    (group,) = groups
    assert [each.op.name for each in group.instructions] == ["stablehlo.multiply", "stablehlo.negate"]
    assert group.anchor is not None and group.anchor.op.name == "stablehlo.negate"
    constant = group.constant(group.instructions[0].operands[1])
    assert constant is not None and constant.flat[0] == 2.0 and len(group.operand_types) == 1
    assert group.layouts == ((1,), (1,), (1,))
    np.testing.assert_array_equal(group.evaluate(X)[1], -2 * X)


def test_a_group_that_needs_itself_is_refused_with_the_reason() -> None:
    text = """func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {
      %0 = stablehlo.tanh %x : tensor<9xf32>
      %1 = stablehlo.sine %0 : tensor<9xf32>
      %2 = stablehlo.add %0, %1 : tensor<9xf32>
      return %2 : tensor<9xf32>
    }"""

    def match(instruction: Instruction) -> Any:
        return [instruction, instruction.operands[0].producer] if instruction.op.name == "stablehlo.add" else None

    plugin = Kernels(kernel(SubgraphPattern(match), declining("never asked")))
    with using(plugin):
        report = str(hlojit.kernel_report(text))
        assert "there is no such group: stablehlo.sine at" in report and "never asked" not in report
        np.testing.assert_allclose(hlojit.compile(text)(X[:9]), np.tanh(X[:9]) + np.sin(np.tanh(X[:9])), rtol=1e-5)


def test_groups_in_loops_and_branches_are_offered() -> None:
    text = """func.func @main(%x: tensor<999xf32>) -> tensor<999xf32> {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<999xf32>
        cond { %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
               stablehlo.return %c : tensor<i1> }
        do { %j = stablehlo.add %i, %one : tensor<i32>
             %b = stablehlo.negate %a : tensor<999xf32>
             %c = stablehlo.sine %b : tensor<999xf32>
             stablehlo.return %j, %c : tensor<i32>, tensor<999xf32> }
      return %r#1 : tensor<999xf32>
    }"""
    with using(Kernels(kernel(OpPattern("stablehlo.negate"), llvm(times(-2.0))))):
        executable = hlojit.compile(text)
    expected = X
    for _ in range(3):
        expected = np.sin(-2 * expected)
    np.testing.assert_allclose(executable(X), expected, rtol=1e-5)


@pytest.mark.parametrize("op", ["stablehlo.reduce", "stablehlo.dot_general"])
def test_groups_of_the_fusion_passes_are_offered_by_their_anchor(op: str) -> None:
    text = """func.func @main(%x: tensor<4x8xf32>, %y: tensor<8x5xf32>) -> (tensor<4xf32>, tensor<4x5xf32>) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.multiply %x, %x : tensor<4x8xf32>
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
         : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
      %2 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
      return %1, %2 : tensor<4xf32>, tensor<4x5xf32>
    }"""
    seen: list[list[str]] = []

    def build(group: KernelGroup) -> LlvmKernel:
        assert group.anchor is not None and group.anchor.op.name == op
        seen.append([each.op.name for each in group.instructions])
        # Whatever it is: zeros.
        return LlvmKernel(loop("  %value = fsub float 0.0, 0.0", operands=len(group.operand_types)),
                          tasks=group.result_types[0].size)  # fmt: skip

    with using(Kernels(kernel(AnchorPattern(op), build))):
        executable = hlojit.compile(text)
    x, y = np.ones((4, 8), "f4"), np.ones((8, 5), "f4")
    sums, product = executable(x, y)
    is_sum = op == "stablehlo.reduce"
    assert seen == ([["stablehlo.multiply", "stablehlo.reduce"]] if is_sum else [["stablehlo.dot_general"]])
    np.testing.assert_array_equal(sums, np.zeros(4) if is_sum else np.full(4, 8))
    np.testing.assert_array_equal(product, np.full((4, 5), 8) if is_sum else np.zeros((4, 5)))


@pytest.mark.parametrize("declines", [False, True], ids=["taken", "declined"])
def test_a_product_is_offered_with_what_follows_it(declines: bool) -> None:
    text = """func.func @main(%x: tensor<64x96xf32>, %y: tensor<96x80xf32>, %b: tensor<80xf32>) -> tensor<64x80xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<64x80xf32>
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<64x96xf32>, tensor<96x80xf32>) -> tensor<64x80xf32>
      %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<80xf32>) -> tensor<64x80xf32>
      %2 = stablehlo.add %0, %1 : tensor<64x80xf32>
      %3 = stablehlo.maximum %2, %zero : tensor<64x80xf32>
      return %3 : tensor<64x80xf32>
    }"""
    seen: list[KernelGroup] = []

    def build(group: KernelGroup) -> Any:
        seen.append(group)
        if declines:
            return Declined("no")
        return ArrayFunction(lambda *operands: group.evaluate(*operands)[0], trust="python")

    with using(Kernels(kernel(AnchorPattern("stablehlo.dot_general"), build))):
        executable = hlojit.compile(text)
    (group,) = seen
    assert group.anchor is not None and group.anchor.op.name == "stablehlo.dot_general"
    names = [each.op.name.rpartition(".")[2] for each in group.instructions]
    assert names == ["dot_general", "broadcast_in_dim", "add", "maximum"]
    generator = np.random.default_rng(0)
    x, y, b = (generator.integers(-9, 9, kind.shape).astype("f4") for kind in group.operand_types)
    np.testing.assert_array_equal(executable(x, y, b), np.maximum(x @ y + b, 0))
    assert launched(executable) == ["hlojit.fusion" if declines else "nova.kernel"]


# ------------------------------------------------------------------------------------------------------- which is taken


def test_priority_then_cost_then_name_decide() -> None:
    def taken(*kernels: Kernel) -> Any:
        with using(Kernels(*kernels)):
            return hlojit.compile(NEGATED)(X)[0] / X[0]

    pattern = OpPattern("stablehlo.negate")
    two, three, four = (llvm(times(float(n))) for n in (2, 3, 4))
    unknown = llvm(times(5.0), cost=100_000.0)
    assert taken(kernel(pattern, two, "b"), kernel(pattern, three, "a")) == 3, "the first name"
    assert taken(kernel(pattern, two, "b", cost=10), kernel(pattern, three, "a", cost=11.0)) == 2, "the least cost"
    assert taken(kernel(pattern, two, "b", cost=lambda group: 9), kernel(pattern, three, "a", cost=10)) == 2
    assert taken(kernel(pattern, unknown, "a"), kernel(pattern, four, "b")) == 4, "a cost before none"
    assert taken(kernel(pattern, two, "b", priority=1), kernel(pattern, three, "a", cost=1)) == 2, "priority"
    first = kernel(pattern, declining("no"), "b", priority=1)
    assert taken(first, kernel(pattern, three, "a")) == 3, "who comes first declines"


def test_the_report_says_who_was_asked_and_what_was_decided() -> None:
    pattern = OpPattern("stablehlo.negate")
    kernels = [
        kernel(pattern, llvm(times(2.0)), "nova.fast", cost=10),
        kernel(pattern, llvm(times(2.0)), "nova.slow", cost=20),
        kernel(pattern, declining("odd length"), "nova.even"),
        kernel(pattern, declining("unasked"), "nova.last", priority=-1),
        kernel(OpPattern("stablehlo.sine"), declining("never"), "nova.sine"),
    ]
    with using(Kernels(*kernels)):
        report = hlojit.kernel_report(hlojit.parse(NEGATED, source_name="model.mlir"))
    assert [each.kernel for each in report.taken] == ["nova.fast"]
    assert str(report).splitlines() == [
        "nova.even (plugin 'Kernels') for stablehlo.negate at model.mlir:2:3: not taken: odd length",
        "nova.slow (plugin 'Kernels') for stablehlo.negate at model.mlir:2:3: not taken: nova.fast comes before it: "
        "its cost is 10 ns, not 20 ns",
        "nova.last (plugin 'Kernels') for stablehlo.negate at model.mlir:2:3: not taken: nova.fast has a higher priority",
        "nova.fast (plugin 'Kernels') for stablehlo.negate at model.mlir:2:3: taken, 10 ns",
        "nova.sine (plugin 'Kernels'): the program has no instructions of stablehlo.sine",
    ]
    assert str(hlojit.kernel_report(NEGATED)) == "no plugin has kernels for the back end 'cpu'"


def test_the_command_prints_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hlojit.command import main

    path = tmp_path / "model.mlir"
    path.write_text(NEGATED)
    assert main(["kernels", str(path)]) == 0
    assert capsys.readouterr().out == "no plugin has kernels for the back end 'cpu'\n"
    with using(Kernels(kernel(OpPattern("stablehlo.negate"), llvm(times(2.0))))):
        assert main(["kernels", str(path), "--backend", "cpu"]) == 0
        assert main(["kernels", str(path), "--backend", "reference"]) == 0
        assert main(["plugins"]) == 0
    printed = capsys.readouterr().out
    assert "nova.kernel (plugin 'Kernels') for stablehlo.negate at" in printed and "taken, 999 ns" in printed
    assert "no plugin has kernels for the back end 'reference'" in printed and "kernel nova.kernel" in printed


def test_the_report_has_the_groups_as_programs_of_their_own() -> None:
    with using(Kernels(kernel(OpPattern("stablehlo.negate"), llvm(times(-1.0))))):
        (taken,) = hlojit.kernel_report(NEGATED).taken
        assert taken.graph is not None
        found = hlojit.compile(taken.graph)
        assert launched(found) == ["nova.kernel"]
    np.testing.assert_array_equal(found(X), hlojit.compile(taken.graph, backend="reference")(X))


def test_back_ends_and_ops_that_nobody_registers_are_warned_of() -> None:
    wrong = (
        kernel(OpPattern("stablehlo.negat"), declining("no"), "a"),
        kernel(AnchorPattern("stablehlo.add"), declining("no"), "b", backend="cpx"),
        kernel(SubgraphPattern(lambda each: None, root="stablehlo.dot"), declining("no"), "c"),
    )
    with using(Kernels(*wrong)), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hlojit.compile(NEGATED)
    texts = [str(each.message) for each in caught]
    assert texts == [
        "kernel 'a' (plugin 'Kernels'): OpPattern names the op 'stablehlo.negat', which nobody registers; "
        "did you mean 'stablehlo.negate' or 'stablehlo.rng' or 'stablehlo.not'?",
        "kernel 'b' (plugin 'Kernels'): backend is 'cpx', which nobody registers; did you mean 'cpu'?",
    ]


def test_equal_groups_are_built_once() -> None:
    lines = "\n".join(
        f"  %{n + 1} = stablehlo.sine %{n}n : tensor<9xf32>\n  %{n + 1}n = stablehlo.negate %{n + 1} : tensor<9xf32>"
        for n in range(4)
    ).replace("%0n", "%x")
    text = f"func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {{\n{lines}\n  return %4n : tensor<9xf32>\n}}"
    asked: list[KernelGroup] = []

    def build(group: KernelGroup) -> LlvmKernel:
        asked.append(group)
        return LlvmKernel(times(-1.0), tasks=9)

    with using(Kernels(kernel(OpPattern("stablehlo.negate"), build))):
        executable = hlojit.compile(text)
    assert len(asked) == 1 and launched(executable).count("nova.kernel") == 4


# ---------------------------------------------------------------------------------------------------------- environment


def test_registering_again_replaces_and_unregistering_restores() -> None:
    def factor() -> float:
        return float(hlojit.compile(NEGATED)(X)[0] / X[0])

    assert factor() == -1
    register(Kernels(kernel(OpPattern("stablehlo.negate"), llvm(times(2.0)))))
    assert factor() == 2
    register(Kernels(kernel(OpPattern("stablehlo.negate"), llvm(times(3.0)))))
    assert factor() == 3
    kept = hlojit.compile(NEGATED)
    unregister("Kernels")
    assert factor() == -1
    assert kept(X)[0] / X[0] == 3


def test_a_scope_is_seen_by_its_own_thread_alone() -> None:
    found: dict[str, float] = {}

    def compile_here(name: str) -> None:
        found[name] = float(hlojit.compile(NEGATED)(X)[0] / X[0])

    with using(Kernels(kernel(OpPattern("stablehlo.negate"), llvm(times(2.0))))):
        thread = threading.Thread(target=compile_here, args=["other"])
        thread.start()
        thread.join()
        compile_here("own")
    assert found == {"own": 2, "other": -1}


def test_jitted_functions_take_kernels_of_their_plugins() -> None:
    plugin = Kernels(kernel(OpPattern("stablehlo.negate"), llvm(times(-5.0))))

    @hlojit.jit(plugins=[plugin])
    def negated(x: Any) -> Any:
        return -x

    np.testing.assert_array_equal(negated(X), -5 * X)


def test_names_have_one_owner_and_built_in_ones_are_taken() -> None:
    plugin = Kernels(kernel(OpPattern("stablehlo.negate"), declining("no"), "cpu.dot_general"))
    with pytest.raises(hlojit.PluginError, match="registers the kernel 'cpu.dot_general', which is built in"):
        register(plugin)


def test_without_kernels_of_plugins_there_is_no_pass() -> None:
    from hlojit.compiler import default_pipeline
    from hlojit.extensions import registry

    options = CompileOptions()
    backend = registry().backend("cpu")
    assert "kernel-selection" not in str(default_pipeline(backend, options))
    plugin = Kernels(kernel(OpPattern("stablehlo.negate"), llvm(times(2.0))))
    with using(plugin):
        assert str(default_pipeline(backend, options)).count("kernel-selection") == 3
        left_out = hlojit.compile(NEGATED, options={"disable_passes": ("kernel-selection",)})
    np.testing.assert_array_equal(left_out(X), -X)


def test_several_threads_compile_the_same_from_a_cold_start() -> None:
    plugin = Kernels(kernel(SubgraphPattern(is_negation_of_product), declining("no"), "a"),
                     kernel(OpPattern("stablehlo.negate"), llvm(times(2.5)), "b"))  # fmt: skip
    results: list[Any] = []

    def work() -> None:
        with using(plugin):
            results.append(hlojit.compile(NEGATED)(X))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for each in results:
        np.testing.assert_array_equal(each, np.float32(2.5) * X)


def test_a_declined_reason_is_a_text() -> None:
    assert Declined("rows are odd").reason == "rows are odd"
    with pytest.raises(hlojit.PluginError, match="a text that is not empty"):
        Declined("")


@pytest.mark.parametrize("declines", [False, True], ids=["taken", "declined"])
@pytest.mark.parametrize("text", [NEGATED, COMPOSITE], ids=["op", "composite"])
def test_parts_of_programs_for_several_back_ends_take_kernels_of_theirs(text: str, declines: bool) -> None:
    build = declining("not today") if declines else llvm(times(4.0))
    plugin = Kernels(
        kernel(OpPattern("stablehlo.negate"), build, "nova.negate"),
        kernel(CompositePattern("nova.triple"), build, "nova.triple"),
    )
    expected = (-X if text is NEGATED else 3 * X) if declines else 4 * X
    with using(plugin):
        np.testing.assert_array_equal(hlojit.compile(text, backend=["cpu", "reference"])(X), expected)


def test_an_op_that_only_a_kernel_computes_runs_where_the_kernel_is() -> None:
    record = OpDefinition(
        "nova.unit",
        operands=(Operand("x"),),
        infer=lambda request: [request.operand_types[0]],
        lowering=Lowered("unit"),
    )
    plugin = SimpleNamespace(
        __name__="nova",
        hlojit_ops=hookimpl(lambda: [record]),
        hlojit_kernels=hookimpl(lambda: [kernel(OpPattern("nova.unit"), llvm(times(6.0)))]),
    )
    text = """func.func @main(%x: tensor<999xf32>) -> tensor<999xf32> {
      %0 = "nova.unit"(%x) : (tensor<999xf32>) -> tensor<999xf32>
      return %0 : tensor<999xf32>
    }"""
    with using(plugin):
        np.testing.assert_array_equal(hlojit.compile(text, backend=["reference", "cpu"])(X), 6 * X)
