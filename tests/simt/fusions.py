"""Fusions written with the builder, and their kernels on the simulator and on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hlojit.cpu.processor import host_target
from hlojit.cuda.nvptx import H200
from hlojit.ir.builder import Builder
from hlojit.ir.formats import element_type_of
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops.definition import op
from hlojit.ir.types import TensorType, tensor
from hlojit.llvm.fusion_emitter import emit_fusion
from hlojit.machine_code.loading import compile_to_object, load_objects
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.simulator.dialect import SimulatorDialect

from .simulated import TARGET, Array, run_code

Build = Callable[..., Any]


def fusion(build: Build, *types: TensorType) -> Instruction:
    """A fusion whose body is ``build(builder, *arguments)``."""
    block = Block(types)
    builder = Builder(block)
    roots = build(builder, *block.arguments)
    roots = tuple(roots) if isinstance(roots, (tuple, list)) else (roots,)
    builder.return_(*roots)
    outer = Block(types)
    return Instruction(op("hlojit.fusion"), outer.arguments, [root.type for root in roots], {"kind": "row"}, [block])


def fusion_over(build: Build, arrays: Sequence[Array], elements: Sequence[str]) -> Instruction:
    """A fusion over operands of the arrays' types."""
    names = elements or [element_type_of(array.dtype).name for array in arrays]
    return fusion(build, *(tensor(array.shape, name) for array, name in zip(arrays, names, strict=True)))


def simulated(build: Build, *arrays: Any, elements: Sequence[str] = (), warp: int = 32) -> Any:
    """The results of a fusion's kernel on the simulator: one array or a list."""
    values = [np.asarray(array) for array in arrays]
    instruction = fusion_over(build, values, elements)
    target = replace(TARGET, grid=replace(H200, warp=warp))
    code = emit_kernel(instruction, target, SimulatorDialect(warp), "kernel")
    results = run_code(code, values, [result.tensor_type for result in instruction.results])
    return results[0] if len(results) == 1 else results


def on_cpu(build: Build, *arrays: Any, elements: Sequence[str] = ()) -> Any:
    """The results of a fusion's kernel of the CPU back end."""
    values = [np.asarray(array, order="C") for array in arrays]
    instruction = fusion_over(build, values, elements)
    code = emit_fusion(instruction, host_target(), "kernel")
    image = compile_to_object(code.ir, host_target(), pipeline=code.pipeline)
    loaded = load_objects([image], [phase.symbol for phase in code.phases])
    types = [result.tensor_type for result in instruction.results]
    results = [np.empty(type.shape, type.element_type.storage) for type in types]
    workspace = np.empty(code.workspace_bytes + 64, np.uint8)
    memory = [*values, *results, workspace[-workspace.ctypes.data % 64 :]]
    buffers = (ctypes.c_void_p * len(memory))(*(array.ctypes.data for array in memory))
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    for phase in code.phases:
        signature(loaded.address(phase.symbol))(None, buffers, 0, phase.tasks)
    return results[0] if len(results) == 1 else results


def reduction(axes: tuple[int, ...], name: str = "add") -> Build:
    """A reduction by a recognized op; its init value is an operand."""

    def build(b: Any, x: Any, init: Any) -> Any:
        return b.reduce([x], [init], b.combiner(name, x.tensor_type.element_type), dimensions=axes)

    return build


def softmax(b: Any, x: Any) -> Any:
    """Over the last dimension."""
    type = x.tensor_type
    axis = type.rank - 1
    kept = tuple(range(axis))
    scalar = tensor((), type.element_type)
    low, zero = b.constant(-np.inf, scalar), b.constant(0.0, scalar)
    largest = b.reduce([x], [low], b.combiner("maximum", type.element_type), dimensions=(axis,))
    power = b.exponential(b.subtract(x, b.broadcast_in_dim(largest, type.shape, kept)))
    total = b.reduce([power], [zero], b.combiner("add", type.element_type), dimensions=(axis,))
    return b.divide(power, b.broadcast_in_dim(total, type.shape, kept))


def layer_norm(b: Any, x: Any, gain: Any, bias: Any) -> Any:
    """Over the columns of a matrix."""
    rows, columns = x.tensor_type.shape
    zero = b.constant(0.0, tensor((), "f32"))
    count = b.constant(float(columns), tensor((rows,), "f32"))

    def mean(value: Any) -> Any:
        return b.divide(b.reduce([value], [zero], b.combiner("add", "f32"), dimensions=(1,)), count)

    def wide(value: Any, dimension: int = 0) -> Any:
        return b.broadcast_in_dim(value, (rows, columns), (dimension,))

    difference = b.subtract(x, wide(mean(x)))
    scale = b.rsqrt(b.add(mean(b.multiply(difference, difference)), b.constant(1e-5, tensor((rows,), "f32"))))
    return b.add(b.multiply(b.multiply(difference, wide(scale)), wide(gain, 1)), wide(bias, 1))
