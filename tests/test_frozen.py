"""A frozen module can be changed nowhere, its clone everywhere."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.attributes import Dense, StringAttr
from hlojit.ir.frozen import FrozenDict, FrozenList, immutable_array
from hlojit.ir.graph import Block, Function, Instruction, Module, Value
from hlojit.ir.ops.definition import op
from hlojit.ir.types import function_type, opaque_type, tensor, tuple_type

TEXT = """
module attributes {mhlo.num_replicas = 1 : i32} {
  func.func @main(%p: tensor<i1>, %x: tensor<4xf32> {jax.name = "x"}) -> (tensor<4xf32> {jax.name = "y"}) {
    %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
    %0 = "stablehlo.if"(%p) ({
      %1 = stablehlo.add %x, %c {note = "kept"} : tensor<4xf32>
      stablehlo.return %1 : tensor<4xf32>
    }, {
      stablehlo.return %x : tensor<4xf32>
    }) : (tensor<i1>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


def parts(module: Module) -> tuple[Function, Instruction, Instruction, Block, Value]:
    function = module.main
    branch = next(each for each in function.body if each.regions)
    addition = branch.regions[0].first
    assert addition is not None
    return function, branch, addition, branch.regions[0], addition.results[0]


CHANGES: dict[str, Callable[[Module], Any]] = {
    "module name": lambda m: setattr(m, "name", "other"),
    "functions": lambda m: m.functions.pop("main"),
    "functions, by name": lambda m: m.functions.__setitem__("f", m.main),
    "functions, all": lambda m: setattr(m, "functions", {}),
    "a function more": lambda m: m.add_function(Function("f", [], [])),
    "module attributes": lambda m: m.attributes.clear(),
    "resources": lambda m: m.resources.update(x=b""),
    "foreign": lambda m: m.foreign.append("sdy.mesh"),
    "thawing": lambda m: setattr(m, "frozen", False),
    "function name": lambda m: setattr(m.main, "name", "other"),
    "visibility": lambda m: setattr(m.main, "visibility", "private"),
    "body": lambda m: setattr(m.main, "body", Block()),
    "result types": lambda m: m.main.result_types.append(tensor((), "f32")),
    "function attributes": lambda m: m.main.attributes.update(a=StringAttr("x")),
    "argument attributes": lambda m: m.main.argument_attributes[1].pop("jax.name"),
    "argument attributes, all": lambda m: m.main.argument_attributes.pop(),
    "result attributes": lambda m: m.main.result_attributes[0].__delitem__("jax.name"),
    "arguments": lambda m: m.main.body.arguments.reverse(),
    "an argument more": lambda m: m.main.body.add_argument(tensor((), "f32")),
    "an argument less": lambda m: m.main.body.erase_argument(0),
    "argument type": lambda m: setattr(m.main.body.arguments[0], "type", tensor((), "i32")),
    "first instruction": lambda m: setattr(m.main.body, "first", None),
    "erasing": lambda m: m.main.body.terminator.erase(),
    "appending": lambda m: m.main.body.append(Instruction(op("func.return"), [], [])),
    "thawing a block": lambda m: setattr(m.main.body, "frozen", False),
    "op": lambda m: setattr(parts(m)[2], "op", op("subtract")),
    "attributes": lambda m: parts(m)[2].attributes.update(x=1),
    "attributes, one": lambda m: parts(m)[2].attributes.__setitem__("x", 1),
    "attributes, by default": lambda m: parts(m)[2].attributes.setdefault("x", 1),
    "attributes, merged": lambda m: parts(m)[2].attributes.__ior__({"x": 1}),
    "attributes, all": lambda m: setattr(parts(m)[2], "attributes", {}),
    "discardable": lambda m: parts(m)[2].discardable.pop("note"),
    "regions": lambda m: parts(m)[1].regions.pop(),
    "regions, one": lambda m: parts(m)[1].regions.__setitem__(0, Block()),
    "regions, all": lambda m: setattr(parts(m)[1], "regions", []),
    "results": lambda m: setattr(parts(m)[2], "results", ()),
    "operands": lambda m: setattr(parts(m)[2], "operands", ()),
    "operand": lambda m: parts(m)[2].set_operand(0, m.main.body.arguments[1]),
    "location": lambda m: setattr(parts(m)[2], "location", None),
    "block": lambda m: setattr(parts(m)[2], "block", None),
    "region's arguments": lambda m: parts(m)[3].arguments.append(m.main.body.arguments[0]),
    "region's instructions": lambda m: parts(m)[3].first.unlink(),  # type: ignore[union-attr]
    "result type": lambda m: setattr(parts(m)[4], "type", tensor((4,), "f64")),
    "users": lambda m: parts(m)[4].users.clear(),
    "uses": lambda m: parts(m)[4].replace_all_uses_with(m.main.body.arguments[1]),
    "an attribute less": lambda m: delattr(m, "name"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_nothing_of_a_frozen_module_can_be_changed(what: str) -> None:
    module = hlojit.parse(TEXT).freeze()
    before = str(module)
    with pytest.raises(hlojit.HlojitError, match=r"the module is frozen; work on module\.clone\(\)"):
        CHANGES[what](module)
    assert str(module) == before


def test_a_clone_can_be_changed_and_leaves_the_frozen_module_alone() -> None:
    frozen = hlojit.parse(TEXT).freeze()
    before = str(frozen)
    clone = frozen.clone()
    assert type(clone) is Module and not clone.frozen and str(clone) == before
    _, branch, addition, region, value = parts(clone)
    addition.attributes["x"] = 1
    addition.discardable["y"] = StringAttr("z")
    clone.main.attributes["z"] = StringAttr("z")
    clone.main.argument_attributes[0]["z"] = StringAttr("z")
    value.replace_all_uses_with(clone.main.body.arguments[1])
    addition.erase()
    branch.regions.append(Block())
    region.arguments.clear()
    clone.functions["other"] = clone.functions.pop("main")
    clone.foreign.append("x")
    assert str(frozen) == before and list(frozen.functions) == ["main"]


def test_a_frozen_module_is_of_the_same_objects() -> None:
    module = hlojit.parse(TEXT)
    function, branch, addition, region, value = parts(module)
    assert module.freeze() is module and module.freeze() is module
    assert parts(module) == (function, branch, addition, region, value)
    assert isinstance(addition, Instruction) and isinstance(region, Block) and isinstance(value, Value)
    assert value.users == {region.terminator: 1} and branch.operands[0].users == {branch: 1}
    assert hlojit.compile(module)(np.bool_(True), np.ones(4, "f4")).tolist() == [2, 3, 4, 5]


def test_types_cannot_be_changed() -> None:
    matrix = tensor((2, 3), "f32")
    changes: list[Callable[[], Any]] = [
        lambda: setattr(matrix, "shape", (7,)),
        lambda: setattr(matrix, "element_type", tensor((), "f64").element_type),
        lambda: setattr(matrix, "rank", 9),
        lambda: delattr(matrix, "encoding"),
        lambda: setattr(tuple_type((matrix,)), "elements", ()),
        lambda: setattr(function_type((matrix,), ()), "inputs", ()),
        lambda: setattr(opaque_type("!x.y"), "text", "!z"),
    ]
    for change in changes:
        with pytest.raises(hlojit.HlojitError, match="types are immutable"):
            change()
    assert (matrix.rank, matrix.size, matrix.strides, str(matrix)) == (2, 6, (3, 1), "tensor<2x3xf32>")
    assert tensor((2, 3), "f32") is matrix


# containers and constants


def test_frozen_containers_are_copied_as_what_they_look_like() -> None:
    entries, items = FrozenDict({"a": 1}), FrozenList([1, 2])
    assert entries == {"a": 1} and items == [1, 2] and items[:1] == [1]
    for changed in (dict(entries), list(items)):
        changed.clear()
    for original in (entries, items):
        for copied in (copy.copy(original), copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
            assert copied == original and type(copied) is type(original)
    changes: list[Callable[[], Any]] = [
        lambda: items.extend([3]),
        lambda: items.insert(0, 3),
        lambda: items.remove(1),
        lambda: items.clear(),
        lambda: items.sort(),
        lambda: items.__iadd__([3]),
        lambda: items.__imul__(2),
        lambda: items.__delitem__(0),
        lambda: entries.popitem(),
        lambda: entries.__delitem__("a"),
    ]
    for change in changes:
        with pytest.raises(hlojit.HlojitError):
            change()


ARRAYS = [
    np.arange(12, dtype="f4").reshape(3, 4),
    np.arange(12, dtype="i8").reshape(3, 4).T,
    np.arange(12, dtype="i8")[::-2],
    np.array(3.5),
    np.zeros((0, 3), "f4"),
    np.broadcast_to(np.float32(7), (1000, 1000)),
    np.arange(3).astype(ml_dtypes.bfloat16),
    np.arange(3).astype(ml_dtypes.float8_e4m3fn),
    np.array([True, False]),
    np.array([1 + 2j], "c8"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{list(array.shape)}")
def test_an_immutable_array_cannot_be_made_writable(array: np.ndarray[Any, Any]) -> None:
    found = immutable_array(array)
    assert found.dtype is array.dtype and found.shape == array.shape
    np.testing.assert_array_equal(found.astype("c16"), array.astype("c16"))
    if array.size > 1000:
        assert found.strides == (0, 0), "a splat stays one element"
    part: Any = found
    while isinstance(part, np.ndarray):
        with pytest.raises(ValueError, match="WRITEABLE"):
            part.setflags(write=True)
        part = part.base
    assert immutable_array(found) is found


def test_a_constant_does_not_follow_the_array_that_it_was_made_of() -> None:
    array = np.arange(4, dtype="f4")
    dense = Dense(tensor((4,), "f32"), array)
    array[:] = 9
    assert dense.array.tolist() == [0, 1, 2, 3]


def test_constants_of_a_parsed_program_cannot_be_written() -> None:
    for text in (
        "dense<[1.0, 2.0]> : tensor<2xf32>",
        "dense<3.0> : tensor<2xf32>",
        'dense<"0x0000803F00000040"> : tensor<2xf32>',
    ):
        module = hlojit.parse(
            f"func.func @main() -> tensor<2xf32> {{ %0 = stablehlo.constant {text} return %0 : tensor<2xf32> }}"
        )
        first = module.main.body.first
        assert first is not None
        with pytest.raises(ValueError, match="WRITEABLE"):
            first.attributes["value"].array.setflags(write=True)
