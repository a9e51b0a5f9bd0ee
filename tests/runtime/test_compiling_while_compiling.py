"""Code of users and plugins that runs during a compilation may compile something itself, here or in another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
from hlojit.ir.ops.definition import OpDefinition, Operand, Pointwise

SECONDS = 60.0
"""After which a thread is taken to wait for ever."""
X = np.arange(64, dtype="f4")


def in_thread(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a thread of its own."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "a deadlock"
    return results[0]


def using(**brings: Any) -> Any:
    class Plugin:
        pass

    for name, items in brings.items():
        setattr(Plugin, f"hlojit_{name}", ext.hookimpl(lambda self, items=items: items))
    return ext.using(Plugin())


def call(target: str) -> str:
    return f"""func.func @main(%a: tensor<64xf32>) -> tensor<64xf32> {{
      %r = stablehlo.custom_call @acme.{target}(%a) : (tensor<64xf32>) -> tensor<64xf32>
      return %r : tensor<64xf32> }}"""


def test_an_overload_that_compiles() -> None:
    from numba.extending import overload

    def inner(x: float) -> float:
        return x + 1.5

    def helper(x: float) -> float:
        raise NotImplementedError

    def implement(x: Any) -> Any:
        factor = float(hlojit.compile(call("inner"))(X)[0])
        return lambda x: x * factor

    implement.__annotations__.clear()  # numba compares signatures, annotations included
    overload(helper)(implement)

    def outer(x: float) -> float:
        return helper(x)

    calls = [ext.ElementwiseCall("acme.inner", function=inner), ext.ElementwiseCall("acme.outer", function=outer)]

    def work() -> Any:
        with using(custom_calls=calls):
            return hlojit.compile(call("outer"))(X)

    np.testing.assert_array_equal(in_thread(work), X * np.float32(1.5))


def test_a_rule_that_waits_for_a_thread_that_compiles() -> None:
    negate = "func.func @main(%a: tensor<61xf32>) -> tensor<61xf32> { %r = stablehlo.negate %a : tensor<61xf32> return %r : tensor<61xf32> }"

    def rule(builder: Any, call: Any, x: Any) -> Any:
        np.testing.assert_array_equal(in_thread(lambda: hlojit.compile(negate)(X[:61])), -X[:61])
        return builder.fadd(x, x)

    record = OpDefinition(
        "vendor.op", operands=(Operand("x"),), infer=lambda call: call.operand_types[:1], lowering=Pointwise(rule)
    )
    text = 'func.func @main(%a: tensor<64xf32>) -> tensor<64xf32> { %0 = "vendor.op"(%a) : (tensor<64xf32>) -> tensor<64xf32> return %0 : tensor<64xf32> }'
    with using(ops=[record]):
        np.testing.assert_array_equal(hlojit.compile(text)(X), X + X)


def test_many_threads_with_one_signature() -> None:
    @hlojit.jit
    def function(x: Any) -> Any:
        return x * 3.0 - 1.0

    barrier = threading.Barrier(4)
    results: list[Any] = []

    def work() -> None:
        barrier.wait()
        results.append(function(X))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    assert len(results) == 4 and "1 signatures" in repr(function)
