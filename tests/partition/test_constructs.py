"""Loops and branches on devices, whole and split."""

from __future__ import annotations

from collections.abc import Callable

import hlojit
import numpy as np
import pytest
from hlojit.extensions import YES, Capability, no
from hlojit.ir import Instruction

from .test_placement import X, refusing
from .vendor import NAMES, OwnMemoryBackend, everything, expected

Register = Callable[..., None]


LOOP = """
func.func @main(%n: tensor<i32>, %x: tensor<16xf32>, %w: tensor<16xf32>) -> (tensor<i32>, tensor<16xf32>, tensor<16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %x) : tensor<i32>, tensor<16xf32>, tensor<16xf32>
   cond {
    %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.OP %a : tensor<16xf32>
    %c = stablehlo.multiply %s, %w : tensor<16xf32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %m = stablehlo.remainder %i, %two : tensor<i32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %p = stablehlo.compare EQ, %m, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %d = "stablehlo.if"(%p) ({
      %e = stablehlo.OP %b : tensor<16xf32>
      stablehlo.return %e : tensor<16xf32>
    }, {
      %e = stablehlo.add %b, %w : tensor<16xf32>
      stablehlo.return %e : tensor<16xf32>
    }) : (tensor<i1>) -> tensor<16xf32>
    stablehlo.return %j, %c, %d : tensor<i32>, tensor<16xf32>, tensor<16xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<i32>, tensor<16xf32>, tensor<16xf32>
}
"""
W = np.linspace(0.5, 1.5, 16, dtype="f4")


def test_a_loop_lies_on_a_device_whole(nova: OwnMemoryBackend) -> None:
    text = LOOP.replace("OP", "cosine")
    executable = hlojit.compile(text, backend=NAMES)
    assert [str(each.place) for each in executable.segments] == ["nova:0"]
    for found, right in zip(executable(np.int32(5), X[:16], W), expected(text, np.int32(5), X[:16], W)):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_is_split_where_a_device_does_not_take_all_of_it(registered: Register, trips: int) -> None:
    """``last`` takes sines only: no device has the whole loop."""
    only = "stablehlo.sine"

    def sines(instruction: Instruction) -> Capability:
        is_mine = instruction.name == only or instruction.op.is_terminator
        return YES if is_mine else no("it computes sines")

    registered(OwnMemoryBackend("nova", refusing(only)), OwnMemoryBackend("last", sines))
    text = LOOP.replace("OP", "sine")
    executable = hlojit.compile(text, backend=NAMES)
    rows = executable.placement().rows
    assert {row.device for row in rows} == {"nova:0", "last:0", "host"}
    split = [row.why for row in rows if row.segment is None and row.instruction.startswith("stablehlo.while")]
    assert split == [
        "split, the host runs it (nova: stablehlo.sine in it: there is no sine unit; last: it computes sines)"
    ]
    x = X[:16].copy()
    for mode in (executable, executable.execute):
        results = mode(np.int32(trips), x, W)
        for found, right in zip(results, expected(text, np.int32(trips), x, W)):
            np.testing.assert_array_equal(hlojit.get(found), right)
            assert not np.shares_memory(hlojit.get(found), x)


def test_a_loop_is_split_where_that_costs_less(registered: Register) -> None:
    """One device takes all of it, at a high cost; the other all but one op."""
    registered(OwnMemoryBackend("nova", refusing("stablehlo.sine")), OwnMemoryBackend("last", everything(1e6)))
    rows = hlojit.compile(LOOP.replace("OP", "sine"), backend=NAMES).placement().rows
    assert {row.device for row in rows if row.segment is not None} == {"nova:0", "last:0"}
    registered(OwnMemoryBackend("cheap", everything(10.0)))
    rows = hlojit.compile(LOOP.replace("OP", "sine"), backend=["nova", "cheap"]).placement().rows
    assert {row.device for row in rows if row.segment is not None} == {"cheap:0"}


def test_a_case_with_any_index(registered: Register) -> None:
    registered(
        OwnMemoryBackend("nova", refusing("stablehlo.sine", "stablehlo.case")),
        OwnMemoryBackend("last", refusing("stablehlo.case")),
    )
    text = """
    func.func @main(%i: tensor<i32>, %x: tensor<16xf32>) -> tensor<16xf32> {
      %r = "stablehlo.case"(%i) ({
        %a = stablehlo.sine %x : tensor<16xf32>
        stablehlo.return %a : tensor<16xf32>
      }, {
        stablehlo.return %x : tensor<16xf32>
      }, {
        %a = stablehlo.cosine %x : tensor<16xf32>
        %b = stablehlo.sine %a : tensor<16xf32>
        stablehlo.return %b : tensor<16xf32>
      }) : (tensor<i32>) -> tensor<16xf32>
      return %r : tensor<16xf32>
    }
    """
    # Neither takes the construct itself: the host runs it.
    with pytest.raises(hlojit.UnsupportedError, match="nova: there is no case unit; last: there is no case unit"):
        hlojit.compile(text, backend=NAMES)
    registered(OwnMemoryBackend("other", refusing("stablehlo.sine")), OwnMemoryBackend("dear", everything(1e6)))
    executable = hlojit.compile(text, backend=["other", "dear"])
    assert "host" in {row.device for row in executable.placement().rows}
    for index in (-1, 0, 1, 2, 7):
        np.testing.assert_array_equal(executable(np.int32(index), W), expected(text, np.int32(index), W))
