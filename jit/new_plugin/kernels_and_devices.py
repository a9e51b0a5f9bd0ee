"""Modules of a vendor's first package, each with its test: kernels of the CPU, and a device of the vendor's own."""

from __future__ import annotations

from typing import Final

ROW_NORM: Final = '''\
"""Kernels of the CPU: rows divided by their norm, where a program calls that by name and where it spells it out in ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.extensions import (
    CompositePattern,
    Declined,
    Instruction,
    Kernel,
    KernelGroup,
    SubgraphPattern,
    TaskFunction,
)
from hlojit.testing import Case


def row_norm(x: Any, result: Any, begin: int, end: int) -> None:
    """Rows ``begin`` to ``end`` of x / sqrt(sum(x * x)); compiled by numba, called by hlojit's threads."""
    for row in range(begin, end):
        total = np.float32(0.0)
        for column in range(x.shape[1]):
            total += x[row, column] * x[row, column]
        scale = np.float32(1.0) / np.float32(math.sqrt(total))
        for column in range(x.shape[1]):
            result[row, column] = x[row, column] * scale


def build(group: KernelGroup) -> TaskFunction | Declined:
    """The kernel for one composite, or why there is none."""
    (x,) = group.operand_types
    if x.rank != 2 or x.element_type.name != "f32":
        return Declined(f"rows of f32 are wanted, not {x}")
    rows, columns = x.shape
    return TaskFunction(row_norm, tasks=rows, cost=1.0 * columns)


def match(root: Instruction) -> Sequence[Instruction] | None:
    """The same in ops, from the last one backwards: x / broadcast(sqrt(reduce(x * x)))."""
    members, (x, value) = [root], root.operands
    for name in ("broadcast_in_dim", "sqrt", "reduce", "multiply"):
        each = value.producer
        if each is None or each.name != f"stablehlo.{name}":
            return None
        members.append(each)
        value = each.operands[0]
    return members if list(members[-1].operands) == [x, x] else None


def build_matched(group: KernelGroup) -> TaskFunction | Declined:
    """A pattern sees ops and no attributes (a sum over the other dimension, a maximum): trying it out tells."""
    if len(group.operand_types) != 1 or len(group.result_types) != 1:
        return Declined("more is read or returned than the rows")
    answer = build(group)
    if isinstance(answer, Declined):
        return answer
    x = np.random.default_rng(0).standard_normal(group.operand_types[0].shape, "f4")
    expected = x / np.sqrt((x * x).sum(axis=1, keepdims=True))
    same = np.allclose(group.evaluate(x)[0], expected, rtol=1e-4)
    return answer if same else Declined("it is another function of its operand")


COMPOSITE = Kernel("NAME.row_norm", backend="cpu", pattern=CompositePattern("NAME.row_norm"), build=build)
SPELLED_OUT = Kernel(
    "NAME.row_norm_ops",
    backend="cpu",
    pattern=SubgraphPattern(match, root="stablehlo.divide"),
    build=build_matched,
)

PROGRAM = """
func.func @main(%x: tensor<8x100xf32>) -> tensor<8x100xf32> {
  %0 = stablehlo.composite "NAME.row_norm" %x {decomposition = @norm} : (tensor<8x100xf32>) -> tensor<8x100xf32>
  return %0 : tensor<8x100xf32>
}
func.func private @norm(%x: tensor<8x100xf32>) -> tensor<8x100xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.multiply %x, %x : tensor<8x100xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<8x100xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = stablehlo.sqrt %1 : tensor<8xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<8xf32>) -> tensor<8x100xf32>
  %4 = stablehlo.divide %x, %3 : tensor<8x100xf32>
  return %4 : tensor<8x100xf32>
}
"""
PROGRAM_IN_OPS = PROGRAM.partition("func.func private")[2].replace("@norm", "func.func @main")
CASES = [Case("NAME.row_norm", programs=[PROGRAM]), Case("NAME.row_norm_ops", programs=[PROGRAM_IN_OPS])]
'''

TEST_ROW_NORM: Final = """\
from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.extensions import Kernel
from hlojit.testing import check_kernel

from hlojit_NAME.row_norm import COMPOSITE, PROGRAM, PROGRAM_IN_OPS, SPELLED_OUT

BOTH = pytest.mark.parametrize(("kernel", "program"), [(COMPOSITE, PROGRAM), (SPELLED_OUT, PROGRAM_IN_OPS)])


@BOTH
def test_the_kernel_is_taken_and_right(kernel: Kernel, program: str) -> None:
    x = np.random.default_rng(0).standard_normal((8, 100), "f4")
    np.testing.assert_allclose(hlojit.compile(program)(x), x / np.sqrt((x * x).sum(axis=1, keepdims=True)), rtol=1e-5)
    assert [taken.kernel for taken in hlojit.kernel_report(program).taken] == [kernel.name]


@BOTH
def test_kit(kernel: Kernel, program: str) -> None:
    check_kernel(kernel, [program], budget="smoke").raise_if_failed()
"""

DEVICE: Final = '''\
"""A device with memory of its own; ``backend=["NAME", "cpu"]`` gives it what it takes of a program, and the CPU the rest.

``Simulator`` stands for the hardware: a vendor calls a driver where it calls NumPy.  It evaluates one instruction at a time: what
is in ``VECTOR`` itself, what is in ``BY_HLOJIT`` with hlojit's help.  Products of matrices are a kernel's.  Anything else the
device has not, and says so.  docs/placement.md of hlojit adds layouts, streams, costs and clocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.extensions import (
    DECOMPOSE,
    YES,
    Capability,
    Declined,
    Held,
    Instruction,
    InterpretedBackend,
    Kernel,
    KernelGroup,
    Layout,
    Machine,
    MachineKernel,
    MemorySpace,
    OpPattern,
    Started,
    TensorType,
    can_decompose,
    no,
)

NDArray = np.ndarray[Any, Any]

ELEMENT_TYPES: Final = ("f32", "i32", "i1")
VECTOR: Final[dict[str, Callable[..., NDArray]]] = {
    "stablehlo.add": np.add,
    "stablehlo.subtract": np.subtract,
    "stablehlo.multiply": np.multiply,
    "stablehlo.divide": np.divide,
    "stablehlo.negate": np.negative,
    "stablehlo.sqrt": np.sqrt,
    "stablehlo.exponential": np.exp,
    "stablehlo.tanh": np.tanh,
}
"""What the vector unit does to f32, element by element."""
BY_HLOJIT: Final = frozenset(
    f"stablehlo.{name}"
    for name in "while if case constant iota convert broadcast_in_dim reshape transpose slice concatenate pad reduce "
    "compare select and or not abs maximum minimum".split()
)
"""Loops, branches and constants, which hlojit sees to, and what it computes on the host until the device has code for it."""


class Simulator(Machine):
    """Memory by address, and the evaluation of one instruction."""

    def __init__(self) -> None:
        self.memory: dict[int, NDArray] = {}
        self.addresses = itertools.count(4096, 64)

    def store(self, array: NDArray) -> int:
        """Write an array to memory that nothing else lies in; returns its address."""
        address = next(self.addresses)
        self.memory[address] = np.array(array)
        return address

    def put(self, array: NDArray, type: TensorType, layout: Layout) -> int:
        """Copy an array from the host."""
        return self.store(layout.pack(array))

    def get(self, memory: int, type: TensorType, layout: Layout) -> NDArray:
        """Copy an array to the host."""
        return np.array(layout.unpack(self.memory[memory], type.shape))

    def free(self, memory: int) -> None:
        """Give memory back that nobody refers to any more."""
        del self.memory[memory]

    def evaluate(
        self, instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]
    ) -> Sequence[Any] | Started:
        """The address of each result."""
        function = VECTOR.get(instruction.name)
        if function is None or any(each.type.element_type.name != "f32" for each in operands):
            return self.by_reference(instruction, operands, layouts)
        with np.errstate(all="ignore"):
            return [self.store(function(*(self.memory[each.memory] for each in operands)))]


class Device(InterpretedBackend):
    """Says of each instruction whether the device takes it, and if not, why."""

    name = "NAME"
    memory = MemorySpace("NAME")

    def machines(self) -> Sequence[Simulator]:
        """Those that are plugged in."""
        return [Simulator()]

    def capability(self, instruction: Instruction) -> Capability:
        """``YES``, ``DECOMPOSE`` for what hlojit can take apart into smaller ops, or no and why."""
        if can_decompose(instruction):
            return DECOMPOSE
        if instruction.name not in VECTOR and instruction.name not in BY_HLOJIT:
            return no(f"TITLE has no {instruction.name}")
        for type in (*instruction.operand_types, *instruction.result_types):
            if not isinstance(type, TensorType) or type.element_type.name not in ELEMENT_TYPES:
                return no(f"TITLE does not compute with {type}")
        return YES


def build(group: KernelGroup) -> MachineKernel | Declined:
    """The matrix unit, or why it does not take a product.  What a kernel takes the device has, whatever ``capability`` says."""
    assert group.anchor is not None
    dimensions = group.anchor.attributes["dot_dimension_numbers"]
    for type in (*group.operand_types, *group.result_types):
        if type.rank != 2 or type.element_type.name != "f32":
            return Declined(f"the matrix unit multiplies matrices of f32, not {type}")
    if (dimensions.lhs_contracting, dimensions.rhs_contracting) != ((1,), (0,)):
        return Declined("the matrix unit multiplies rows by columns")
    return MachineKernel(multiply)


def multiply(machine: Simulator, lhs: Held, rhs: Held) -> Sequence[int]:
    """The address of each result; operands are row-major."""
    with np.errstate(all="ignore"):
        return [machine.store(machine.memory[lhs.memory] @ machine.memory[rhs.memory])]


PRODUCT = Kernel("NAME.product", backend="NAME", pattern=OpPattern("stablehlo.dot_general"), build=build)
'''

TEST_DEVICE: Final = """\
from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.testing import check_backend, check_kernel

from hlojit_NAME.device import PRODUCT, Device, Simulator

X, W = np.random.default_rng(0).standard_normal((2, 32, 32), "f4")


def layer(x: Any, w: Any) -> Any:
    return np.tanh(x @ w)


def layer_and_order(x: Any, w: Any, y: Any) -> Any:
    return layer(x, w), np.sort(y, axis=1)


def test_arrays_stay_on_the_device() -> None:
    y = hlojit.jit(layer, backend="NAME")(hlojit.put(X, "NAME"), hlojit.put(W, "NAME"))
    assert str(y.device) == "NAME:0"
    np.testing.assert_allclose(y, layer(X, W), rtol=1e-5, atol=1e-5)


def test_the_device_takes_its_part_and_the_cpu_the_rest() -> None:
    text = str(hlojit.jit(layer_and_order).lower(X, W, W))
    split = hlojit.compile(text, backend=["NAME", "cpu"])
    for found, expected in zip(split(X, W, W), layer_and_order(X, W, W), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    places = {row.instruction.split()[0]: row.device for row in split.placement().rows}
    assert places["stablehlo.dot_general"] == places["stablehlo.tanh"] == "NAME:0"
    assert places["stablehlo.sort"] == "cpu:0"
    with pytest.raises(hlojit.UnsupportedError, match="TITLE has no stablehlo"):
        hlojit.compile(text, backend="NAME")


def test_memory_is_given_back() -> None:
    device = Device().devices()[0]
    assert isinstance(device.machine, Simulator)
    buffer = device.put(np.ones((2, 3), "f4"))
    assert len(device.machine.memory) == 1
    del buffer
    assert not device.machine.memory


def test_kit() -> None:
    check_backend("NAME", budget="smoke").raise_if_failed()
    check_backend(["NAME", "cpu"], budget="smoke").raise_if_failed()
    check_kernel(PRODUCT, budget="smoke").raise_if_failed()
"""
