"""The graph and all that is true on every device; imports nothing above it.

What is listed here is the public interface, for plugins and for people: the graph's classes, types, the builder, the
verifier, the reference interpreter, text in and out.  Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hlojit.ir.presentation import present_by

if TYPE_CHECKING:
    from hlojit.ir.attributes import Dense
    from hlojit.ir.builder import Builder, build_function
    from hlojit.ir.formats import ElementType, FloatFormat, element_type, element_types
    from hlojit.ir.graph import Block, Function, Instruction, Module, Value, clone_instruction
    from hlojit.ir.interpreter import evaluate
    from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor
    from hlojit.ir.verifier import verify

_HOME = {
    "attributes": ("Dense",),
    "builder": ("Builder", "build_function"),
    "formats": ("ElementType", "FloatFormat", "element_type", "element_types"),
    "graph": ("Block", "Function", "Instruction", "Module", "Value", "clone_instruction"),
    "interpreter": ("evaluate",),
    "types": ("DYNAMIC", "TensorType", "Type", "tensor"),
    "verifier": ("verify",),
}

__all__ = [
    "DYNAMIC",
    "Block",
    "Builder",
    "Dense",
    "ElementType",
    "FloatFormat",
    "Function",
    "Instruction",
    "Module",
    "TensorType",
    "Type",
    "Value",
    "build_function",
    "clone_instruction",
    "element_type",
    "element_types",
    "evaluate",
    "tensor",
    "verify",
]


def _text_of(module: Any) -> str:
    from hlojit.ir.text.printer import print_module

    return print_module(module)


present_by(_text_of)


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            value = getattr(importlib.import_module(f"hlojit.ir.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'hlojit.ir' has no attribute {name!r}")
