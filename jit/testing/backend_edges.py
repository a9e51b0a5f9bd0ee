"""Programs at the edge: no arguments, arguments that are returned, no elements, scalars; arrays to a device and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from hlojit.arrays import from_storage
from hlojit.compiler import compile as compile_program
from hlojit.compiler import parse
from hlojit.extensions import Device
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType, element_types
from hlojit.ir.types import tensor
from hlojit.placement import devices, get, put
from hlojit.testing.arguments import arguments_for, made_up
from hlojit.testing.corpus_elements import retyped
from hlojit.testing.execution import interpret, run_executable, storage_of
from hlojit.testing.recorder import Found, Recorder, Refused
from hlojit.testing.script import script

_EDGES: Final = {
    "no arguments": "func.func @main() -> tensor<3xf32> {\n  %0 = stablehlo.constant dense<[1.0, -0.0, 3.0]> : tensor<3xf32>\n"
    "  return %0 : tensor<3xf32>\n}",
    "an argument returned": "func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {\n  return %x : tensor<5xf32>\n}",
    "an argument returned twice": "func.func @main(%x: tensor<5xi32>) -> (tensor<5xi32>, tensor<5xi32>) {\n"
    "  return %x, %x : tensor<5xi32>, tensor<5xi32>\n}",
    "a result returned twice": "func.func @main(%x: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>) {\n"
    "  %0 = stablehlo.negate %x : tensor<5xf32>\n  return %0, %0 : tensor<5xf32>, tensor<5xf32>\n}",
    "an argument that nothing reads": "func.func @main(%x: tensor<5xf32>, %y: tensor<3xf32>) -> tensor<5xf32> {\n"
    "  %0 = stablehlo.abs %x : tensor<5xf32>\n  return %0 : tensor<5xf32>\n}",
    "an argument read behind what is made of it": "func.func @main(%x: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>) {\n"
    "  %0 = stablehlo.negate %x : tensor<5xf32>\n  %1 = stablehlo.abs %0 : tensor<5xf32>\n"
    "  %2 = stablehlo.subtract %1, %x : tensor<5xf32>\n  return %2, %0 : tensor<5xf32>, tensor<5xf32>\n}",
    "no elements": "func.func @main(%x: tensor<0x4xf32>) -> tensor<0x4xf32> {\n  %0 = stablehlo.negate %x : tensor<0x4xf32>\n"
    "  return %0 : tensor<0x4xf32>\n}",
    "a scalar": "func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.add %x, %y : tensor<f32>\n"
    "  return %0 : tensor<f32>\n}",
}


def check_edges(backend: str | Sequence[str], taken: frozenset[str], recorder: Recorder) -> None:
    """The programs, in element types that the back end takes."""
    for number, (what, text) in enumerate(_EDGES.items()):
        recorder.run("edges", what, partial(_edge, text, backend, taken, number, recorder.seed))


def _edge(text: str, backend: str | Sequence[str], taken: frozenset[str], number: int, seed: int) -> int:
    """A program whose results are no views of its arguments, and which leaves these as they are."""
    written = parse(text)
    module = retyped(written, taken, number) or written
    arrays = arguments_for(module, seed=seed)
    before = [array.copy() for array in arrays]
    meant = interpret(module, arrays)
    try:
        executable = compile_program(module, backend=backend)
    except UnsupportedError as error:
        raise Refused(str(error).partition("\n")[0]) from None
    shown = script(module, arrays, backend)
    try:
        found = run_executable(executable, module, arrays)
    except HlojitError:
        raise
    except Exception as error:
        raise Found(f"raises {type(error).__name__}: {error}", shown) from error
    if found.results is None or meant.results is None:
        raise Found(found.describe(), shown)
    for ours, theirs in zip(found.results, meant.results):
        if ours.tobytes() != theirs.tobytes():
            raise Found(f"gives {found.describe()}, expected {meant.describe()}", shown)
    for given, kept in zip(arrays, before):
        if given.tobytes() != kept.tobytes():
            raise Found("it wrote to an argument", shown)
    for result in found.results:
        if any(result.size and np.shares_memory(result, given) for given in arrays):
            raise Found("a result is a view of an argument", shown)
    return len(found.results)


def check_arrays(name: str, recorder: Recorder) -> None:
    """Arrays of every element type go to the back end's devices and come back."""
    for device in devices(name):
        for element in element_types():
            if not isinstance(element, (BooleanType, IntegerType, FloatFormat, ComplexType)):
                continue  # what lies in several buffers is for who makes them
            recorder.run("arrays", f"{element} on {device}", partial(_there_and_back, device, element))


def _there_and_back(device: Device, element: ElementType) -> int:
    """Several at a time: each comes back as it was, whatever was put and given back between."""
    count, kept = 0, []
    for shape in ((), (7,), (0, 3), (5, 4)):
        kind = tensor(shape, element)
        stored = made_up(kind, (3, len(shape)))
        kept.append((kind, stored, put(from_storage(stored, kind), device)))
    for _ in range(2):
        for kind, stored, there in kept:
            if storage_of(get(there), kind).tobytes() != stored.tobytes():
                raise Found(f"an array of {kind} that was put on {device} comes back as other bits")
            count += stored.size
            put(from_storage(np.ascontiguousarray(stored[::-1]) if stored.ndim else stored, kind), device)
    return count
