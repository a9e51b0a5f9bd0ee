"""A program as a Python script that can be pasted: text, arguments, what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.environment import ELEMENT_TYPES, OPS, tables
from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Module
from hlojit.ir.scalar.arrays import to_compute
from hlojit.ir.types import TensorType
from hlojit.testing.execution import argument_types
from hlojit.testing.memory import PATTERNS

NDArray = np.ndarray[Any, Any]

_LONGEST = 64
"""Elements that a script spells; longer arrays are made up from a seed."""


def script(
    module: Module,
    arguments: Sequence[NDArray],
    backend: str | Sequence[str],
    expected: str = "",
    *,
    with_patterns: bool = False,
    earlier: Sequence[Sequence[NDArray]] = (),
) -> str:
    """Python code that compiles a module and calls it; ``expected`` becomes a comment.

    ``with_patterns``: it is called with other bytes in memory that nobody has written.  ``earlier``: it is called with each
    of these before.
    """
    lines = ["import hlojit", "import numpy as np"]
    lines += ["from hlojit.testing import unwritten_memory", ""] if with_patterns else [""]
    brought = _plugins_of(module)
    if brought:
        lines += [f"# registered: {', '.join(brought)}", ""]
    text = without_module_line(str(module))
    lines += [f'text = """\n{text}\n"""']
    for number, each in enumerate(earlier):
        lines += [f"earlier{number} = [", *_spelled_arguments(each, module), "]"]
    lines += ["arguments = [", *_spelled_arguments(arguments, module)]
    named = f'"{backend}"' if isinstance(backend, str) else repr(list(backend))
    compiled = f"hlojit.compile(text, backend={named})"
    if with_patterns:
        lines += ["]", f"executable = {compiled}", f"for byte in {PATTERNS}:", "    with unwritten_memory(byte):"]
        lines.append("        print(executable(*arguments))")
    elif earlier:
        before = [f"executable(*earlier{number})" for number in range(len(earlier))]
        lines += ["]", f"executable = {compiled}", *before, "print(executable(*arguments))"]
    else:
        lines += ["]", f"print({compiled}(*arguments))"]
    if expected:
        lines += [f"# {line}" for line in expected.splitlines()]
    return "\n".join(lines)


def _spelled_arguments(arguments: Sequence[NDArray], module: Module) -> list[str]:
    return [f"    {spelled(array, kind)}," for array, kind in zip(arguments, argument_types(module))]


def spelled_backend(backend: str | Sequence[str]) -> str:
    """A back end, or those among which programs are split, in a message."""
    return backend if isinstance(backend, str) else ", ".join(backend)


def spelled(array: NDArray, kind: TensorType) -> str:
    """An argument as an expression."""
    element = kind.element_type
    if element.dtype is None:
        codes = np.array2string(array.reshape(-1), separator=", ", threshold=array.size + 1, max_line_width=10**6)
        return f'hlojit.Array(np.array({codes}, "{array.dtype.str[1:]}").reshape({array.shape}), "{element.name}")'
    if array.size > _LONGEST and (array == array.reshape(-1)[0]).all():
        return f"np.full({array.shape}, {_number(array.reshape(-1)[0], element)}, {_dtype(element)})"
    values = ", ".join(_number(each, element) for each in array.reshape(-1))
    shape = "" if array.ndim == 1 else f".reshape({array.shape})"
    return f"np.array([{values}], {_dtype(element)}){shape}"


def _number(stored: Any, element: ElementType) -> str:
    if element.storage.kind in "iub":
        return str(stored)
    value = np.asarray(stored)
    if element.storage.kind == "V" or element.storage.itemsize < 4:
        value = to_compute(value.reshape(1), element)[0]
    number = complex(value) if np.iscomplexobj(value) else float(value)
    text = repr(number)
    return {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}.get(text, text.replace("nan", "np.nan"))


def _dtype(element: ElementType) -> str:
    dtype = element.dtype
    assert dtype is not None
    return f'"{dtype.str[1:]}"' if dtype.isbuiltin == 1 else f'hlojit.ir.element_type("{element.name}").dtype'


def without_module_line(text: str) -> str:
    lines = text.strip().splitlines()
    if lines[0] == "module {" and lines[-1] == "}":
        return "\n".join(line[2:] for line in lines[1:-1])
    return text.strip()


def _plugins_of(module: Module) -> list[str]:
    """Ops and element types of plugins that a module uses, with the plugins' names but the kit's own."""
    known = tables()
    used = {(OPS, instruction.name) for instruction in module.walk()}
    for instruction in module.walk():
        for kind in (*instruction.operand_types, *instruction.result_types):
            if isinstance(kind, TensorType):
                used.add((ELEMENT_TYPES, kind.element_type.name))
    found: dict[str, None] = {}
    for each in sorted(used):
        owner = known.owners.get(each)
        if owner is not None and not known.contributions[owner].built_in:
            by = "" if owner.startswith(__name__.rpartition(".")[0]) else f" of {owner}"
            found[f"{'the op' if each[0] == OPS else 'the element type'} {each[1]}{by}"] = None
    return list(found)
