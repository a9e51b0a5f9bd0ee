"""Control flow, calls, tuples and tokens: what the host program itself executes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.errors import ExecutionError, TypeInferenceError
from hlojit.ir.formats import BooleanType, ElementType
from hlojit.ir.ops import padding_rules
from hlojit.ir.ops.attribute_kinds import GENERIC, I32, STRING, SYMBOL
from hlojit.ir.ops.batching import control as batching
from hlojit.ir.ops.batching.movement import native
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Cost,
    Expand,
    InferenceRequest,
    OpDefinition,
    Operand,
    Pointwise,
    ReferenceCall,
    Structural,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import control, loops
from hlojit.ir.ops.derivatives.pointwise import IDENTITY
from hlojit.ir.ops.parts import SEPARATELY, each_part
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    compatible_lists,
    inferred,
    operand_tensor,
    region_inputs,
    region_is,
    region_outputs,
    same_types,
    spell,
)
from hlojit.ir.types import TOKEN, TokenType, TupleType, Type, function_type, tensor, tuple_type

if TYPE_CHECKING:
    from hlojit.ir.graph import Function, Instruction, Value

STRUCTURAL = frozenset({Trait.STRUCTURAL})
TERMINATOR = frozenset({Trait.TERMINATOR, Trait.STRUCTURAL, Trait.UNRANKED})
BOOLEAN = tensor((), BooleanType())


def operand_types(request: InferenceRequest) -> Sequence[Type]:
    """Results have the operands' types."""
    return request.operand_types


# return and call


def _no_results(request: InferenceRequest) -> Sequence[Type]:
    return ()


FUNC_RETURN = define(
    OpDefinition(
        "func.return",
        operands=(Operand("operands", variadic=True),),
        infer=_no_results,
        syntax="return",
        traits=TERMINATOR,
        lowering=Structural("return", ends="function"),
        summary="ends a function's body and returns its values",
    )
)

RETURN = define(
    OpDefinition(
        "stablehlo.return",
        operands=(Operand("results", variadic=True),),
        infer=_no_results,
        syntax="return",
        traits=TERMINATOR,
        lowering=Structural("return", ends="region"),
        summary="ends a region and returns its values",
    )
)


def callee_of(instruction: Instruction, attribute: str = "callee") -> Function | None:
    """The function that an instruction names, if it lies in a module that has it."""
    return callee_named(instruction, instruction.attributes[attribute])


def callee_named(instruction: Instruction, name: str) -> Function | None:
    """The function of this name in the module of an instruction, or None."""
    function = instruction.function
    module = function.module if function is not None else None
    return module.functions.get(name) if module is not None else None


def signature_complaint(instruction: Instruction, attribute: str) -> str | None:
    """Say how operands and results differ from the called function's signature."""
    callee = callee_of(instruction, attribute)
    if callee is None:
        return f"there is no function @{instruction.attributes[attribute]} in the module"
    signature = callee.type
    if compatible_lists(instruction.operand_types, signature.inputs) and compatible_lists(
        instruction.result_types, signature.results
    ):
        return None
    found = function_type(instruction.operand_types, instruction.result_types)
    return f"@{callee.name} has type {signature} but is called as {found}"


CALL = define(
    OpDefinition(
        "func.call",
        operands=(Operand("operands", variadic=True),),
        attributes=(AttributeSpec("callee", SYMBOL),),
        constraints=(Constraint("callee", lambda instruction: signature_complaint(instruction, "callee")),),
        reference=lambda call, *values: call.call(call.attributes["callee"], *values),
        syntax="call",
        traits=STRUCTURAL | {Trait.UNRANKED},
        callees=("callee",),
        lowering=Structural("call"),
        summary="calls a function of the module",
    )
)


# composite


_NAMESPACED = re.compile(r"[A-Za-z]\w*(\.[\w$]+)+")


def _composite_name(instruction: Instruction) -> str | None:
    name = instruction.attributes["name"]
    if _NAMESPACED.fullmatch(name):
        return None
    return f"name {name!r} is not a namespaced op name such as my_namespace.my_op"


def _decomposition(instruction: Instruction) -> str | None:
    if callee_of(instruction, "decomposition") is None:
        return f"there is no function @{instruction.attributes['decomposition']} in the module"
    return None


def _decomposition_inputs(instruction: Instruction) -> str | None:
    callee = callee_of(instruction, "decomposition")
    if callee is None or compatible_lists(instruction.operand_types, callee.type.inputs):
        return None
    return f"inputs are {spell(instruction.operand_types)} but @{callee.name} takes {spell(callee.type.inputs)}"


def _decomposition_results(instruction: Instruction) -> str | None:
    callee = callee_of(instruction, "decomposition")
    if callee is None or compatible_lists(instruction.result_types, callee.type.results):
        return None
    return f"results are {spell(instruction.result_types)} but @{callee.name} returns {spell(callee.type.results)}"


def _expand_composite(builder: Any, instruction: Instruction) -> Sequence[Value]:
    call = builder.create(
        "func.call",
        instruction.operands,
        attributes={"callee": instruction.attributes["decomposition"]},
        result_types=instruction.result_types,
    )
    return list(call.results)


COMPOSITE = define(
    OpDefinition(
        "stablehlo.composite",
        operands=(Operand("inputs", variadic=True),),
        attributes=(
            AttributeSpec("name", STRING),
            AttributeSpec("composite_attributes", GENERIC, optional=True),
            AttributeSpec("decomposition", SYMBOL),
            AttributeSpec("version", I32, optional=True, default=0),
        ),
        regions=("composite_regions*",),
        constraints=(
            Constraint("C1", _composite_name),
            Constraint("C2", _decomposition),
            Constraint("C3", _decomposition_inputs),
            Constraint("C4", _decomposition_results),
        ),
        reference=lambda call, *values: call.call(call.attributes["decomposition"], *values),
        syntax="composite",
        traits=frozenset({Trait.PER_AXIS}),
        callees=("decomposition",),
        lowering=Expand(_expand_composite),
        summary="an op made of other ops, given by a function",
    )
)


# while, if, case


def _while_reference(call: ReferenceCall, *state: Any) -> tuple[Any, ...]:
    while bool(call.run(0, *state)[0]):
        state = call.run(1, *state)
    return state


WHILE_RULES = (
    Constraint("C1", lambda call: region_is("cond", call.regions[0], call.operand_types, (BOOLEAN,))),
    Constraint("C2", lambda call: region_is("body", call.regions[1], call.operand_types, call.operand_types)),
)

WHILE = define(
    OpDefinition(
        "stablehlo.while",
        operands=(Operand("operand", variadic=True),),
        regions=("cond", "body"),
        infer=checked(WHILE_RULES, operand_types),
        constraints=(*WHILE_RULES, inferred("C3")),
        reference=_while_reference,
        syntax="while",
        traits=STRUCTURAL,
        lowering=Structural("loop"),
        parts={ElementType: SEPARATELY},
        derivative=loops.LOOP,
        batching=batching.loop,
        summary="repeats a body while a condition holds",
    )
)


def _branches_have_no_inputs(call: OpCall) -> str | None:
    for number, block in enumerate(call.regions):
        if block.arguments:
            return f"branch {number} has arguments of types {spell(region_inputs(block))}, expected none"
    return None


def _branches_agree(call: OpCall) -> str | None:
    first = region_outputs(call.regions[0])
    for number, block in enumerate(call.regions):
        if not compatible_lists(region_outputs(block), first):
            return f"branch {number} returns {spell(region_outputs(block))} but branch 0 returns {spell(first)}"
    return None


def _first_branch_outputs(request: InferenceRequest) -> Sequence[Type]:
    return region_outputs(request.regions[0])


def _predicate(call: OpCall) -> str | None:
    type = operand_tensor(call, 0)
    return None if type is BOOLEAN else f"pred must be tensor<i1>, found {type}"


def _branch_index(call: OpCall) -> str | None:
    type = operand_tensor(call, 0)
    return None if type is tensor((), "i32") else f"index must be tensor<i32>, found {type}"


IF_RULES = (
    Constraint("I1", _predicate),
    Constraint("C1", _branches_have_no_inputs),
    Constraint("C2", _branches_agree),
)

IF = define(
    OpDefinition(
        "stablehlo.if",
        operands=(Operand("pred"),),
        regions=("true_branch", "false_branch"),
        infer=checked(IF_RULES, _first_branch_outputs),
        constraints=(*IF_RULES, inferred("C3")),
        reference=lambda call, predicate: call.run(0 if bool(predicate) else 1),
        syntax="generic",
        traits=STRUCTURAL,
        lowering=Structural("branch"),
        parts={ElementType: SEPARATELY},
        derivative=control.BRANCH,
        batching=batching.branch,
        summary="evaluates one of two branches",
    )
)

CASE_RULES = (
    Constraint("I1", _branch_index),
    Constraint("C1", lambda call: None if call.regions else "there must be at least one branch"),
    Constraint("C2", _branches_have_no_inputs),
    Constraint("C3", _branches_agree),
)


def _case_reference(call: ReferenceCall, index: Array) -> tuple[Any, ...]:
    count = len(call.instruction.regions)
    return call.run(int(index) if 0 <= int(index) < count else count - 1)


CASE = define(
    OpDefinition(
        "stablehlo.case",
        operands=(Operand("index"),),
        regions=("branches*",),
        infer=checked(CASE_RULES, _first_branch_outputs),
        constraints=(*CASE_RULES, inferred("C4")),
        reference=_case_reference,
        syntax="generic",
        traits=STRUCTURAL,
        lowering=Structural("branch"),
        parts={ElementType: SEPARATELY},
        derivative=control.BRANCH,
        batching=batching.branch,
        summary="evaluates the branch that an index chooses, the last one if it is out of range",
    )
)


# tuples and tokens

TUPLE = define(
    OpDefinition(
        "stablehlo.tuple",
        operands=(Operand("val", variadic=True),),
        infer=lambda request: (tuple_type(request.operand_types),),
        constraints=(inferred("C1"),),
        reference=lambda call, *values: (tuple(values),),
        syntax="tuple",
        traits=STRUCTURAL,
        lowering=Structural("tuple"),
        summary="makes a tuple",
    )
)


def _tuple_index(call: OpCall) -> str | None:
    type = call.operand_types[0]
    if not isinstance(type, TupleType):
        raise TypeInferenceError(f"operand must be a tuple, found {type}", "I1")
    index = call.attributes["index"]
    if 0 <= index < len(type.elements):
        return None
    return f"index {index} is not within the {len(type.elements)} elements of {type}"


def _tuple_element(request: InferenceRequest) -> Sequence[Type]:
    type = request.operand_types[0]
    assert isinstance(type, TupleType)
    return (type.elements[request.attributes["index"]],)


GET_TUPLE_ELEMENT_RULES = (Constraint("C1", _tuple_index),)

GET_TUPLE_ELEMENT = define(
    OpDefinition(
        "stablehlo.get_tuple_element",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("index", I32),),
        infer=checked(GET_TUPLE_ELEMENT_RULES, _tuple_element),
        constraints=(*GET_TUPLE_ELEMENT_RULES, inferred("C2")),
        reference=lambda call, value: (value[call.attributes["index"]],),
        syntax="get_tuple_element",
        traits=STRUCTURAL,
        lowering=Structural("tuple"),
        summary="one element of a tuple",
    )
)


def _all_tokens(call: OpCall) -> str | None:
    for type in call.operand_types:
        if not isinstance(type, TokenType):
            return f"inputs must be tokens, found {type}"
    return None


AFTER_ALL = define(
    OpDefinition(
        "stablehlo.after_all",
        operands=(Operand("inputs", variadic=True),),
        infer=checked((Constraint("I1", _all_tokens),), lambda request: (TOKEN,)),
        constraints=(Constraint("I1", _all_tokens),),
        reference=lambda call, *tokens: (None,),
        syntax="pretty-same-type",
        traits=STRUCTURAL,
        lowering=Structural("token"),
        summary="a token that comes after all of its inputs",
    )
)

CREATE_TOKEN = define(
    OpDefinition(
        "stablehlo.create_token",
        infer=lambda request: (TOKEN,),
        reference=lambda call: (None,),
        syntax="pretty-result-type",
        traits=STRUCTURAL,
        lowering=Structural("token"),
        summary="a token that comes after nothing",
    )
)

OPTIMIZATION_BARRIER = define(
    OpDefinition(
        "stablehlo.optimization_barrier",
        operands=(Operand("operand", variadic=True),),
        infer=operand_types,
        constraints=(inferred("C1"),),
        reference=lambda call, *values: values,
        syntax="optimization_barrier",
        traits=STRUCTURAL,
        lowering=Structural("alias"),
        parts={ElementType: SEPARATELY},
        padded=padding_rules.as_pointwise,
        derivative=IDENTITY,
        batching=native,
        summary="an identity across which nothing is moved",
    )
)


# Sharding annotations of other dialects: identities on one device.


SHARDING_CONSTRAINT = define(
    OpDefinition(
        "sdy.sharding_constraint",
        operands=(Operand("input"),),
        attributes=(AttributeSpec("sharding", GENERIC, optional=True),),
        infer=operand_types,
        constraints=(
            Constraint("result", lambda i: same_types("input and result", (*i.operand_types, *i.result_types))),
        ),
        reference=lambda call, value: value,
        syntax="sharding_constraint",
        traits=frozenset({Trait.BITCAST}),
        lowering=Pointwise(lambda builder, call, operand: operand),
        parts={ElementType: each_part},
        cost=Cost.CHEAP,
        derivative=IDENTITY,
        summary="an identity that carries a sharding",
    )
)


def unsupported_reference(why: str) -> Any:
    """A reference that refuses, for ops whose meaning lies outside one process."""

    def refuse(call: ReferenceCall, *values: Any) -> Any:
        raise ExecutionError(f"{call.instruction.name} at {call.instruction.location}: {why}")

    return refuse
