"""Loops that become functions of their own: what is planned, and that they compute, stop and count what they did before."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cpu.backend import ENTRY
from hlojit.extensions.registration.registry import registry
from hlojit.ir import evaluate
from hlojit.llvm.loop_function import emit_program
from hlojit.lowering.loop_functions import LONGEST_INTERVAL, plan_loop_functions, poll_interval
from hlojit.lowering.machine import GENERIC
from hlojit.lowering.program import Launch, Loop, Program


def program_of(text: str) -> Program:
    backend = registry().backend("cpu")
    program: Program = backend.program(hlojit.lower(text).freeze())
    return program


MEANS = """func.func @main(%x: tensor<300xf64>, %a: tensor<f64>) -> tensor<300xf64> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %s = stablehlo.constant dense<0.0> : tensor<f64>
  %r:3 = stablehlo.while(%i = %zero, %m = %s, %y = %x) : tensor<i32>, tensor<f64>, tensor<300xf64>
   cond {
    %n = stablehlo.constant dense<300> : tensor<i32>
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %e = stablehlo.dynamic_slice %x, %i, sizes = [1] : (tensor<300xf64>, tensor<i32>) -> tensor<1xf64>
    %v = stablehlo.reshape %e : (tensor<1xf64>) -> tensor<f64>
    %d = stablehlo.subtract %v, %m : tensor<f64>
    %t = stablehlo.multiply %a, %d : tensor<f64>
    %k = stablehlo.add %m, %t : tensor<f64>
    %u = stablehlo.reshape %k : (tensor<f64>) -> tensor<1xf64>
    %w = stablehlo.dynamic_update_slice %y, %u, %i : (tensor<300xf64>, tensor<1xf64>, tensor<i32>) -> tensor<300xf64>
    stablehlo.return %j, %k, %w : tensor<i32>, tensor<f64>, tensor<300xf64>
  }
  return %r#2 : tensor<300xf64>
}"""


def test_a_loop_over_scalars_is_one_function() -> None:
    program = program_of(MEANS)
    (function,) = plan_loop_functions(program)
    assert len(function.inlined) == sum(isinstance(step, Launch) for step in program.walk())
    host, (loop,) = emit_program(program, ENTRY, GENERIC)
    assert host.count(f"call i32 @{loop.symbol}") == 1
    assert "hlojit_parallel_for" not in loop.ir.replace("declare void @hlojit_parallel_for", "")
    # What is passed on from one kernel to the next is the function's own; counter and mean begin with constants.
    arena = len(program.inputs) + len(program.outputs)
    assert loop.ir.count(f"%slots, i64 {arena}\n") == 0
    beginnings = [
        local.constant for local in function.locals.values() if local.copied_in and local.constant is not None
    ]
    assert sorted(program.constants[each.index].tolist() for each in beginnings) == [[0], [0.0]]


SEVERAL = """func.func @main(%n: tensor<i32>) -> (tensor<i32>, tensor<i32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %seven = stablehlo.constant dense<7> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %m = %seven) : tensor<i32>, tensor<i32>
   cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %q:2 = stablehlo.while(%k = %zero, %l = %m) : tensor<i32>, tensor<i32>
     cond {
      %p = stablehlo.compare LT, %k, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %h = stablehlo.add %k, %one : tensor<i32>
      %f = stablehlo.add %l, %k : tensor<i32>
      stablehlo.return %h, %f : tensor<i32>, tensor<i32>
    }
    stablehlo.return %j, %q#1 : tensor<i32>, tensor<i32>
  }
  %s:2 = stablehlo.while(%i = %r#0, %m = %zero) : tensor<i32>, tensor<i32>
   cond {
    %p = stablehlo.compare LT, %i, %r#1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %l = stablehlo.add %m, %i : tensor<i32>
    stablehlo.return %j, %l : tensor<i32>, tensor<i32>
  }
  return %r#1, %s#0, %s#1 : tensor<i32>, tensor<i32>, tensor<i32>
}"""


@pytest.mark.parametrize("count", [0, 1, 2, 5, 9])
def test_states_begin_as_the_program_says(count: int) -> None:
    """Several loops, one within another and one behind: what was a constant once may have been written since."""
    executable = hlojit.compile(SEVERAL)
    expected = evaluate(hlojit.parse(SEVERAL), np.int32(count))
    assert [int(each) for each in executable(np.int32(count))] == [int(each) for each in expected]


def test_it_computes_what_the_loop_says() -> None:
    x = np.random.default_rng(0).standard_normal(300)
    (expected,) = evaluate(hlojit.parse(MEANS), x, np.float64(0.1))
    np.testing.assert_array_equal(hlojit.compile(MEANS)(x, np.float64(0.1)), expected)


LARGE = """func.func @main(%x: tensor<300000xf64>) -> tensor<300000xf64> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<300000xf64>
   cond {
    %n = stablehlo.constant dense<3> : tensor<i32>
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %v = stablehlo.reverse %y, dims = [0] : tensor<300000xf64>
    %w = stablehlo.add %v, %x : tensor<300000xf64>
    stablehlo.return %j, %w : tensor<i32>, tensor<300000xf64>
  }
  return %r#1 : tensor<300000xf64>
}"""


def test_long_kernels_are_launched_and_shared_out() -> None:
    program = program_of(LARGE)
    (function,) = plan_loop_functions(program)
    _, (loop,) = emit_program(program, ENTRY, GENERIC)
    assert 0 < len(function.inlined) < sum(isinstance(step, Launch) for step in program.walk())
    assert "call void @hlojit_parallel_for" in loop.ir
    x = np.random.default_rng(0).standard_normal(300_000)
    (expected,) = evaluate(hlojit.parse(LARGE), x)
    np.testing.assert_array_equal(hlojit.compile(LARGE)(x), expected)


def test_loops_ask_whether_to_stop_seldom_but_in_time() -> None:
    (function,) = plan_loop_functions(program_of(MEANS))
    assert poll_interval(function.step) == 0, "300 rounds end before they would ask"
    function.step.most_rounds = None
    assert 1 << 8 <= poll_interval(function.step) <= LONGEST_INTERVAL
    function.step.most_rounds = 1 << 40
    assert 1 << 8 <= poll_interval(function.step) <= LONGEST_INTERVAL
    (function,) = plan_loop_functions(program_of(LARGE))
    assert poll_interval(function.step) == 1
    outer = Loop([], function.step.predicate, [replace(function.step, most_rounds=100)], (), None)
    assert poll_interval(outer) == 1
    assert poll_interval(Loop([], function.step.predicate, [])) == LONGEST_INTERVAL


def test_llvm_is_told_what_is_known_of_counters() -> None:
    program = program_of(MEANS)
    (loop,) = [step for step in program.walk() if isinstance(step, Loop)]
    assert [(each.low, each.high) for each in loop.counted] == [(0, 299)]
    assert loop.most_rounds == 300
    _, (code,) = emit_program(program, ENTRY, GENERIC)
    assert code.ir.count("call void @llvm.assume(i1") == 2
    loop.counted = ()
    _, (code,) = emit_program(program, ENTRY, GENERIC)
    assert "llvm.assume" not in code.ir


ENDLESS = """func.func @main(%x: tensor<f64>) -> tensor<f64> {
  %r = stablehlo.while(%y = %x) : tensor<f64>
   cond {
    %p = stablehlo.compare EQ, %y, %y : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %v = stablehlo.negate %y : tensor<f64>
    stablehlo.return %v : tensor<f64>
  }
  return %r : tensor<f64>
}"""


def test_an_endless_loop_can_be_interrupted() -> None:
    executable = hlojit.compile(ENDLESS)

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(TimeoutError):
            executable(np.float64(1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
