"""Programs with unknown sizes, run at shapes of their arguments, beside the specification's own interpreter.

The programs of testdata/dynamic were exported by JAX for all sizes of some dimensions: scalars of 64 bits come first that are
these sizes, then arrays with ``?``.  Here all unknown sizes are one number, the first of ``SIZES`` for which there is an oracle:
MLIR refines the shapes and the interpreter of StableHLO that ships in the jaxlib wheel evaluates what results.  Oracles are made
in worker processes of their own, because that interpreter ends its process when it cannot do something, and kept in a folder.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from tools.conformance.comparison import differs_by
from tools.conformance.mlir_text import FunctionText, entry, split_list, without_comments
from tools.conformance.programs import Program
from tools.conformance.tolerances import DYNAMIC
from tools.conformance.workers import outcomes

SIZES: Final = (4, 5, 8)
_SIZE_TYPE: Final = "tensor<i64>"
_PASSES: Final = (
    "builtin.module(inline,stablehlo-refine-arguments{{types={types}}},stablehlo-refine-shapes,"
    "func.func(stablehlo-canonicalize-dynamism,chlo-legalize-to-stablehlo),stablehlo-refine-shapes,"
    "func.func(stablehlo-canonicalize-dynamism))"
)
Array = np.ndarray[Any, Any]


def oracle_path(folder: Path, program: Program) -> Path:
    """Where the arguments and results of a program are kept."""
    return folder / f"{hashlib.sha256(program.text.encode()).hexdigest()[:24]}.pickle"


def unknown(program: Program, size: int) -> tuple[int, list[str]]:
    """How many sizes come first, and the types of all arguments with ``size`` for what is unknown."""
    types = entry(without_comments(program.text)).argument_types()
    leading = next((number for number, type_ in enumerate(types) if type_ != _SIZE_TYPE), len(types))
    return leading, [type_.replace("?", str(size)) for type_ in types]


def arguments_of(program: Program, size: int) -> list[Array]:
    """Sizes, and arrays drawn from a generator that is seeded by the program's name."""
    leading, types = unknown(program, size)
    random = np.random.default_rng(zlib.crc32(program.name.encode()))
    sizes = [np.asarray(size, np.int64)] * leading
    return sizes + [_drawn(random, type_) for type_ in types[leading:]]


def _drawn(random: np.random.Generator, type_: str) -> Array:
    *extents, element = re.split(r"(?<=\d)x", type_.removeprefix("tensor<").removesuffix(">"))
    shape = tuple(map(int, extents))
    if element == "i1":
        return random.integers(0, 2, shape).astype(bool)
    if match := re.fullmatch(r"(u?)i(\d+)", element):
        return random.integers(0, 4, shape).astype(f"{'u' if match[1] else 'i'}{int(match[2]) // 8}")
    if element.startswith("complex"):
        values = random.uniform(-2, 2, (2, *shape))
        return np.asarray(values[0] + 1j * values[1]).astype("c8" if "f32" in element else "c16")
    return np.asarray(random.uniform(-2, 2, shape)).astype(_float(element))


def _float(element: str) -> Any:
    return ml_dtypes.bfloat16 if element == "bf16" else f"f{int(element[1:]) // 8}"


def with_oracles(programs: Sequence[Program], folder: Path, workers: int, limit: float) -> list[Program]:
    """The programs for which there is an oracle, each labelled with the file that holds it; the others are left out.

    The interpreter has none for six of the programs of testdata/dynamic: two convolutions with strides for more dimensions than
    they have (C2), and four at which it ends the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    left = [program for program in programs if not oracle_path(folder, program).exists()]
    for size in SIZES:
        if not left:
            break
        labelled = [replace(program, labels=(str(size),)) for program in left]
        found = outcomes(labelled, make_oracle, str(folder), workers=workers, limit=limit)
        failed = {outcome.program.name for outcome in found if not outcome.passed}
        left = [program for program in left if program.name in failed]
    paths = ((program, oracle_path(folder, program)) for program in programs)
    return [replace(program, labels=(str(path),)) for program, path in paths if path.exists()]


def make_oracle(program: Program, folder: str) -> tuple[str, str]:
    """Evaluate the program at the size that its label says, and keep arguments and results."""
    # The interpreter says on its way out why it ends the process.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    size = int(program.labels[0])
    arguments = arguments_of(program, size)
    leading, types = unknown(program, size)
    try:
        results = _evaluated(_refined(program.text, leading, types, size), arguments[leading:], types[leading:])
    except Exception as error:
        return "no oracle", f"{type(error).__name__}: {str(error)[:200]}"
    oracle_path(Path(folder), program).write_bytes(pickle.dumps((arguments, results)))
    return "", ""


def _refined(text: str, leading: int, types: list[str], size: int) -> str:
    """The program with known shapes, as MLIR's passes make it."""
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo
    from jaxlib.mlir.passmanager import PassManager

    stablehlo.register_stablehlo_passes()
    text = without_comments(text)
    main = entry(text)
    names = main.argument_names()[:leading]
    sizes = "".join(f"\n{name} = stablehlo.constant dense<{size}> : {_SIZE_TYPE}" for name in names)
    with make_ir_context():
        module = ir.Module.parse(_with_arguments(text, main, split_list(main.arguments)[leading:], sizes))
        PassManager.parse(_PASSES.format(types=",".join(types[leading:]))).run(module.operation)
        return str(module)


def _with_arguments(text: str, main: FunctionText, arguments: list[str], first: str) -> str:
    header = f"func.func public @main({', '.join(arguments)}) -> {main.results} {{"
    return f"{text[: main.start]}{header}{first}{main.body}}}{text[main.end :]}"


def _evaluated(text: str, arguments: list[Array], types: list[str]) -> list[Array]:
    """What the interpreter makes of it; 16-bit floats leave as their bits, complex numbers as pairs."""
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    main = entry(text)
    returned = re.search(r"\breturn\s+([^:\n]*):\s*([^\n]*)\s*$", main.body)
    assert returned is not None
    values, result_types = split_list(returned[1]), split_list(returned[2])
    body = main.body[: returned.start()]
    leaving = [_leaving(number, *each) for number, each in enumerate(zip(values, result_types, strict=True))]
    body += "\n".join(line for lines, _ in leaving for line in lines)
    pieces = [piece for _, found in leaving for piece in found]
    body += f"\nreturn {', '.join(name for name, _ in pieces)} : {', '.join(type_ for _, type_ in pieces)}\n"
    header = f"func.func public @main({main.arguments}) -> ({', '.join(type_ for _, type_ in pieces)}) {{"
    with make_ir_context():
        module = ir.Module.parse(f"{text[: main.start]}{header}{body}}}{text[main.end :]}")
        given = [_attribute(each, type_) for each, type_ in zip(arguments, types, strict=True)]
        found = iter([np.array(each) for each in stablehlo.eval_module(module, given)])
    return [_arrived(found, type_) for type_ in result_types]


def _leaving(number: int, value: str, type_: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Lines that make of a result what the bindings can read, and names and types of that."""
    if "complex" in type_:
        part = re.sub(r"complex<(\w+)>", r"\1", type_)
        names = [f"%leaving{number}_{which}" for which in ("real", "imag")]
        lines = [f"{name} = stablehlo.{name.rpartition('_')[2]} {value} : ({type_}) -> {part}" for name in names]
        return lines, [(name, part) for name in names]
    bits = re.sub(r"b?f16>", "ui16>", type_)
    if bits == type_:
        return [], [(value, type_)]
    return [f"%leaving{number} = stablehlo.bitcast_convert {value} : ({type_}) -> {bits}"], [
        (f"%leaving{number}", bits)
    ]


def _arrived(found: Any, type_: str) -> Array:
    array = np.asarray(next(found))
    if "complex" in type_:
        return np.asarray(array + 1j * np.asarray(next(found)))
    element = re.search(r"b?f16(?=>)", type_)
    return array.view(_float(element[0])) if element else array


def _attribute(array: Array, type_: str) -> Any:
    from jaxlib.mlir import ir

    make: Any = ir.DenseElementsAttr.get
    if array.dtype == ml_dtypes.bfloat16:
        return make(array.view(np.uint16), type=ir.BF16Type.get(), shape=array.shape)
    element = ir.RankedTensorType(ir.Type.parse(type_)).element_type
    if array.dtype == np.bool_:
        return make(array)
    return make(array, type=element, shape=array.shape)


def run_dynamic(program: Program, backend: str) -> tuple[str, str]:
    """Run a program whose oracle lies where its label says."""
    import hlojit

    arguments, expected = pickle.loads(Path(program.labels[0]).read_bytes())
    returned = hlojit.compile(program.text, backend=backend)(*arguments)
    results = list(returned) if isinstance(returned, tuple | list) else [returned]
    if len(results) != len(expected):
        return "wrong", f"{len(results)} results for {len(expected)}"
    for number, (actual, wanted) in enumerate(zip(results, expected, strict=True)):
        if found := differs_by(DYNAMIC, np.asarray(actual), wanted):
            return "wrong", found if len(results) == 1 else f"result {number}: {found}"
    return "", ""
