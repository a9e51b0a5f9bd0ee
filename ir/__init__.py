"""The graph and all that is true on every device; imports nothing above it.

What is listed here is the public interface, for plugins and for people: the graph's classes, types, the builder, the
verifier, the reference interpreter, text in and out, the records of ops and what attributes are made of.  Names are imported when
they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hlojit.ir.presentation import present_by

if TYPE_CHECKING:
    from hlojit.ir.attribute_values import attribute_of
    from hlojit.ir.attributes import (
        ArrayAttr,
        Attribute,
        BoolAttr,
        ChannelHandle,
        ConvDimensionNumbers,
        Dense,
        DenseArrayAttr,
        DictAttr,
        DotAlgorithm,
        DotDimensionNumbers,
        FloatAttr,
        GatherDimensionNumbers,
        IntegerAttr,
        OutputOperandAlias,
        RaggedDotDimensionNumbers,
        ResultAccuracy,
        ScatterDimensionNumbers,
        StringAttr,
        SymbolAttr,
        TypeAttr,
        UnitAttr,
    )
    from hlojit.ir.builder import Builder, build_function
    from hlojit.ir.formats import ElementType, FloatFormat, element_type, element_types
    from hlojit.ir.graph import Block, Function, Instruction, Module, Value, clone_instruction
    from hlojit.ir.interpreter import evaluate, evaluate_instruction
    from hlojit.ir.ops.attribute_kinds import (
        BOOL,
        BOOL_ARRAY,
        F32,
        GENERIC,
        I32,
        I64,
        I64_ARRAY,
        STRING,
        ArrayOfKind,
        AttributeKind,
        EnumKind,
        RecordKind,
    )
    from hlojit.ir.ops.definition import (
        AttributeSpec,
        Constraint,
        Cost,
        Expand,
        Indexed,
        InferenceRequest,
        OpDefinition,
        Operand,
        Pointwise,
        ReferenceCall,
        Trait,
    )
    from hlojit.ir.ops.pointwise import like_operands
    from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor
    from hlojit.ir.verifier import verify

_HOME = {
    "attribute_values": ("attribute_of",),
    "attributes": (
        "ArrayAttr",
        "Attribute",
        "BoolAttr",
        "ChannelHandle",
        "ConvDimensionNumbers",
        "Dense",
        "DenseArrayAttr",
        "DictAttr",
        "DotAlgorithm",
        "DotDimensionNumbers",
        "FloatAttr",
        "GatherDimensionNumbers",
        "IntegerAttr",
        "OutputOperandAlias",
        "RaggedDotDimensionNumbers",
        "ResultAccuracy",
        "ScatterDimensionNumbers",
        "StringAttr",
        "SymbolAttr",
        "TypeAttr",
        "UnitAttr",
    ),
    "builder": ("Builder", "build_function"),
    "formats": ("ElementType", "FloatFormat", "element_type", "element_types"),
    "graph": ("Block", "Function", "Instruction", "Module", "Value", "clone_instruction"),
    "interpreter": ("evaluate", "evaluate_instruction"),
    "ops.attribute_kinds": (
        "ArrayOfKind",
        "AttributeKind",
        "BOOL",
        "BOOL_ARRAY",
        "EnumKind",
        "F32",
        "GENERIC",
        "I32",
        "I64",
        "I64_ARRAY",
        "RecordKind",
        "STRING",
    ),
    "ops.definition": (
        "AttributeSpec",
        "Constraint",
        "Cost",
        "Expand",
        "Indexed",
        "InferenceRequest",
        "OpDefinition",
        "Operand",
        "Pointwise",
        "ReferenceCall",
        "Trait",
    ),
    "ops.pointwise": ("like_operands",),
    "types": ("DYNAMIC", "TensorType", "Type", "tensor"),
    "verifier": ("verify",),
}

__all__ = [
    "BOOL",
    "BOOL_ARRAY",
    "DYNAMIC",
    "F32",
    "GENERIC",
    "I32",
    "I64",
    "I64_ARRAY",
    "STRING",
    "ArrayAttr",
    "ArrayOfKind",
    "Attribute",
    "AttributeKind",
    "AttributeSpec",
    "Block",
    "BoolAttr",
    "Builder",
    "ChannelHandle",
    "Constraint",
    "ConvDimensionNumbers",
    "Cost",
    "Dense",
    "DenseArrayAttr",
    "DictAttr",
    "DotAlgorithm",
    "DotDimensionNumbers",
    "ElementType",
    "EnumKind",
    "Expand",
    "FloatAttr",
    "FloatFormat",
    "Function",
    "GatherDimensionNumbers",
    "Indexed",
    "InferenceRequest",
    "Instruction",
    "IntegerAttr",
    "Module",
    "OpDefinition",
    "Operand",
    "OutputOperandAlias",
    "Pointwise",
    "RaggedDotDimensionNumbers",
    "RecordKind",
    "ReferenceCall",
    "ResultAccuracy",
    "ScatterDimensionNumbers",
    "StringAttr",
    "SymbolAttr",
    "TensorType",
    "Trait",
    "Type",
    "TypeAttr",
    "UnitAttr",
    "Value",
    "attribute_of",
    "build_function",
    "clone_instruction",
    "element_type",
    "element_types",
    "evaluate",
    "evaluate_instruction",
    "like_operands",
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
