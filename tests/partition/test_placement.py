"""Where instructions go, and what is moved for that."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import hlojit
import numpy as np
import pytest
from hlojit.extensions import (
    DECOMPOSE,
    YES,
    ArrayCall,
    Capability,
    CustomCall,
    ElementwiseCall,
    ExpansionCall,
    can_decompose,
    hookimpl,
    no,
    registry,
)
from hlojit.ir import Instruction

from .vendor import Answers, OwnMemoryBackend, everything

Register = Callable[..., None]

SORTED = """
func.func @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.add %x, %y : tensor<64xf32>
  %1 = stablehlo.exponential %0 : tensor<64xf32>
  %2 = "stablehlo.sort"(%1) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %s : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  %3 = stablehlo.multiply %2, %x : tensor<64xf32>
  %4 = stablehlo.negate %3 : tensor<64xf32>
  return %4 : tensor<64xf32>
}
"""
X, Y = np.linspace(0, 1, 64, dtype="f4"), np.linspace(1, 0, 64, dtype="f4") ** 2


def refusing(*names: str, cost: float = 1.0) -> Answers:
    """Takes everything but these ops."""

    def answers(instruction: Instruction) -> Capability:
        if instruction.name in names:
            return no(f"there is no {instruction.name.partition('.')[2]} unit")
        return DECOMPOSE if can_decompose(instruction) else Capability(YES.support, cost=cost)

    return answers


def devices_of(executable: hlojit.Executable) -> dict[str, str]:
    return {row.instruction.split()[0].partition(".")[2]: row.device for row in executable.placement().rows}


def test_what_a_device_does_not_take_goes_to_the_next(registered: Register) -> None:
    registered(OwnMemoryBackend("nova", refusing("stablehlo.sort")), OwnMemoryBackend("last", everything(1e6)))
    executable = hlojit.compile(SORTED, backend=["nova", "last"])
    assert devices_of(executable) == {
        "add": "nova:0",
        "exponential": "nova:0",
        "sort": "last:0",
        "multiply": "nova:0",
        "negate": "nova:0",
    }
    assert [str(each.place) for each in executable.segments] == ["nova:0", "last:0", "nova:0"]
    np.testing.assert_array_equal(executable(X, Y), hlojit.compile(SORTED, backend="reference")(X, Y))


def test_one_cheap_op_is_not_worth_moving(registered: Register) -> None:
    """The neighbours of a sort stay with it, though the preferred device would take them."""
    registered(OwnMemoryBackend("nova", refusing("stablehlo.sort")), OwnMemoryBackend("last", everything(100.0)))
    executable = hlojit.compile(SORTED, backend=["nova", "last"])
    assert set(devices_of(executable).values()) == {"last:0"}
    whys = {row.instruction.split()[0]: row.why for row in executable.placement().rows}
    assert whys["stablehlo.sort"] == "only last takes it (nova: there is no sort unit)"
    assert whys["stablehlo.add"].startswith(
        "stays with its neighbours: moving would cost more than the 99 ns that nova"
    )


def test_the_first_is_preferred(registered: Register) -> None:
    """Of back ends that say nothing of costs."""
    registered(OwnMemoryBackend("nova"), OwnMemoryBackend("last"))
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.negate %x : tensor<4xf32>\nreturn %0 : tensor<4xf32> }"
    for names in (["nova", "last"], ["last", "nova"], ["nova", "cpu"]):
        executable = hlojit.compile(text, backend=names)
        assert devices_of(executable) == {"negate": f"{names[0]}:0"}


def test_what_nobody_takes_is_an_error_with_everybodys_reason(registered: Register) -> None:
    registered(
        OwnMemoryBackend("nova", refusing("stablehlo.sort")), OwnMemoryBackend("other", refusing("stablehlo.sort"))
    )
    with pytest.raises(hlojit.UnsupportedError) as caught:
        hlojit.compile(SORTED, backend=["nova", "other"])
    assert "stablehlo.sort is not supported by the back end 'nova:0+other:0'" in str(caught.value)
    assert "nova: there is no sort unit; other: there is no sort unit" in str(caught.value)
    assert "<string>:5" in str(caught.value)


COMPOSITE = """
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.composite "acme.twice" %x {decomposition = @twice} : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func private @twice(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.add %x, %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""


def test_what_a_device_keeps_is_not_expanded_if_it_goes_there(registered: Register) -> None:
    nova = OwnMemoryBackend("nova", lambda instruction: YES)
    other = OwnMemoryBackend("other", everything(1e3))
    registered(nova, other)
    executable = hlojit.compile(COMPOSITE, backend=["nova", "other"])
    np.testing.assert_array_equal(executable(np.ones(8, "f4")), np.full(8, 2, "f4"))
    assert "stablehlo.composite" in nova.programs[-1] and "@twice" in nova.programs[-1]


def test_what_another_device_keeps_is_expanded_where_it_goes(registered: Register) -> None:
    def dear(instruction: Instruction) -> Capability:
        return Capability(YES.support, cost=1e9)

    other = OwnMemoryBackend("other", everything(1.0))
    registered(OwnMemoryBackend("nova", dear), other)
    executable = hlojit.compile(COMPOSITE, backend=["nova", "other"])
    assert devices_of(executable) == {"composite": "other:0"}
    assert "composite" not in other.programs[-1]
    np.testing.assert_array_equal(executable(np.ones(8, "f4")), np.full(8, 2, "f4"))


def test_an_op_that_none_takes_is_expanded_and_its_parts_are_placed(registered: Register) -> None:
    registered(OwnMemoryBackend("nova", refusing("stablehlo.multiply")), OwnMemoryBackend("last", everything(1e6)))
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %0 = chlo.square %x : tensor<4xf32> -> tensor<4xf32>\nreturn %0 : tensor<4xf32> }"
    executable = hlojit.compile(text, backend=["nova", "last"])
    assert devices_of(executable) == {"multiply": "last:0"}


def test_a_value_is_moved_once_for_each_device(registered: Register) -> None:
    nova, last = OwnMemoryBackend("nova", refusing("stablehlo.sort", "stablehlo.cosine")), OwnMemoryBackend("last")
    registered(nova, last)
    text = """
    func.func @main(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
      %0 = stablehlo.exponential %x : tensor<64xf32>
      %1 = stablehlo.cosine %0 : tensor<64xf32>
      %2 = stablehlo.sine %1 : tensor<64xf32>
      %3 = stablehlo.cosine %2 : tensor<64xf32>
      %4 = stablehlo.add %3, %0 : tensor<64xf32>
      %5 = stablehlo.cosine %4 : tensor<64xf32>
      %6 = stablehlo.add %5, %0 : tensor<64xf32>
      return %1, %6, %0 : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
    }
    """
    last.answers = lambda instruction: Capability(
        YES.support, cost=1.0 if instruction.name == "stablehlo.cosine" else 1e6
    )
    executable = hlojit.compile(text, backend=["nova", "last"])
    placed = executable(hlojit.put(X, "nova"))
    # %0, %2, %4 to the last one; %1 and %3 and %5 to nova, on which %0 is already.
    assert (last._devices[0].transfers_in, nova._devices[0].transfers_in) == (3, 1 + 3)
    assert [str(each.device) for each in placed] == ["last:0", "nova:0", "nova:0"]
    for found, expected in zip(placed, hlojit.compile(text, backend="reference")(X)):
        np.testing.assert_array_equal(found, expected)


def test_large_constants_are_put_on_a_device_once(registered: Register) -> None:
    """One that two segments of a device read, in all runs; others are parts of the segments."""
    nova = OwnMemoryBackend("nova", refusing("stablehlo.sort"))
    registered(nova, OwnMemoryBackend("last", everything(1e6)))
    table = ", ".join(str(float(each)) for each in range(512))
    text = SORTED.replace("64x", "512x").replace(
        "  %0 =",
        f"  %c = stablehlo.constant dense<[{table}]> : tensor<512xf32>\n  %d = stablehlo.add %x, %c : tensor<512xf32>\n  %0 =",
    )
    text = text.replace("add %x, %y", "add %d, %y").replace("multiply %2, %x", "multiply %2, %c")
    executable = hlojit.compile(text, backend=["nova", "last"])
    x = np.linspace(0, 0.01, 512, dtype="f4")
    device = nova._devices[0]
    expected = hlojit.compile(text, backend="reference")(x, x)
    for run in range(3):
        before = device.transfers_in
        np.testing.assert_array_equal(executable(x, x), expected)
        # Both arguments, and what was sorted; the constant the first time.
        assert device.transfers_in - before == (4 if run == 0 else 3)


def test_a_constant_that_a_device_refuses_keeps_its_readers_away(registered: Register) -> None:
    def answers(instruction: Instruction) -> Capability:
        return no("no constants") if instruction.name == "stablehlo.constant" else YES

    registered(OwnMemoryBackend("nova", answers), OwnMemoryBackend("last"))
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
      %0 = stablehlo.add %x, %c : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """
    executable = hlojit.compile(text, backend=["nova", "last"])
    rows = {row.instruction.split()[0]: row for row in executable.placement().rows}
    assert rows["stablehlo.add"].device == "last:0"
    assert "stablehlo.constant that it reads: no constants" in rows["stablehlo.add"].why


def test_costs_are_checked(registered: Register) -> None:
    bad = OwnMemoryBackend("bad", lambda instruction: Capability(YES.support, cost=-1.0))
    worse = OwnMemoryBackend("worse", transfer=float("nan"))
    registered(bad, worse, OwnMemoryBackend("last"))
    with pytest.raises(
        hlojit.PluginError,
        match="back end 'bad' .*: capability returned the cost -1.0 when it was asked about stablehlo.add",
    ):
        hlojit.compile(SORTED, backend=["bad", "last"])
    with pytest.raises(hlojit.PluginError, match="back end 'worse' .*: transfer_cost returned nan for 256 bytes"):
        hlojit.compile(SORTED, backend=["worse", "last"])


def test_the_table_is_there_for_people_too(registered: Register) -> None:
    registered(OwnMemoryBackend("nova", refusing("stablehlo.sort")), OwnMemoryBackend("last", everything(1e6)))
    executable = hlojit.compile(SORTED, backend=["nova", "last"])
    before = executable.placement()
    assert "has not run" in str(before) and before.segments[0].measured is None
    executable(X, Y)
    after = executable.placement()
    assert all(each.measured > 0 for each in after.segments)
    assert "only last takes it" in str(after) and "bytes moved" in str(after)
    assert after.devices == {"nova:0": 4, "last:0": 1}
    assert [row.bytes_moved for row in after.rows] == [0, 0, 256, 256, 0]


def test_instances_share_what_is_independent(registered: Register) -> None:
    """Two chains that meet at the end; with one device there is one segment."""
    nova = OwnMemoryBackend("nova", lambda instruction: Capability(YES.support, cost=1e6), devices=2)
    registered(nova)
    chain = "\n".join(
        f"%{side}{number} = stablehlo.sine %{side}{number - 1} : tensor<64xf32>"
        for number in range(1, 9)
        for side in "ab"
    )
    text = f"""
    func.func @main(%a0: tensor<64xf32>, %b0: tensor<64xf32>) -> tensor<64xf32> {{
      {chain}
      %r = stablehlo.add %a8, %b8 : tensor<64xf32>
      return %r : tensor<64xf32>
    }}
    """
    executable = hlojit.compile(text, backend=["nova:0", "nova:1"])
    by_device = executable.placement().devices
    assert sorted(by_device.values()) == [8, 9]
    assert len(executable.segments) == 3
    assert len(hlojit.compile(text, backend=["nova"]).segments) == 1
    np.testing.assert_array_equal(executable(X, Y), hlojit.compile(text, backend="reference")(X, Y))


def test_the_table_of_a_long_program_is_lines(registered: Register) -> None:
    registered(OwnMemoryBackend("nova"))
    lines = "\n".join(f"%{n} = stablehlo.negate %{n - 1} : tensor<4xf32>" for n in range(1, 602))
    text = f"func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {{\n{lines}\nreturn %601 : tensor<4xf32>\n}}"
    executable = hlojit.compile(text, backend=["nova"], options={"disable_passes": ("algebraic-simplifier",)})
    said = str(executable.placement()).splitlines()
    assert len(said) == 1 + 601 + 1
    assert said[1].split()[:4] == ["stablehlo.negate", "->", "tensor<4xf32>", "nova:0"]
    assert said[1].endswith("the only back end")
    assert said[-1].startswith("segment 0 on nova:0: 601 instructions") and said[-1].endswith("has not run")


@pytest.mark.parametrize("form", ["python", "elementwise", "expansion"])
def test_a_call_that_is_for_one_device_goes_to_no_other(registered: Register, form: str) -> None:
    """Cheap elsewhere, and although the one that it is for takes only what it expands into."""
    calls: dict[str, CustomCall] = {
        "python": ArrayCall("t.f", function=lambda x: 2 * x, trust="python", devices=("nova",)),
        "elementwise": ElementwiseCall("t.f", function=lambda x: 2 * x, devices=("nova",)),
        "expansion": ExpansionCall(
            "t.f", expand=lambda b, each: [b.add(each.operands[0], each.operands[0])], devices=("nova",)
        ),
    }
    text = SORTED.replace("stablehlo.exponential %0 :", "stablehlo.custom_call @t.f(%0) : (tensor<64xf32>) ->")
    registered(
        OwnMemoryBackend("nova", refusing("stablehlo.sort", cost=1e7)), OwnMemoryBackend("last", everything(1.0))
    )
    plugin = SimpleNamespace(__name__="calls", hlojit_custom_calls=hookimpl(lambda: [calls[form]]))
    with registry().using(plugin):
        executable = hlojit.compile(text, backend=["last", "nova"])
        assert devices_of(executable) == {
            "add": "last:0",
            "custom_call": "nova:0",
            "sort": "last:0",
            "multiply": "last:0",
            "negate": "last:0",
        }
        np.testing.assert_allclose(executable(X, Y), -np.sort(2 * (X + Y)) * X)
        with pytest.raises(hlojit.UnsupportedError, match=r"'t\.f' is for the back end 'nova'"):
            hlojit.compile(text, backend=["last"])
