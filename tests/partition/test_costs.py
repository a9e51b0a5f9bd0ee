"""What instructions are reckoned to cost where back ends do not say, and on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import pytest
from hlojit.cpu.instruction_costs import InstructionCosts
from hlojit.extensions import YES, Capability, Kernel, OpPattern, hookimpl, no, using
from hlojit.ir import Instruction
from hlojit.lowering.target import X86_64_V4

from .test_placement import devices_of
from .vendor import OwnMemoryBackend

Register = Callable[..., None]


def microseconds(text: str, threads: int = 2) -> float:
    """Of a whole program, on a processor of which nothing but the vectors is known."""
    costs = InstructionCosts(X86_64_V4, threads)
    found = [costs.nanoseconds(each) for each in hlojit.parse(text).main.body]
    return sum(each for each in found if each is not None) / 1e3


def product(rows: int, depth: int, columns: int, element: str = "f32") -> str:
    lhs, rhs, out = (f"tensor<{a}x{b}x{element}>" for a, b in ((rows, depth), (depth, columns), (rows, columns)))
    return f"""func.func @main(%x: {lhs}, %y: {rhs}) -> {out} {{
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({lhs}, {rhs}) -> {out}
      return %0 : {out}
    }}"""


def chain(*ops: str, size: int = 1 << 20) -> str:
    lines = "\n".join(f"%{n} = stablehlo.{op} %{n - 1} : tensor<{size}xf32>" for n, op in enumerate(ops, 1))
    return f"func.func @main(%0: tensor<{size}xf32>) -> tensor<{size}xf32> {{\n{lines}\nreturn %{len(ops)} : tensor<{size}xf32>\n}}"


def test_products_keep_the_processor_busy() -> None:
    """67 million vectors of 16, two a cycle at 4 GHz, on two cores."""
    assert 4_000 < microseconds(product(1024, 1024, 1024)) < 6_000
    assert 8_000 < microseconds(product(1024, 1024, 1024), threads=1) < 12_000
    assert microseconds(product(1024, 1024, 1024, "f64")) == pytest.approx(
        2 * microseconds(product(1024, 1024, 1024)), rel=0.1
    )
    assert microseconds(product(8, 8, 8)) < 1


def test_what_one_loop_computes_is_not_moved_between() -> None:
    alone, together = microseconds(chain("negate")), microseconds(chain("negate", "abs", "negate", "abs"))
    assert together < 2 * alone
    assert microseconds(chain("exponential", size=4096)) > 1.3 * microseconds(chain("negate", size=4096))


def test_small_work_stays_on_one_core() -> None:
    text = chain("tanh", size=64)
    assert microseconds(text, threads=64) == microseconds(text, threads=1) < 1


def saying(cost: float | None) -> Callable[[Instruction], Capability]:
    return lambda instruction: Capability(YES.support, cost=cost)


SINE = "func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> { %0 = stablehlo.sine %x : tensor<64xf32> return %0 : tensor<64xf32> }"


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ((None, 100.0), (50.0, 100.0)),
        ((100.0, None), (100.0, 200.0)),
        ((None, 100.0, None), (50.0, 100.0, 200.0)),
        ((None, None, 100.0), (25.0, 50.0, 100.0)),
        ((100.0, None, 10.0), (100.0, 5.0, 10.0)),
    ],
)
def test_the_order_says_how_fast_those_are_that_say_nothing(
    registered: Register, stated: tuple[Any, ...], expected: tuple[float, ...]
) -> None:
    """Twice as fast as the next one that says something."""
    registered(*(OwnMemoryBackend(f"b{number}", saying(cost)) for number, cost in enumerate(stated)))
    executable = hlojit.compile(SINE, backend=[f"b{number}" for number in range(len(stated))])
    (row,) = executable.placement().rows
    cheapest = min(range(len(stated)), key=expected.__getitem__)
    assert (row.device, row.nanoseconds) == (f"b{cheapest}:0", expected[cheapest])


def test_the_cpu_says_what_it_costs(registered: Register) -> None:
    """Behind a device that says it takes longer, which is preferred nevertheless where it does not."""
    text = product(64, 64, 64)
    registered(OwnMemoryBackend("slow", saying(1e5)), OwnMemoryBackend("silent", saying(None)))
    assert devices_of(hlojit.compile(text, backend=["slow", "cpu"])) == {"dot_general": "cpu:0"}
    assert devices_of(hlojit.compile(text, backend=["silent", "cpu"])) == {"dot_general": "silent:0"}
    assert devices_of(hlojit.compile(text, backend=["cpu", "silent"])) == {"dot_general": "cpu:0"}


def test_a_back_end_may_say_it_apart(registered: Register) -> None:
    class Apart(OwnMemoryBackend):
        cost: Any = 7.0

        def instruction_cost(self, instruction: Instruction) -> Any:
            return self.cost

    apart = Apart("apart", saying(None))
    registered(apart, OwnMemoryBackend("last", saying(8.0)))
    (row,) = hlojit.compile(SINE, backend=["apart", "last"]).placement().rows
    assert (row.device, row.nanoseconds) == ("apart:0", 7.0)
    apart.cost = "cheap"
    with pytest.raises(hlojit.PluginError, match="back end 'apart' .*: instruction_cost returned 'cheap' when"):
        hlojit.compile(SINE, backend=["apart", "last"])


class Form:
    """What kernels of the back end below answer."""


class ByKernel(OwnMemoryBackend):
    kernel_forms = (Form,)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (None, ("first:0", 50.0)),
        (7.0, ("first:0", 7.0)),
        (lambda group: 8.0, ("first:0", 8.0)),
        (101.0, ("last:0", 100.0)),
    ],
)
def test_a_kernel_may_say_it_and_counts_as_silent_where_it_does_not(
    registered: Register, cost: Any, expected: tuple[str, float]
) -> None:
    class Kernels:
        @hookimpl
        def hlojit_kernels(self) -> list[Kernel]:
            pattern = OpPattern("stablehlo.sine")
            return [Kernel("sine", backend="first", pattern=pattern, build=lambda group: Form(), cost=cost)]

    registered(ByKernel("first", lambda instruction: no("by kernel only")), OwnMemoryBackend("last", saying(100.0)))
    with using(Kernels()):
        (row,) = hlojit.compile(SINE, backend=["first", "last"]).placement().rows
    assert (row.device, row.nanoseconds) == expected
