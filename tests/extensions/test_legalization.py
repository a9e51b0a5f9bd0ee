"""Legalization by capability: what a back end keeps, what is decomposed, and that it holds for whatever a pass builds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.extensions.calls.custom_calls import CustomCall
from hlojit.ir import Builder, evaluate
from hlojit.ir.ops.definition import Expand, OpDefinition, Operand


def plugin(api: tuple[int, int] | None = (1, 1), **hooks: Any) -> Any:
    """An object whose hooks return what is given: ``plugin(passes=[...])``."""

    def hook(items: Any) -> Any:
        return ext.hookimpl(lambda: items)

    made = SimpleNamespace(__name__="test", **{f"hlojit_{name}": hook(items) for name, items in hooks.items()})
    if api is not None:
        made.hlojit_api = api
    return made


class Recorder(ext.Backend):
    """Keeps what ``answer`` says, evaluates with the reference, and remembers the ops of the program that it got."""

    name = "recorder"

    def __init__(self, answer: Callable[[Any], Any] | None = None):
        self.answer = answer or (lambda instruction: ext.YES)
        self.asked: list[str] = []
        self.ops: list[str] = []

    def capability(self, instruction: Any) -> Any:
        self.asked.append(instruction.op.name)
        return self.answer(instruction)

    def compile(self, module: Any, options: Any) -> Any:
        self.ops = [each.op.name for each in module.walk()]
        return lambda *arrays: evaluate(module, *arrays)


class Fusing(Recorder):
    """The same, after fusion."""

    name = "fusing"
    fuses = True


def decomposing(*names: str) -> Callable[[Any], Any]:
    """YES to everything but the ops named."""
    return lambda instruction: ext.DECOMPOSE if instruction.op.name in names else ext.YES


X = np.linspace(-3, 3, 8, dtype="f4")
ONE = "tensor<8xf32>"


def program(line: str, result: str = ONE) -> str:
    return f"func.func @main(%x: {ONE}) -> {result} {{\n  %0 = {line}\n  return %0 : {result}\n}}"


def call(target: str, attributes: str = "") -> str:
    return program(f"stablehlo.custom_call @{target}(%x){attributes} : ({ONE}) -> {ONE}")


TOP_K = f"""
func.func @main(%x: {ONE}) -> (tensor<3xf32>, tensor<3xi32>) {{
  %0:2 = chlo.top_k(%x, k = 3) : {ONE} -> (tensor<3xf32>, tensor<3xi32>)
  return %0#0, %0#1 : tensor<3xf32>, tensor<3xi32>
}}
"""
COMPOSITE = f"""
func.func @main(%x: {ONE}) -> {ONE} {{
  %0 = stablehlo.composite "acme.swish" %x {{decomposition = @swish}} : ({ONE}) -> {ONE}
  return %0 : {ONE}
}}
func.func private @swish(%x: {ONE}) -> {ONE} {{
  %0 = stablehlo.logistic %x : {ONE}
  %1 = stablehlo.multiply %x, %0 : {ONE}
  return %1 : {ONE}
}}
"""
SWISH = X / (1 + np.exp(-X))
ABS = program(f"stablehlo.abs %x : {ONE}")


# ------------------------------------------------------------------------------------------------------ asked beforehand


@pytest.mark.parametrize("kind", [Recorder, Fusing])
def test_a_back_end_keeps_a_chlo_op(kind: type[Recorder]) -> None:
    backend = kind()
    with ext.using(plugin(backends=[backend])):
        values, indices = hlojit.compile(TOP_K, backend=backend.name)(X)
    assert "chlo.top_k" in backend.ops and "stablehlo.sort" not in backend.ops
    np.testing.assert_array_equal(values, X[:-4:-1])
    np.testing.assert_array_equal(indices, [7, 6, 5])


@pytest.mark.parametrize("answer", [ext.DECOMPOSE, ext.no("no sorter of its own")])
def test_what_a_back_end_does_not_keep_is_expanded(answer: Any) -> None:
    backend = Recorder(lambda instruction: answer if instruction.op.name == "chlo.top_k" else ext.YES)
    with ext.using(plugin(backends=[backend])):
        values, _ = hlojit.compile(TOP_K, backend="recorder")(X)
    assert "chlo.top_k" not in backend.ops and "stablehlo.sort" in backend.ops
    np.testing.assert_array_equal(values, X[:-4:-1])


def test_a_back_end_keeps_a_composite_with_its_decomposition() -> None:
    backend = Recorder()
    with ext.using(plugin(backends=[backend])):
        np.testing.assert_allclose(hlojit.compile(COMPOSITE, backend="recorder")(X), SWISH, rtol=1e-6)
    assert "stablehlo.composite" in backend.ops and "stablehlo.logistic" in backend.ops
    backend = Recorder(decomposing("stablehlo.composite"))
    with ext.using(plugin(backends=[backend])):
        np.testing.assert_allclose(hlojit.compile(COMPOSITE, backend="recorder")(X), SWISH, rtol=1e-6)
    assert "stablehlo.composite" not in backend.ops and "func.call" not in backend.ops


@pytest.mark.parametrize("registered", [True, False])
def test_a_back_end_keeps_a_custom_call(registered: bool) -> None:
    backend = Recorder()
    calls = [ext.ElementwiseCall("test.f", function=lambda x: x + 1)] if registered else []
    with ext.using(plugin(backends=[backend], custom_calls=calls)):
        hlojit.compile(call("test.f"), backend="recorder")
    assert backend.ops == ["stablehlo.custom_call", "func.return"]


def test_a_back_end_written_for_1_0_is_asked_about_expanded_ops_only() -> None:
    for api in ((1, 0), None):
        backend = Recorder()
        made = plugin(api, backends=[backend], custom_calls=[ext.ElementwiseCall("test.f", function=lambda x: x + 1)])
        with ext.using(made):
            hlojit.compile(TOP_K, backend="recorder")(X)
            assert "chlo.top_k" not in backend.asked and "stablehlo.sort" in backend.asked
            hlojit.compile(COMPOSITE, backend="recorder")
            assert "stablehlo.composite" not in backend.asked
            hlojit.compile(call("test.f"), backend="recorder")
            assert "stablehlo.custom_call" not in backend.asked
            with pytest.raises(hlojit.UnsupportedError, match=r"unknown custom call target 'test\.g'.*'test\.f'"):
                hlojit.compile(call("test.g"), backend="recorder")


# --------------------------------------------------------------------------------------------------- DECOMPOSE is no yes


def test_decompose_without_an_expansion_is_a_no_with_a_reason() -> None:
    with (
        ext.using(plugin(backends=[Recorder(decomposing("stablehlo.abs"))])),
        pytest.raises(
            hlojit.UnsupportedError, match=r"(?s)stablehlo\.abs .*'recorder'.*decomposed.*no expansion.*<string>:2"
        ),
    ):
        hlojit.compile(ABS, backend="recorder")


def test_an_expansion_that_declines_is_a_no_with_a_reason() -> None:
    """Reductions become loops where their regions are more than expressions."""
    text = """
    func.func @main(%x: tensor<8xf32>) -> tensor<f32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    """
    for api in ((1, 0), (1, 1)):
        with (
            ext.using(plugin(api, backends=[Recorder(decomposing("stablehlo.reduce"))])),
            pytest.raises(hlojit.UnsupportedError, match=r"stablehlo\.reduce.*'recorder'.*does not apply"),
        ):
            hlojit.compile(text, backend="recorder")


@pytest.mark.parametrize("answer", [True, None, False, 1, "yes", ext.Support.YES, ext.Capability])
def test_an_answer_that_is_none_is_a_plugin_error(answer: Any) -> None:
    with (
        ext.using(plugin(backends=[Recorder(lambda instruction: answer)])),
        pytest.raises(hlojit.PluginError, match=r"back end 'recorder'.*stablehlo\.abs.*YES, DECOMPOSE or no\(reason\)"),
    ):
        hlojit.compile(ABS, backend="recorder")


def test_a_capability_that_raises_is_a_plugin_error() -> None:
    def answer(instruction: Any) -> Any:
        raise ZeroDivisionError("inside")

    for text in (ABS, TOP_K):
        with (
            ext.using(plugin(backends=[Recorder(answer)])),
            pytest.raises(hlojit.PluginError, match=r"(?s)back end 'recorder'.*ZeroDivisionError.*<string>:"),
        ):
            hlojit.compile(text, backend="recorder")


def test_the_error_names_the_back_end_that_the_user_chose() -> None:
    for backend in ("cpu", "reference"):
        with pytest.raises(hlojit.UnsupportedError, match=rf"custom_call is not supported by the back end '{backend}'"):
            hlojit.compile(call("nobody.knows"), backend=backend)


# --------------------------------------------------------------------------------------- what passes and expansions build


def build_dot(builder: Builder, x: Any) -> Any:
    row = builder.reshape(x, (1, 8))
    return builder.reshape(builder.dot(row, builder.constant(np.eye(8, dtype="f4"))), (8,))


def build_chlo(builder: Builder, x: Any) -> Any:
    return builder.square(builder.sinh(x))


def build_call(builder: Builder, x: Any) -> Any:
    return builder.custom_call(x, call_target_name="test.outer", type=x.type)


def build_composite(builder: Builder, x: Any) -> Any:
    return builder.composite(x, name="test.c", decomposition="swish", type=x.type)


BUILT: dict[str, tuple[Callable[[Builder, Any], Any], Any]] = {
    "dot": (build_dot, np.abs(X)),
    "chlo": (build_chlo, np.sinh(np.abs(X)) ** 2),
    "call": (build_call, (np.abs(X) * 2 + 1) ** 2),
    "composite": (build_composite, np.abs(X) / (1 + np.exp(-np.abs(X)))),
}


def nested_calls() -> list[CustomCall]:
    """``test.outer`` expands into a CHLO op of ``test.inner``, which expands into an elementwise call."""

    def outer(builder: Any, instruction: Any) -> Any:
        (x,) = instruction.operands
        return [builder.square(builder.custom_call(x, call_target_name="test.inner", type=x.type))]

    def inner(builder: Any, instruction: Any) -> Any:
        (x,) = instruction.operands
        return [builder.custom_call(builder.add(x, x), call_target_name="test.one_more", type=x.type)]

    return [
        ext.ExpansionCall("test.outer", expand=outer),
        ext.ExpansionCall("test.inner", expand=inner),
        ext.ElementwiseCall("test.one_more", function=lambda x: x + 1),
    ]


def building(build: Callable[[Builder, Any], Any], in_phase: str) -> ext.Pass:
    """A pass of a phase that puts ``build(abs(x))`` in place of what the program returns."""

    @dataclass(frozen=True)
    class Building(ext.Pass):
        name: ClassVar[str] = "test-building"
        phase: ClassVar[str] = in_phase

        def run(self, module: Any) -> bool:
            main = module.main
            end = main.body.terminator
            end.operands = [build(Builder.in_front_of(end), end.operands[0])]
            return True

    return Building()


PHASES = ["import", "legalize", "simplify", "before-fusion", "fusion", "after-fusion", "before-codegen"]


@pytest.mark.parametrize("backend", ["cpu", "recorder"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("what", BUILT)
def test_what_a_pass_builds_is_legalized(what: str, phase: str, backend: str) -> None:
    build, expected = BUILT[what]
    higher = ("stablehlo.dot", "chlo.square", "stablehlo.composite", "stablehlo.custom_call")
    recorder = Recorder(decomposing(*higher))
    # Public, so that it is still there when a late pass calls it.
    function = COMPOSITE[COMPOSITE.index("func.func private") :].replace("private ", "")
    with ext.using(plugin(passes=[building(build, phase)], custom_calls=nested_calls(), backends=[recorder])):
        np.testing.assert_allclose(hlojit.compile(ABS + function, backend=backend)(X), expected, rtol=1e-6, atol=1e-7)
    assert not {*higher, "func.call"} & set(recorder.ops)


def test_a_call_inside_the_expansion_of_a_vendors_op() -> None:
    def expand(builder: Any, instruction: Any) -> Any:
        (x,) = instruction.operands
        return [builder.custom_call(x, call_target_name="test.outer", type=x.type)]

    op = OpDefinition("test.op", operands=(Operand("x"),), lowering=Expand(expand))
    text = program(f'"test.op"(%x) : ({ONE}) -> {ONE}')
    with ext.using(plugin(ops=[op], custom_calls=nested_calls())):
        for backend in ("cpu", "reference"):
            np.testing.assert_allclose(hlojit.compile(text, backend=backend)(X), (X * 2 + 1) ** 2, rtol=1e-6)


def test_an_expansion_that_builds_itself_is_named_with_its_origin() -> None:
    def itself(builder: Any, instruction: Any) -> Any:
        (x,) = instruction.operands
        return [builder.custom_call(builder.add(x, x), call_target_name="test.a", type=x.type)]

    def ping(target: str) -> Any:
        return lambda builder, i: [builder.custom_call(i.operands[0], call_target_name=target, type=i.operands[0].type)]

    with (
        ext.using(plugin(custom_calls=[ext.ExpansionCall("test.a", expand=itself)])),
        pytest.raises(hlojit.HlojitError, match=r"(?s)expansion .*test\.a.* builds itself.*<string>:2"),
    ):
        hlojit.compile(call("test.a"))
    calls = [ext.ExpansionCall("test.b", expand=ping("test.c")), ext.ExpansionCall("test.c", expand=ping("test.b"))]
    with (
        ext.using(plugin(custom_calls=calls)),
        pytest.raises(hlojit.HlojitError, match=r"(?s)builds itself.*test\.b.*test\.c"),
    ):
        hlojit.compile(call("test.b"))


def build_nonsense(builder: Any, instruction: Any) -> Any:
    """A transpose that repeats a dimension: every type is as the call's, only the verifier sees it."""
    (x,) = instruction.operands
    square = builder.reshape(x, (2, 4))
    attributes = {"permutation": (0, 0)}
    turned = builder.create("stablehlo.transpose", [square], attributes=attributes, result_types=[square.type]).result
    return [builder.reshape(turned, (8,))]


@pytest.mark.parametrize("hooks", [
    {"custom_calls": [ext.ExpansionCall("test.nonsense", expand=build_nonsense)]},
    {"ops": [OpDefinition("test.nonsense", operands=(Operand("x"),), lowering=Expand(build_nonsense))]},
])  # fmt: skip
def test_what_a_plugins_expansion_builds_is_verified(hooks: Any) -> None:
    line = "stablehlo.custom_call @test.nonsense" if "custom_calls" in hooks else '"test.nonsense"'
    with (
        ext.using(plugin(**hooks)),
        pytest.raises(hlojit.PluginError, match=r"(?s)test\.nonsense.*transpose \(C2\)"),
    ):
        hlojit.compile(program(f"{line}(%x) : ({ONE}) -> {ONE}"))


@pytest.mark.parametrize("returned", [lambda b, i: [1], lambda b, i: [], lambda b, i: 1 // 0, lambda b, i: 5])
def test_a_plugins_op_whose_expansion_fails_is_named(returned: Any) -> None:
    op = OpDefinition("test.op", operands=(Operand("x"),), lowering=Expand(returned))
    with ext.using(plugin(ops=[op])), pytest.raises(hlojit.PluginError, match=r"test\.op.*the expansion"):
        hlojit.compile(program(f'"test.op"(%x) : ({ONE}) -> {ONE}'))


def test_a_dead_call_of_an_unknown_target_is_removed() -> None:
    text = f"""
    func.func @main(%x: {ONE}) -> {ONE} {{
      %0 = stablehlo.custom_call @nobody.knows(%x) : ({ONE}) -> {ONE}
      return %x : {ONE}
    }}
    """
    for backend in ("cpu", "reference"):
        np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(X), X)
    effect = text.replace("(%x) :", "(%x) {has_side_effect = true} :")
    with pytest.raises(hlojit.UnsupportedError, match="nobody.knows"):
        hlojit.compile(effect)


# ----------------------------------------------------------------------------------------------------------------- phases


@pytest.mark.parametrize("kind", [Recorder, Fusing])
def test_phases_mean_the_same_whether_a_back_end_fuses_or_not(kind: type[Recorder]) -> None:
    ran: list[str] = []

    def noting(in_phase: str) -> ext.Pass:
        @dataclass(frozen=True)
        class Noting(ext.Pass):
            name: ClassVar[str] = f"test-{in_phase}"
            phase: ClassVar[str] = in_phase

            def run(self, module: Any) -> bool:
                ran.append(in_phase)
                return False

        return Noting()

    backend = kind()
    with ext.using(plugin(passes=list(map(noting, PHASES)), backends=[backend])):
        hlojit.compile(ABS, backend=backend.name)
    assert ran == PHASES


def test_the_fusion_pass_is_left_out_where_a_back_end_does_not_fuse() -> None:
    text = program(f"stablehlo.abs %x : {ONE}\n%1 = stablehlo.negate %0 : {ONE}").replace("return %0", "return %1")
    plain, fusing = Recorder(), Fusing()
    with ext.using(plugin(backends=[plain, fusing])):
        for backend in (plain, fusing):
            hlojit.compile(text, backend=backend.name)
    assert "hlojit.fusion" in fusing.ops and "hlojit.fusion" not in plain.ops


@pytest.mark.parametrize("phase", ["before-fusion", "fusion", "after-fusion", "before-codegen"])
@pytest.mark.parametrize("kind", [Recorder, Fusing])
def test_what_a_pass_leaves_dead_does_not_reach_the_back_end(kind: type[Recorder], phase: str) -> None:
    backend = kind()
    with ext.using(plugin(passes=[building(lambda b, x: b.constant(np.zeros(8, "f4")), phase)], backends=[backend])):
        np.testing.assert_array_equal(hlojit.compile(ABS, backend=backend.name)(X), 0)
    assert set(backend.ops) <= {"stablehlo.constant", "func.return"}


def test_a_back_end_is_asked_about_what_late_passes_build() -> None:
    for phase in ("after-fusion", "before-codegen"):
        backend = Fusing(lambda each: ext.no("no cosine") if each.op.name == "stablehlo.cosine" else ext.YES)
        with (
            ext.using(plugin(passes=[building(lambda b, x: b.cosine(x), phase)], backends=[backend])),
            pytest.raises(hlojit.UnsupportedError, match="stablehlo.cosine.*'fusing'.*no cosine"),
        ):
            hlojit.compile(ABS, backend="fusing")
        assert "hlojit.fusion" not in backend.asked


def test_lowering_leaves_the_module_as_the_back_end_gets_it() -> None:
    """``lower`` is the whole way: what is asked, expanded and removed."""
    backend = Recorder(decomposing("chlo.top_k"))
    with ext.using(plugin(backends=[backend])):
        module = lower(hlojit.parse(TOP_K), ext.registry().backend("recorder"), ext.CompileOptions())
    assert "stablehlo.sort" in str(module)


def test_fusion_limits_are_the_back_ends() -> None:
    from hlojit.ir.passes.fusion_limits import FusionLimits

    lines = [f"%{n} = stablehlo.add %{n - 1}, %{n - 1} : {ONE}" for n in range(1, 9)]
    text = program("\n".join([f"stablehlo.abs %x : {ONE}", *lines])).replace("return %0", "return %8")
    counts = {}
    for limit in (3, 64):
        backend = Fusing()
        backend.fusion_limits = FusionLimits(instructions=limit)
        with ext.using(plugin(backends=[backend])):
            hlojit.compile(text, backend="fusing")
        counts[limit] = backend.ops.count("hlojit.fusion")
    assert counts[64] == 1 and counts[3] >= 3
