"""Bad text and the error that it gives: ``«`` marks the place, and stands for nothing."""

from __future__ import annotations

import pytest
from hlojit.ir.errors import ParseError
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module

HEAD = "func.func @main(%a: tensor<2xf32>, %b: tensor<2xi32>) -> tensor<2xf32> {\n"
TAIL = "\n  return %a : tensor<2xf32>\n}\n"

LINES = [
    # names
    ("%0 = stablehlo.add %a, «%c : tensor<2xf32>", "use of undefined value %c"),
    ("%0 = stablehlo.abs «%arg : tensor<2xf32>", "use of undefined value %arg"),
    ("%0 = stablehlo.abs «%a#1 : tensor<2xf32>", "%a has 1 result, there is no %a#1"),
    ("«%a = stablehlo.add %a, %a : tensor<2xf32>", "redefinition of %a"),
    ("«%0:2 = stablehlo.abs %a : tensor<2xf32>", "stablehlo.abs has 1 results, 2 names are given"),
    # ops
    ("%0 = «stablehlo.adde %a, %a : tensor<2xf32>", "unknown op 'stablehlo.adde'; did you mean stablehlo.add"),
    ('%0 = «"vendor.op"(%a) : (tensor<2xf32>) -> tensor<2xf32>', "unknown op 'vendor.op'"),
    ("%0 = «stablehlo.gather(%a) : tensor<2xf32>", "stablehlo.gather has only the generic form"),
    ("%0 = «stablehlo.add %a : tensor<2xf32>", "stablehlo.add: takes 2 operands (lhs, rhs), found 1"),
    ("%0 = stablehlo.add %a, %a «tensor<2xf32>", "expected ':', found 'tensor'"),
    ("%0 = «, stablehlo.add", "expected an op, found ','"),
    # types
    ("%0 = stablehlo.add %a, «%b : tensor<2xf32>", "%b has type tensor<2xi32>, but is used as tensor<2xf32>"),
    ("%0 = stablehlo.abs %a : tensor<2x«f33>", "unknown element type 'f33'; did you mean f32?"),
    ("%0 = stablehlo.abs %a : tensor<«2,f32>", "expected a dimension or an element type, found '2'"),
    ("%0 = stablehlo.abs %a : tensor<*«,f32>", "expected 'x' and an element type behind '*'"),
    ("%0 = stablehlo.abs %a : «tensor<99999999999999999999xf32>", "dimension 99999999999999999999 is out of range"),
    ("%0 = stablehlo.abs %a : «tensor<9000000000000000000xf32>", "more bytes than can be addressed"),
    ("%0 = stablehlo.abs %a : «!nothing", "undefined type alias !nothing"),
    ("%0 = stablehlo.reshape %a : «tensor<2xf32>", "expected a function type such as"),
    ("%0 = stablehlo.reshape %a : «(tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>", "1 operand, 2 operand types"),
    # attributes
    ("%0 = stablehlo.transpose %a, dims = «0 : (tensor<2xf32>) -> tensor<2xf32>", "permutation, a list such as [0, 1]"),
    ("%0 = stablehlo.transpose %a, dims = [«99999999999999999999] : (", "integer 99999999999999999999 out of range"),
    ("%0 = stablehlo.compare «LESS, %a, %a : (", "comparison_direction, one of EQ, NE, GE, GT, LE, LT, found 'LESS'"),
    ('%0 = «"stablehlo.transpose"(%a) : (tensor<2xf32>) -> tensor<2xf32>', "attribute permutation is missing"),
    (
        '%0 = "stablehlo.transpose"(%a) <«{permutation = 1}> : (',
        "attribute permutation of stablehlo.transpose: expected",
    ),
    (
        '%0 = "stablehlo.reverse"(%a) <«{dimensions = array<i64: 0>, dimension = 0}> : (',
        "stablehlo.reverse has no property 'dimension'; did you mean dimensions?",
    ),
    ('%0 = "stablehlo.abs"(%a) <«{x = 1}> : (', "stablehlo.abs has no property 'x'; it has none"),
    ('%0 = "stablehlo.add"(%a, %a) <«{x = 1}> : (', "stablehlo.add has no property 'x'; it has none"),
    ("%0 = stablehlo.abs %a {x = «#nope} : tensor<2xf32>", "undefined attribute alias #nope"),
    ("%0 = stablehlo.abs %a {x = 1, «x = 2} : tensor<2xf32>", "attribute 'x' is given twice"),
    ("%0 = stablehlo.abs %a {x = «300 : i8} : tensor<2xf32>", "300 is out of range for i8"),
    ("%0 = stablehlo.abs %a {x = «?} : tensor<2xf32>", "expected an attribute, found '?'"),
    ("%0 = stablehlo.abs %a {x = «1.5 : i32} : tensor<2xf32>", "expected an integer of type i32, found 1.5"),
    ("%0 = stablehlo.abs %a : tensor<2xf32> loc(«#nope)", "undefined location alias #nope"),
    ("%0 = stablehlo.abs %a : tensor<2xf32> loc(«7)", "expected a location"),
    ("%0 = stablehlo.dot_general %a, %a, contracting_dims = [0] «y [0] : (", "expected 'x', found 'y'"),
    ("%0 = stablehlo.slice %a [«a:1] : (", "expected the start of a range, found 'a'"),
    ("%0 = stablehlo.reduce_precision %a, format = «8m7 : tensor<2xf32>", "expected a format such as e8m7"),
    (
        "%0 = stablehlo.reduce(%a init: %a) applies «stablehlo.subtract across dimensions = [0] : (",
        "expected a commutative op of two operands to apply, found 'stablehlo.subtract'",
    ),
    # constants
    (
        "%0 = stablehlo.constant dense<[1.0, 2.0, 3.0«]> : tensor<2xf32>",
        "expected 2 elements in dimension 0 of tensor<2xf32>",
    ),
    ("%0 = stablehlo.constant dense<[[1.0, 2.0], [3.0«]]> : tensor<2x2xf32>", "expected 2 elements in dimension 1"),
    (
        "%0 = stablehlo.constant dense<[[1.0, 2.0], «3.0]> : tensor<2x2xf32>",
        "expected '[' (lists of tensor<2x2xf32> nest 2",
    ),
    ("%0 = stablehlo.constant dense<[1.0, «[2.0]]> : tensor<2xf32>", "lists of tensor<2xf32> nest 1 deep"),
    ("%0 = stablehlo.constant dense<[1.0 «2.0]> : tensor<2xf32>", "expected ',' between elements, found '2'"),
    ("%0 = stablehlo.constant dense<[1, «2.5]> : tensor<2xi32>", "expected a number of type i32, found '2.5'"),
    ("%0 = stablehlo.constant dense<[1.0, «1.2.3]> : tensor<2xf32>", "expected a number of type f32, found '1.2.3'"),
    ("%0 = stablehlo.constant dense<«nan> : tensor<2xf32>", "expected a number of type f32, found 'nan'"),
    ("%0 = stablehlo.constant dense<«300> : tensor<2xi8>", "300 is out of range for i8"),
    ("%0 = stablehlo.constant dense<[1, «-3]> : tensor<2xui8>", "-3 is out of range for ui8"),
    ("%0 = stablehlo.constant dense<[0x7F, «0x1FF]> : tensor<2xf8E4M3FN>", "0x1FF is out of range for f8E4M3FN"),
    ("%0 = stablehlo.constant dense<«> : tensor<2xf32>", "expected 2 elements for tensor<2xf32>, found none"),
    ('%0 = stablehlo.constant dense<"0x0000803«G00000000"> : tensor<2xf32>', "expected a hexadecimal digit, found 'G'"),
    ('%0 = stablehlo.constant dense<"0x0000803«"> : tensor<2xf32>', "even number of hexadecimal digits, found 7"),
    (
        '%0 = stablehlo.constant dense<«"0x0000803F000000"> : tensor<2xf32>',
        "expected 8 bytes for tensor<2xf32>, found 7",
    ),
    ("%0 = stablehlo.constant dense_resource<«w> : tensor<2xf32>", "no resource 'w' in this text"),
    ("%0 = stablehlo.constant dense_resource«<__elided__> : tensor<?xf32>", "a constant needs a static shape"),
    (
        '%0 = "chlo.constant"() «{value = dense_resource<__elided__> : tensor<2xf32>} : () -> tensor<2xf32>',
        "expected dense elements, found ElidedElements",
    ),
    ("%0 = stablehlo.constant dense<«1.0> : tensor<?xf32>", "a constant needs a static shape, found tensor<?xf32>"),
    ("%0 = stablehlo.constant «1.0 : f32", "expected dense<...> : tensor<...>"),
]

WHOLE = [
    ("«hello", "expected func.func, a module or a definition, found 'hello'"),
    ("«\x00", "expected func.func, a module or a definition"),
    ('«"', "expected func.func, a module or a definition"),
    ("func.func @f(«{", "expected a type, found '{'"),
    ("func.func @f(%a: tensor<2xf32>«", "expected ',' or ')', found the end of the text"),
    ("func.func @f(%a: i32) «{\n", "expected '}' to close the region that begins here"),
    ("func.func @f(%a: i32) {\n«}", "expected stablehlo.return (or func.return in a function)"),
    ("func.func @f() {\n  return\n  «return\n}", "expected '}' behind func.return, which ends its region"),
    ("func.func @f(%a: i32) -> i64 {\n return %a : i32\n«}", "@f returns (i32), but its signature says (i64)"),
    ("func.func @f() { return }\n«func.func @f() { return }", "function @f is defined twice"),
    ("module {}\n«module {}", "expected one module in the text"),
    ("module { «module {} }", "modules inside modules are not supported"),
    ("module {} «more", "expected the end of the text behind the module, found 'more'"),
    ("module «{", "expected '}' to close the module that begins here"),
    ("#a = «#b\n#b = #a\nmodule attributes {x = #a} {}", "alias #a refers to itself"),
    ("#l = «loc(#m)\n#m = loc(#l)\nmodule {} loc(#l)", "alias #l refers to itself"),
    ("#a = 1\n«#a = 2", "#a is defined twice"),
    ("{-# dialect_resources: {builtin: {a: «1}} #-}", 'expected a blob, a string that begins with "0x"'),
    ("«{-# dialect_resources: {", "expected '#-}' to close the resources"),
    (
        'func.func @f(%p: tensor<i1>) {\n"stablehlo.if"(%p) ({\n stablehlo.return\n «^bb1:\n}) : (tensor<i1>) -> ()',
        "a region of StableHLO has exactly one block",
    ),
]


def _check(marked: str, expected: str) -> None:
    before, _, after = marked.partition("«")
    text = before + after
    with pytest.raises(ParseError) as caught:
        parse_module(text, source_name="bad.mlir")
    error = caught.value
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    assert expected in error.message
    assert (error.line, error.column) == (line, column), str(error)
    source = text.split("\n")[line - 1]
    assert str(error) == f"bad.mlir:{line}:{column}: {error.message}" + (
        f"\n  {source}\n  {' ' * (column - 1)}^" if source else ""
    )


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_line(line: str, expected: str) -> None:
    """One bad op in a good function."""
    _check(f"{HEAD}  {line}{TAIL}", expected)


@pytest.mark.parametrize(("text", "expected"), WHOLE)
def test_text(text: str, expected: str) -> None:
    """A bad text."""
    _check(text, expected)


@pytest.mark.parametrize(
    "text",
    [
        "module attributes {x = " + "[" * 5000 + "]" * 5000 + "} {}",
        "func.func @f(%a: " + "tuple<" * 5000,
        "func.func @f(%a: " + "(" * 5000,
        'func.func @f(%p: tensor<i1>) {\n"stablehlo.if"(%p) ({\n' + '"stablehlo.if"(%p) ({\n' * 5000,
        "module {} loc(" + 'callsite("a" at ' * 5000,
        "module attributes {x = #a.b" + "<" * 5000 + "} {}",
        "!a0 = i32\n" + "".join(f"!a{i + 1} = tuple<!a{i}>\n" for i in range(500)) + "func.func @f(%a: !a500)",
        "#a0 = 1\n" + "".join(f"#a{i + 1} = [#a{i}]\n" for i in range(500)) + "module attributes {x = #a500} {}",
    ],
    ids=["attributes", "tuples", "function types", "regions", "locations", "opaque", "type aliases", "aliases"],
)
def test_deep_nesting_is_an_error(text: str) -> None:
    """Never a RecursionError."""
    with pytest.raises(ParseError, match=r"nest|deep"):
        parse_module(text)


@pytest.mark.parametrize(
    "text",
    [
        "#a0 = 1\n" + "".join(f"#a{i + 1} = [#a{i}, #a{i}]\n" for i in range(50)) + "module attributes {x = #a50} {}",
        "#a0 = 1\n" + "".join(f"#a{i + 1} = #x.y<#a{i}, #a{i}>\n" for i in range(50)),
        "!a0 = i32\n" + "".join(f"!a{i + 1} = tuple<!a{i}, !a{i}>\n" for i in range(50)) + "func.func @f(%a: !a50)",
    ],
    ids=["attributes", "opaque", "types"],
)
def test_aliases_cannot_spell_gigabytes(text: str) -> None:
    """A few lines, each of which doubles the one before."""
    with pytest.raises(ParseError, match="with its aliases"):
        parse_module(text)


def test_long_chains_of_location_aliases_are_not_nesting() -> None:
    """Call stacks of hundreds of frames come as aliases, inner first."""
    chain = "".join(f"#l{i + 1} = loc(callsite(#l{i} at #l0))\n" for i in range(500))
    module = parse_module(f'func.func @f() {{\n return loc(#l500)\n}}\n#l0 = loc("f.py":1:2)\n{chain}')
    assert len(str(module.functions["f"].body.terminator.location)) > 100
    again = parse_module(print_module(module, locations=True))
    assert again.functions["f"].body.terminator.location == module.functions["f"].body.terminator.location


def test_locations_that_double_stay_small() -> None:
    """The same with two parts each."""
    chain = "".join(f"#l{i + 1} = loc(callsite(#l{i} at #l{i}))\n" for i in range(200))
    module = parse_module(f'func.func @f() {{\n return loc(#l200)\n}}\n#l0 = loc("f.py":1:2)\n{chain}')
    assert len(print_module(module, locations=True)) < 1_000_000


def test_error_in_a_line_of_megabytes_shows_a_part_of_it() -> None:
    """The message stays short, the column true."""
    text = HEAD + "%0 = stablehlo.constant dense<[" + "1.0, " * 200_000 + "1.2.3]> : tensor<200001xf32>" + TAIL
    with pytest.raises(ParseError) as caught:
        parse_module(text)
    assert caught.value.column == len("%0 = stablehlo.constant dense<[") + 5 * 200_000 + 1
    assert len(str(caught.value)) < 1000
    assert "1.2.3" in str(caught.value)


@pytest.mark.parametrize("digit", ["\u0664", "\u00b2", "\uff14"])
def test_numbers_have_ascii_digits(digit: str) -> None:
    kind = "tensor<4xf32>"
    slice_ = f"%0 = stablehlo.slice %x [0:4] : ({kind}) -> {kind}"
    dense = f"%0 = stablehlo.constant dense<4.0> : {kind}"
    form = f'%0 = "stablehlo.slice"(%x) {{limit_indices = array<i64: 4>}} : ({kind}) -> {kind}'
    for line in (
        slice_.replace(":4]", f":{digit}]"),
        dense.replace("<4.", f"<{digit}."),
        dense.replace("<4x", f"<{digit}x"),
        form.replace(": 4>", f": {digit}>"),
    ):
        with pytest.raises(ParseError):
            parse_module(f"func.func @main(%x: {kind}) -> {kind} {{\n  {line}\n  return %0 : {kind}\n}}")
