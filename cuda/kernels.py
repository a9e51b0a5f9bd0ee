"""Fused elementwise kernels for NVIDIA GPUs, assembled to PTX without a GPU.

The body is written by the shared emitter (``hlojit.lowering.elements``) with ``GpuScalarBuilder``; numba.cuda sees a
one-line kernel whose only statement is that body::

    ptx = assemble_fusion(instruction, compute_capability=(9, 0))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from hlojit.cuda.scalar_builder import GpuScalar, GpuScalarBuilder
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import ScalarBuilder
from hlojit.lowering.body import Body
from hlojit.lowering.elements import Access, Elements
from hlojit.lowering.index import Index, Quotient, RunTime, variable
from llvmlite import ir

THREAD_VARIABLE = "t"
_MEMORY = {"i1": ir.IntType(8), "i8": ir.IntType(8), "i16": ir.IntType(16), "i32": ir.IntType(32),
           "i64": ir.IntType(64), "f32": ir.FloatType(), "f64": ir.DoubleType()}  # fmt: skip


class GpuAccess:
    """Where the shared walk's loads and index arithmetic go: one element a thread, operands as raw addresses."""

    def __init__(self, builder: Any, addresses: Sequence[Any], thread: GpuScalar):
        self._builder = GpuScalarBuilder(builder)
        self.addresses = addresses
        self.atoms: dict[str, GpuScalar] = {THREAD_VARIABLE: thread}

    @property
    def builder(self) -> GpuScalarBuilder:
        """Receives the arithmetic."""
        return self._builder

    def _pointer(self, buffer: int, kind: str, linear: Index) -> Any:
        raw = self._builder.ir
        element = _MEMORY[kind]
        base = raw.inttoptr(self.addresses[buffer], ir.PointerType(element))
        return raw.gep(base, [self.index_value(linear, "i64").value], source_etype=element)

    def load(self, buffer: int, kind: str, linear: Index, condition: GpuScalar | None) -> GpuScalar:
        """An element of an operand."""
        if condition is not None:
            raise UnsupportedError("a guarded load", "cuda", "not yet: only elementwise kernels")
        value = self._builder.ir.load(self._pointer(buffer, kind, linear), typ=_MEMORY[kind])
        if kind == "i1":
            byte = GpuScalar(value, "i8")
            return self._builder.icmp("ne", byte, self._builder.constant("i8", 0))
        return GpuScalar(value, kind)

    def store(self, buffer: int, kind: str, linear: Index, scalar: GpuScalar) -> None:
        """Write an element of a result."""
        value = self._builder.zext(scalar, "i8").value if kind == "i1" else scalar.value
        self._builder.ir.store(value, self._pointer(buffer, kind, linear))

    def index_value(self, index: Index, kind: str) -> GpuScalar:
        """An index expression as an integer."""
        b = self._builder
        total = b.constant("i64", index.constant)
        for atom, coefficient in index.terms:
            total = b.add(total, b.mul(self._atom(atom), b.constant("i64", coefficient)))
        return b.trunc(total, kind)

    def _atom(self, atom: Any) -> GpuScalar:
        found = self.atoms.get(atom.key)
        if found is None:
            if atom.numerator.low < 0:
                raise UnsupportedError("an index", "cuda", "not yet: divisions of negative indices")
            numerator = self.index_value(atom.numerator, "i64")
            divide = self._builder.udiv if isinstance(atom, Quotient) else self._builder.urem
            found = self.atoms[atom.key] = divide(numerator, self._builder.constant("i64", atom.divisor))
        return found

    def bind(self, key: str, value: GpuScalar) -> None:
        """Remember the value of a run-time atom."""
        assert not isinstance(value, RunTime)
        self.atoms[key] = value

    def is_uniform(self, condition: GpuScalar) -> bool:
        """A thread is one lane, but branches are not emitted yet."""
        return False

    def branch(self, *arguments: Any) -> GpuScalar:
        """Not yet."""
        raise UnsupportedError("a branch", "cuda", "not yet: only elementwise kernels")

    loop = branch


def emit_elementwise(builder: Any, addresses: Sequence[Any], thread: Any, instruction: Instruction) -> None:
    """Write the body: the elements of all roots at the thread's index; the caller has checked the index's range."""
    body = Body.of(instruction)
    shape = body.roots[0].tensor_type.shape
    access = GpuAccess(builder, addresses, GpuScalar(thread, "i64"))
    elements = Elements(cast(Access, access), body)
    linear = variable(THREAD_VARIABLE, 0, body.roots[0].tensor_type.size - 1)
    index = []
    for stride, extent in zip(body.roots[0].tensor_type.strides, shape):
        index.append((linear // stride) % extent)
    scalars: list[Any] = [elements.value(root, tuple(index)) for root in body.roots]
    for number, (root, scalar) in enumerate(zip(body.roots, scalars)):
        element = root.tensor_type.element_type
        encoded = cast(GpuScalar, formats.encode(cast(ScalarBuilder, access.builder), scalar, element))
        access.store(len(body.operand_types) + number, formats.storage_kind(element), linear, encoded)


def assemble_fusion(instruction: Instruction, *, compute_capability: tuple[int, int] = (9, 0)) -> str:
    """PTX of a fused elementwise kernel, one thread an element.

    It takes the addresses of operands, then of results, as 64-bit integers.

    Needs numba-cuda with libNVVM (the extra ``cuda``), but no GPU and no driver.
    """
    from numba import cuda, types

    roots = instruction.results
    if len({root.tensor_type.shape for root in roots}) != 1:
        raise UnsupportedError(instruction.op.name, "cuda", "not yet: results of several shapes", instruction.location)
    count = len(instruction.operands) + len(roots)
    shell = _shell(instruction, count)
    ptx, _ = cuda.compile_ptx(shell, (types.UniTuple(types.uint64, count),), cc=compute_capability)
    return str(ptx)


def _shell(instruction: Instruction, count: int) -> Callable[..., None]:
    """A one-line kernel: its body is an intrinsic that writes the whole kernel."""
    from numba import types
    from numba.cuda.extending import intrinsic

    size = instruction.results[0].tensor_type.size

    @intrinsic  # type: ignore[untyped-decorator]
    def body(typing_context: Any, addresses: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            thread = _thread_index(builder)
            inside = builder.icmp_signed("<", thread, ir.Constant(ir.IntType(64), size))
            with builder.if_then(inside):
                unpacked = [builder.extract_value(arguments[0], number) for number in range(count)]
                emit_elementwise(builder, unpacked, thread, instruction)
            return context.get_dummy_value()

        return types.void(addresses), generate

    def kernel(addresses: Any) -> None:
        body(addresses)

    return kernel


def _thread_index(builder: Any) -> Any:
    wide = ir.IntType(64)

    def register(name: str) -> Any:
        signature = ir.FunctionType(ir.IntType(32), [])
        return builder.zext(builder.asm(signature, f"mov.u32 $0, %{name};", "=r", [], False), wide)

    return builder.add(builder.mul(register("ctaid.x"), register("ntid.x")), register("tid.x"))
