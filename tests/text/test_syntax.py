"""What the parser understands, piece by piece; what MLIR can read is compared with what MLIR reads."""

from __future__ import annotations

import re
from collections.abc import Callable

import hlojit
import numpy as np
import pytest
from hlojit.ir.attributes import DenseArrayAttr, FloatAttr, IntegerAttr, OpaqueAttr, StringAttr, TypeAttr, UnitAttr
from hlojit.ir.compare import first_difference, structurally_equal
from hlojit.ir.errors import ParseError, UnsupportedError
from hlojit.ir.formats import QuantizedType
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.location import CallSiteLocation, FileLocation, FusedLocation, NameLocation
from hlojit.ir.ops.definition import ops
from hlojit.ir.text.form_table import form_of
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_instruction, print_module
from hlojit.ir.types import TOKEN, TensorType, tensor, tuple_type

from . import programs


def in_function(body: str, arguments: str = "%a: tensor<2x3xf32>, %i: tensor<i32>") -> str:
    """A function around some lines."""
    return f"func.func @main({arguments}) {{\n{body}\n  return\n}}\n"


def first(body: str, arguments: str = "%a: tensor<2x3xf32>, %i: tensor<i32>") -> Instruction:
    """The first instruction of a body."""
    instruction = parse_module(in_function(body, arguments)).main.body.first
    assert instruction is not None
    return instruction


PAIRS = [
    ("stablehlo.abs %a : tensor<2x3xf32>", '"stablehlo.abs"(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>'),
    (
        "stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        '"stablehlo.transpose"(%a) <{permutation = array<i64: 1, 0>}> : (tensor<2x3xf32>) -> tensor<3x2xf32>',
    ),
    (
        "stablehlo.slice %a [0:1, 1:3:2] : (tensor<2x3xf32>) -> tensor<1x1xf32>",
        '"stablehlo.slice"(%a) {limit_indices = array<i64: 1, 3>, start_indices = array<i64: 0, 1>, '
        "strides = array<i64: 1, 2>} : (tensor<2x3xf32>) -> tensor<1x1xf32>",
    ),
    (
        "stablehlo.compare LT, %a, %a, TOTALORDER : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
        '"stablehlo.compare"(%a, %a) <{compare_type = #stablehlo<comparison_type TOTALORDER>, comparison_direction = '
        "#stablehlo<comparison_direction LT>}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
    ),
    (
        "stablehlo.dot_general %a, %a, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = "
        "[DEFAULT, HIGHEST] : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2xf32>",
        '"stablehlo.dot_general"(%a, %a) <{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], '
        "rhs_batching_dimensions = [0], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, "
        "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]}> : "
        "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2xf32>",
    ),
    (
        "stablehlo.dot_general %a, %a, contracting_dims = [0, 1] x [0, 1], algorithm = <lhs_precision_type = tf32, "
        "rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, "
        "num_primitive_operations = 1, allow_imprecise_accumulation = false> : "
        "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>",
        '"stablehlo.dot_general"(%a, %a) <{algorithm = #stablehlo.dot_algorithm<lhs_precision_type = tf32, '
        "rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, "
        "num_primitive_operations = 1, allow_imprecise_accumulation = false>, dot_dimension_numbers = #stablehlo.dot<"
        "lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>}> : "
        "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<f32>",
    ),
    (
        "stablehlo.iota dim = 1 : tensor<2x3xi32>",
        '"stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x3xi32>',
    ),
    (
        "stablehlo.reduce_precision %a, format = e5m10 : tensor<2x3xf32>",
        '"stablehlo.reduce_precision"(%a) <{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}> : '
        "(tensor<2x3xf32>) -> tensor<2x3xf32>",
    ),
    (
        "stablehlo.tuple %a, %i : tuple<tensor<2x3xf32>, tensor<i32>>",
        '"stablehlo.tuple"(%a, %i) : (tensor<2x3xf32>, tensor<i32>) -> tuple<tensor<2x3xf32>, tensor<i32>>',
    ),
    (
        "stablehlo.complex %a, %a : tensor<2x3xcomplex<f32>>",
        '"stablehlo.complex"(%a, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xcomplex<f32>>',
    ),
    (
        'stablehlo.custom_call @target(%a, %i) {backend_config = "x", has_side_effect = true} : '
        "(tensor<2x3xf32>, tensor<i32>) -> tensor<f32>",
        '"stablehlo.custom_call"(%a, %i) <{backend_config = "x", call_target_name = "target", has_side_effect = true}>'
        " : (tensor<2x3xf32>, tensor<i32>) -> tensor<f32>",
    ),
    (
        "stablehlo.concatenate %a, %a, dim = 0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>",
        '"stablehlo.concatenate"(%a, %a) <{dimension = 0 : i64}>'
        " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>",
    ),
    (
        "stablehlo.dynamic_slice %a, %i, %i, sizes = [1, 1]"
        " : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1xf32>",
        '"stablehlo.dynamic_slice"(%a, %i, %i) <{slice_sizes = array<i64: 1, 1>}> : '
        "(tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1xf32>",
    ),
    ("stablehlo.create_token : !stablehlo.token", '"stablehlo.create_token"() : () -> !stablehlo.token'),
    ("chlo.erf %a : tensor<2x3xf32> -> tensor<2x3xf32>", '"chlo.erf"(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>'),
]


@pytest.mark.parametrize(("pretty", "generic"), PAIRS)
def test_pretty_and_generic_forms_are_one_op(pretty: str, generic: str, mlir_reads: Callable[[str], str]) -> None:
    """To us and to MLIR."""
    one, other = (parse_module(in_function(f"  %0 = {text}")) for text in (pretty, generic))
    assert first_difference(one, other) is None
    assert mlir_reads(in_function(f"  %0 = {pretty}")) == mlir_reads(print_module(other))


def test_every_op_has_a_form_that_fits_its_record() -> None:
    """A template that names an attribute which the record lacks is an error."""
    for op in ops():
        form_of(op)


@pytest.mark.parametrize("name", ["scan", "control", "elementwise", "products", "constants", "windows"])
def test_the_fast_path_reads_what_the_slow_one_reads(name: str) -> None:
    """Two blanks before ``=`` are enough to leave the fast path."""
    text = programs.text_of(name)
    slow = re.sub(r"^(\s*%[^\s,]+) = ", r"\1  = ", text, flags=re.MULTILINE)
    slow = re.sub(r"^(\s*)(stablehlo\.)?return ", r"\1\2return  ", slow, flags=re.MULTILINE)
    assert slow != text
    assert first_difference(parse_module(text), parse_module(slow)) is None


def test_results_in_groups() -> None:
    """``%0:2``, ``%0#1``, ``%x, %y:2`` and a group's bare name."""
    body = """
      %0:2 = stablehlo.optimization_barrier %a, %i : tensor<2x3xf32>, tensor<i32>
      %x, %y = stablehlo.optimization_barrier %0#0, %0#1 : tensor<2x3xf32>, tensor<i32>
      %1 = stablehlo.abs %0 : tensor<2x3xf32>
      %2 = stablehlo.abs %y#0 : tensor<i32>"""
    block = parse_module(in_function(body)).main.body
    group, pair, absolute, other, _ = block
    assert pair.operands == group.results
    assert absolute.operands == group.results[:1]
    assert other.operands == pair.results[1:]


def test_while_with_and_without_state(mlir_reads: Callable[[str], str]) -> None:
    """Names of the state serve both regions."""
    body = """
      %n = stablehlo.constant dense<3> : tensor<i32>
      %0:2 = stablehlo.while(%j = %i, %x = %a) : tensor<i32>, tensor<2x3xf32> attributes {note = 1 : i8}
      cond {
        %c = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %k = stablehlo.add %j, %j : tensor<i32>
        stablehlo.return %k, %x : tensor<i32>, tensor<2x3xf32>
      }
      stablehlo.while()
      cond {
        %c = stablehlo.constant dense<false> : tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        stablehlo.return
      }"""
    module = parse_module(in_function(body))
    assert [len(i.regions) for i in module.main.body] == [0, 2, 2, 0]
    assert mlir_reads(print_module(module)) == mlir_reads(in_function(body))


def test_reduce_with_a_region(mlir_reads: Callable[[str], str]) -> None:
    """Two operands; the arguments come in pairs, the block has inputs first."""
    body = """
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %0:2 = stablehlo.reduce(%a init: %z), (%a init: %z) across dimensions = [1] :
        (tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<f32>) -> (tensor<2xf32>, tensor<2xf32>)
       reducer(%p: tensor<f32>, %q: tensor<f32>) (%r: tensor<f32>, %s: tensor<f32>) {
        %m = stablehlo.subtract %p, %q : tensor<f32>
        %n = stablehlo.subtract %r, %s : tensor<f32>
        stablehlo.return %m, %n : tensor<f32>, tensor<f32>
      }"""
    module = parse_module(in_function(body))
    reduce = list(module.main.body)[1]
    subtract = reduce.regions[0].first
    assert subtract is not None
    assert list(subtract.operands) == [reduce.regions[0].arguments[0], reduce.regions[0].arguments[2]]
    assert mlir_reads(print_module(module)) == mlir_reads(in_function(body))


def test_types() -> None:
    """Of arguments: dynamic, bounded, quantized, tuples, tokens, aliases and foreign ones."""
    text = """
      !pair = tuple<tensor<f32>, !stablehlo.token>
      #CSR = #sparse_tensor.encoding<{
        map = (d0, d1) -> (d0 : dense, d1 : compressed)  // rows
      }>
      func.func private @f(tensor<?x3xf32>, tensor<?xf32, #stablehlo.bounds<4>>, tensor<2x2xf32, #CSR>, !pair,
        tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.1:1, 2.5}>>, !vendor.thing<a, "b>">, tensor<0xui4>)"""
    function = parse_module(text).functions["f"]
    dynamic, bounded, sparse, pair, quantized, foreign, empty = (a.type for a in function.body.arguments)
    assert dynamic is tensor((-1, 3), "f32")
    assert isinstance(bounded, TensorType) and bounded.encoding == "#stablehlo.bounds<4>"
    assert isinstance(sparse, TensorType) and "compressed) }>" in sparse.encoding
    assert pair is tuple_type([tensor((), "f32"), TOKEN])
    assert isinstance(quantized, TensorType)
    row = quantized.element_type
    assert isinstance(row, QuantizedType)
    assert (row.scales, row.zero_points, row.axis, row.storage_min) == ((0.1, 2.5), (1, 0), 0, -127)
    assert str(foreign) == '!vendor.thing<a, "b>">'
    assert empty is tensor((0,), "ui4")
    module = parse_module(text)
    assert structurally_equal(parse_module(print_module(module)), module)


def test_attributes() -> None:
    """Generic ones, kept as discardable attributes and printed back."""
    body = """  %0 = stablehlo.abs %a {a, b = -3 : i8, c = 0.1 : f32, d = "q\\22\\0A\\C3\\A9", e = [1, @s::@t],
      f = {x = unit},
      g = array<i64: 1, 2>, h = tensor<2xf32>, i = #vendor.attr<"x>", [<]>]>, "j k" = true, l = 0x7FC00000 : f32,
      m = affine_map<(d0) -> (d0 + 1)>, n = array<f32: 1.5, -0.0>, o = dense<[1, 2]> : tensor<2xindex>,
      p = 255 : i8} : tensor<2x3xf32>"""
    body = body.replace("[<]>]", "[<2>]")
    module = parse_module(in_function(body))
    instruction = module.main.body.first
    assert instruction is not None
    found = instruction.discardable
    assert found["a"] == UnitAttr()
    assert found["b"] == IntegerAttr(-3, "i8")
    assert found["c"] == FloatAttr(float(np.float32(0.1)), "f32")
    assert found["d"] == StringAttr('q"\né')
    assert found["g"] == DenseArrayAttr("i64", (1, 2))
    assert found["h"] == TypeAttr(tensor((2,), "f32"))
    assert found["i"] == OpaqueAttr('#vendor.attr<"x>", [<2>]>')
    assert found["m"] == OpaqueAttr("affine_map<(d0) -> (d0 + 1)>")
    assert found["p"] == IntegerAttr(-1, "i8")
    assert first_difference(parse_module(print_module(module)), module) is None


def test_aliases_and_locations_behind_their_use() -> None:
    """Locations of every kind."""
    text = """
      func.func @main(%a: tensor<f32> loc("a")) -> tensor<f32> attributes {tag = #tag} {
        %0 = stablehlo.abs %a : tensor<f32> loc(#loc2)
        %1 = stablehlo.abs %0 : tensor<f32> loc(fused<"why">["x.py":1:2 to 3:4, "n"])
        %2 = stablehlo.abs %1 : tensor<f32> loc(unknown)
        return %2 : tensor<f32> loc("r"(callsite("f"("a.py":1:2) at "b.py":3:4 to :9)))
      } loc(#loc)
#tag = ["t", #inner]
#inner = 3 : i8
#loc = loc(unknown)
#loc1 = loc("file.py":7:8)
#loc2 = loc("name"(#loc1))"""
    module = parse_module(text, source_name="text.mlir")
    a, b, c, d = (instruction.location for instruction in module.main.body)
    assert a == NameLocation("name", FileLocation("file.py", 7, 8))
    assert b == FusedLocation((FileLocation("x.py", 1, 2, 3, 4), NameLocation("n")), '"why"')
    assert c == FileLocation("text.mlir", 5, 9)
    callee = NameLocation("f", FileLocation("a.py", 1, 2))
    assert d == NameLocation("r", CallSiteLocation(callee, FileLocation("b.py", 3, 4, 3, 9)))
    assert str(module.main.attributes["tag"]) == str(parse_module(print_module(module)).main.attributes["tag"])


def test_modules_without_a_wrapper_and_several_functions() -> None:
    """Private ones, declarations, nested visibility, names in quotes."""
    text = """// a comment
      func.func private @"a b"(%x: tensor<f32> {k = 1 : i32}) -> (tensor<f32> {r}) { return %x : tensor<f32> }
      func.func nested @n() attributes {no_inline} { func.return }
      func.func private @declared(tensor<f32>, tensor<i1>) -> tensor<f32>
      func.func @main(%x: tensor<f32>) -> tensor<f32> {
        %0 = call @"a b"(%x) : (tensor<f32>) -> tensor<f32>  // and one more
        %1 = func.call @main(%0) {note} : (tensor<f32>) -> tensor<f32>
        return %1 : tensor<f32>
      }"""
    module = parse_module(text)
    assert [f.visibility for f in module.functions.values()] == ["private", "nested", "private", "public"]
    assert module.functions["declared"].is_declaration
    assert module.functions["a b"].argument_attributes == [{"k": IntegerAttr(1, "i32")}]
    assert module.functions["a b"].result_attributes == [{"r": UnitAttr()}]
    assert first_difference(parse_module(print_module(module)), module) is None


def test_generic_module_and_functions() -> None:
    """As ``print_generic_op_form`` writes them."""
    text = """"builtin.module"() <{sym_name = "m"}> ({
      "func.func"() <{arg_attrs = [{k}], function_type = (tensor<f32>) -> tensor<f32>, sym_name = "main"}> ({
      ^bb0(%arg0: tensor<f32>):
        %0 = "stablehlo.abs"(%arg0) : (tensor<f32>) -> tensor<f32>
        "func.return"(%0) : (tensor<f32>) -> ()
      }) {late = 1 : i32} : () -> ()
    }) {x} : () -> ()"""
    pretty = """module @m attributes {x} {
      func.func @main(%a: tensor<f32> {k}) -> tensor<f32> attributes {late = 1 : i32} {
      %0 = stablehlo.abs %a : tensor<f32>
      return %0 : tensor<f32> } }"""
    assert first_difference(parse_module(text), parse_module(pretty)) is None


def test_ops_of_other_dialects() -> None:
    """Top-level ones are kept as text; inside functions they need a record or leave to go without."""
    text = """module {
      sdy.mesh @mesh = <["x"=2, "y"=1]> loc("mesh")
      sdy.mesh @other = <["x"=
         2]>
      func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
        %0 = sdy.sharding_constraint %a <@mesh, [{"x"}]> : tensor<4xf32>
        %1 = "vendor.op"(%0) <{k = 1 : i32}> ({
        ^bb0(%x: tensor<f32>):
          "vendor.yield"(%x) : (tensor<f32>) -> ()
        }) {d} : (tensor<4xf32>) -> tensor<4xf32>
        return %1 : tensor<4xf32>
      }
    }"""
    with pytest.raises(ParseError, match=r"unknown op 'vendor\.op'"):
        parse_module(text)
    module = parse_module(text, allow_unregistered=True)
    assert module.foreign == ['sdy.mesh @mesh = <["x"=2, "y"=1]>', 'sdy.mesh @other = <["x"= 2]>']
    again = parse_module(print_module(module), allow_unregistered=True)
    assert first_difference(again, module) is None
    vendor = list(module.main.body)[1]
    assert not vendor.op.registered
    assert vendor.discardable.keys() == {"k", "d"}


def test_resources() -> None:
    """A blob becomes the elements of a constant; one that no constant takes is kept."""
    values = np.array([1.5, -2.0], np.float32)
    text = in_function("  %0 = stablehlo.constant dense_resource<w> : tensor<2xf32>") + (
        f'{{-#\n  dialect_resources: {{ builtin: {{ w: "0x04000000{values.tobytes().hex()}", '
        'rest: "0x0400000007" } }\n'
        '  external_resources: { mlir_reproducer: { verify_each: true, pipeline: "x" } }\n#-}\n'.replace(
            "  ext", ", ext"
        )
    )
    module = parse_module(text)
    constant = module.main.body.first
    assert constant is not None
    np.testing.assert_array_equal(constant.attributes["value"].array, values)
    assert module.resources == {"rest": b"\x04\0\0\0\x07"}
    assert structurally_equal(parse_module(print_module(module)), module)


ELIDED = [
    ("stablehlo.constant dense_resource<__elided__> : TYPE", "tensor<2xf32>"),
    ("stablehlo.constant {x = 1 : i64} dense_resource<__elided__> : TYPE", "tensor<2xf32>"),
    (
        '"stablehlo.constant"() <{value = dense_resource<__elided__> : tensor<2xi8>}> : () -> TYPE',
        "tensor<2x!quant.uniform<i8:f32, 5.000000e-01>>",
    ),
]


@pytest.mark.parametrize("form, type", ELIDED)
def test_constants_that_were_not_printed_are_checked_and_printed_but_not_compiled(form: str, type: str) -> None:
    spelled = form.replace("TYPE", type)
    text = in_function(f"  %0 = {spelled}\n  %1 = stablehlo.add %0, %0 : {type}")
    module = parse_module(text)
    hlojit.verify(module)
    assert spelled in str(module)
    for generic in (False, True):
        again = parse_module(print_module(module, generic=generic))
        assert first_difference(again, module) is None
        hlojit.verify(again)
    for backend in ("cpu", "reference"):
        with pytest.raises(
            UnsupportedError, match="stablehlo.constant .*its elements are not in the text.*\n *at .*:2:"
        ):
            hlojit.compile(text, backend=backend)


def test_names_of_values_are_kept_and_made_unique() -> None:
    """The printer takes the names of the text; a name that two values have gets a number."""
    module = parse_module(
        in_function("  %x = stablehlo.abs %a : tensor<2x3xf32>\n  %0 = stablehlo.abs %x : tensor<2x3xf32>")
    )
    block = module.main.body
    text = print_module(module)
    assert "%x = stablehlo.abs %a" in text and "%0 = stablehlo.abs %x" in text
    for instruction in block:
        for result in instruction.results:
            result.name_hint = "same"
    assert "%same_0 = stablehlo.abs %same" in print_module(module)
    assert print_instruction(list(block)[1]).endswith("= stablehlo.abs %same_0 : tensor<2x3xf32>")


def test_structural_comparison_sees_differences() -> None:
    """Each variant differs from the first in one thing."""
    base = in_function("  %0 = stablehlo.abs %a {k = 0.0 : f32} : tensor<2x3xf32>")
    variants = [
        base.replace("abs", "negate"),
        base.replace("0.0 : f32", "-0.0 : f32"),
        base.replace("@main", "@other"),
        base.replace("%a: tensor<2x3xf32>, %i: tensor<i32>", "%a: tensor<2x3xf32>"),
        in_function(
            "  %0 = stablehlo.abs %a {k = 0.0 : f32} : tensor<2x3xf32>\n  %1 = stablehlo.abs %a : tensor<2x3xf32>"
        ),
        base.replace("func.func", "func.func private"),
    ]
    reference: Module = parse_module(base)
    assert structurally_equal(reference, parse_module(base.replace("%0", "%name")))
    for variant in variants:
        assert not structurally_equal(reference, parse_module(variant)), variant


COMPARED_ELSEWHERE = """
func.func @greater(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
  %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %0 : tensor<i1>
}
func.func public @main(%x: tensor<2x5xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
  %0 = stablehlo.iota dim = 1 : tensor<2x5xi32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %none = stablehlo.constant dense<-1> : tensor<i32>
  %1:2 = stablehlo.custom_call @ApproxTopK(%x, %0, %least, %none) {
    called_computations = [@greater],
    mhlo.backend_config = {aggregate_to_topk = true, is_fallback = true, recall_target = 0.95 : f32, reduction_dim = 1 : i64,
      reduction_input_size_override = -1 : i64, top_k = 1 : i64}
  } : (tensor<2x5xf32>, tensor<2x5xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x1xf32>, tensor<2x1xi32>)
  %2 = stablehlo.reshape %1#0 : (tensor<2x1xf32>) -> tensor<2xf32>
  %3 = stablehlo.reshape %1#1 : (tensor<2x1xi32>) -> tensor<2xi32>
  return %2, %3 : tensor<2xf32>, tensor<2xi32>
}
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_functions_that_end_in_a_regions_return(backend: str) -> None:
    """MLIR lets ``stablehlo.return`` end functions, and the comparators of JAX's ``approx_max_k`` do."""
    module = hlojit.parse(COMPARED_ELSEWHERE)
    hlojit.verify(module)
    assert "stablehlo.return" not in str(module) and str(hlojit.parse(str(module))) == str(module)
    x = np.array([[1, 5, 3, 2, 4], [-1, -2, -0.5, -3, -4]], "f4")
    values, places = hlojit.compile(COMPARED_ELSEWHERE, backend=backend)(x)
    assert (values.tolist(), places.tolist()) == ([5, -0.5], [1, 2])
