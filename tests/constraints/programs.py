"""Programs that break one constraint each, as text: op, label, and what stands in @main, with what must be said of it.

Values that the lines read are arguments of @main: a name begins with the letters of its type (``%f23`` is a tensor<2x3xf32>).
"""

from __future__ import annotations

import re
from typing import NamedTuple

SCALARS = {
    "f": "f32",
    "i": "i32",
    "l": "i64",
    "b": "i1",
    "d": "f64",
    "c": "complex<f32>",
    "u": "ui32",
    "m": "index",
    "y": "i8",
}
SCALARS |= {"q": "!quant.uniform<i8:f32, 0.5>", "t": "!quant.uniform<i8:f32:0, {0.5, 0.25}>"}
SPECIAL = {
    "token": "!stablehlo.token",
    "buffer": "memref<2xf32>",
    "buffer3": "memref<3xf32>",
    "n": "index",
    "e": "f32",
    "witness": "!shape.witness",
    "function": "(tensor<2xf32>) -> tensor<2xf32>",
}
PAIR = "tuple<tensor<2xf32>, tensor<i32>>"
DENSE_GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"


class Broken(NamedTuple):
    """A line of a program that breaks the constraint ``label`` of ``op``; the fault must hold ``expected``."""

    op: str
    label: str
    line: str
    expected: str
    functions: str = ""


def type_of(name: str) -> str:
    """The type of the argument of this name: f23 is tensor<2x3xf32>, fq a tensor of one unknown size."""
    if name in SPECIAL:
        return SPECIAL[name]
    if name == "pair":
        return PAIR
    match = re.fullmatch(r"([a-z])([0-9q]*)", name)
    assert match is not None, name
    dimensions = "".join(f"{'?' if size == 'q' else size}x" for size in match[2])
    return f"tensor<{dimensions}{SCALARS[match[1]]}>"


def text_of(broken: Broken) -> str:
    """The program, in which ``$`` before a name stands for the type of the argument of that name."""
    line = re.sub(r"\$(\w+)", lambda match: type_of(match[1]), broken.line)
    defined = set(re.findall(r"%(\w+)(?::\w+)? =", line)) | set(re.findall(r"%(\w+): ", line))
    names = sorted(set(re.findall(r"%(\w+)", line)) - defined)
    arguments = ", ".join(f"%{name}: {type_of(name)}" for name in names)
    return f"{broken.functions}\nfunc.func @main({arguments}) {{\n  {line}\n  func.return\n}}\n"


def call(op: str, operands: str, results: str = "", attributes: str = "", regions: str = "") -> str:
    """The generic form: operands are names of arguments, results the names of arguments of the results' types."""
    names = operands.split()
    outputs = results.split()
    text = f'%r:{len(outputs)} = "{op}"(' if outputs else f'"{op}"('
    text += ", ".join(f"%{name}" for name in names) + ")"
    text += f" <{{{attributes}}}>" if attributes else ""
    text += f" ({regions})" if regions else ""
    return f"{text} : ({', '.join(f'${name}' for name in names)}) -> ({', '.join(f'${name}' for name in outputs)})"
