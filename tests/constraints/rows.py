"""A program for every constraint that the tables of calls in tests/ops do not break."""

from __future__ import annotations

from .programs import DENSE_GROUPS, Broken, call

FLOAT_FUNCTIONS = (
    "cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine sqrt tan tanh"
).split()
BITWISE = "and or xor shift_left shift_right_arithmetic shift_right_logical".split()
ARITHMETIC = "subtract multiply divide remainder power maximum minimum atan2".split()
CHLO_UNARY = (
    "_asin_acos_kernel acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc is_inf is_neg_inf is_pos_inf lgamma sinh "
    "square tan"
).split()
CHLO_BINARY = "mulhi next_after polygamma zeta".split()
CHLO_BROADCASTING = (
    "add and atan2 divide maximum minimum multiply or power remainder shift_left shift_right_arithmetic shift_right_logical "
    "subtract xor next_after polygamma zeta"
).split()
MESH = '#stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = "x", size = 2>]>'
OTHER_AXIS = (
    f'replica_groups = #stablehlo.replica_group_mesh_axes<mesh = {MESH}, axes = [#stablehlo.axis_ref<name = "y">]>'
)


def adder(kind: str = "f") -> str:
    """A region that adds two scalars."""
    sum_ = f'%s = "stablehlo.add"(%x0, %x1) : (${kind}, ${kind}) -> ${kind}'
    return f'{{ ^bb0(%x0: ${kind}, %x1: ${kind}): {sum_} "stablehlo.return"(%s) : (${kind}) -> () }}'


def elementwise() -> list[Broken]:
    """Element types of operands, and tolerances."""
    rows = [
        Broken(f"stablehlo.{name}", "I2", call(f"stablehlo.{name}", "i2 f2", "i2"), "rhs must be a tensor")
        for name in BITWISE
    ]
    rows += [
        Broken(f"stablehlo.{name}", "I1", call(f"stablehlo.{name}", "token token", "token"), "lhs must be a tensor")
        for name in ARITHMETIC
    ]
    for name in FLOAT_FUNCTIONS:
        negative = "result_accuracy = #stablehlo.result_accuracy<atol = -1.0, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>"
        exact = (
            "result_accuracy = #stablehlo.result_accuracy<ulps = 4, mode = #stablehlo.result_accuracy_mode<HIGHEST>>"
        )
        rows += [
            Broken(
                f"stablehlo.{name}", "accuracy", call(f"stablehlo.{name}", "f2", "f2", negative), "a negative tolerance"
            ),
            Broken(
                f"stablehlo.{name}", "accuracy", call(f"stablehlo.{name}", "f2", "f2", exact), "must have no tolerances"
            ),
        ]
    for name in CHLO_UNARY:
        kind = "c" if name.startswith("_") else "f"
        rows += [
            Broken(f"chlo.{name}", "I1", call(f"chlo.{name}", "b2", "b2"), "operand must be a tensor of"),
            Broken(f"chlo.{name}", "C1", call(f"chlo.{name}", f"{kind}2", f"{kind}3"), "result types are tensor<3x"),
        ]
    rows += [
        Broken("hlojit.gamma", "I1", call("hlojit.gamma", "b2", "b2"), "operand must be a tensor of"),
        Broken("hlojit.gamma", "C1", call("hlojit.gamma", "f2", "f3"), "result types are tensor<3x"),
    ]
    for name in ("threefry32", "threefry64"):
        rows += [
            Broken(
                f"hlojit.{name}", "I1", call(f"hlojit.{name}", "i2 i2 i2 i2", "i2"), "key0 must be a tensor of ui32"
            ),
            Broken(f"hlojit.{name}", "C1", call(f"hlojit.{name}", "u2 u2 u3 u2", "u2"), "have different types"),
        ]
    for name in CHLO_BINARY:
        kind = "i" if name == "mulhi" else "f"
        rows += [
            Broken(f"chlo.{name}", "I1", call(f"chlo.{name}", "b2 b2", "b2"), "lhs must be a tensor of"),
            Broken(f"chlo.{name}", "I2", call(f"chlo.{name}", f"{kind}2 b2", f"{kind}2"), "rhs must be a tensor of"),
            Broken(f"chlo.{name}", "C1", call(f"chlo.{name}", f"{kind}2 {kind}3", f"{kind}2"), "different types"),
        ]
    for name in CHLO_BROADCASTING:
        rows += [
            Broken(
                f"chlo.broadcast_{name}", "result", call(f"chlo.broadcast_{name}", "i2 i3", "i2"), "cannot be broadcast"
            ),
            Broken(
                f"chlo.broadcast_{name}",
                "result",
                call(f"chlo.broadcast_{name}", "i23 i3", "i3"),
                "expected tensor<2x3xi32>",
            ),
        ]
    return rows


ELEMENTWISE = [
    *elementwise(),
    Broken(
        "chlo.broadcast_complex",
        "result",
        call("chlo.broadcast_complex", "f2 f2", "c3"),
        "expected tensor<2xcomplex<f32>>",
    ),
    Broken(
        "chlo.broadcast_compare",
        "result",
        call("chlo.broadcast_compare", "f2 i2", "b2", "comparison_direction = #chlo<comparison_direction EQ>"),
        "operands have different element types",
    ),
    Broken("chlo.broadcast_select", "result", call("chlo.broadcast_select", "b f2 i2", "f2"), "two values of one type"),
    Broken("chlo.broadcast_select", "result", call("chlo.broadcast_select", "i f2 f2", "f2"), "a pred of i1"),
    Broken("chlo.broadcast_select", "result", call("chlo.broadcast_select", "b f2 f3", "f2"), "cannot be broadcast"),
    Broken("stablehlo.add", "I2", call("stablehlo.add", "f2 token", "f2"), "rhs must be a tensor"),
    Broken(
        "stablehlo.compare",
        "I1",
        call("stablehlo.compare", "token token", "b", "comparison_direction = #stablehlo<comparison_direction EQ>"),
        "lhs must be a tensor",
    ),
    Broken(
        "stablehlo.compare",
        "I2",
        call("stablehlo.compare", "f token", "b", "comparison_direction = #stablehlo<comparison_direction EQ>"),
        "rhs must be a tensor",
    ),
    Broken("stablehlo.select", "I2", call("stablehlo.select", "b token token", "token"), "must be a tensor"),
    Broken("stablehlo.select", "I3", call("stablehlo.select", "b f token", "f"), "must be a tensor"),
    Broken("stablehlo.clamp", "I1", call("stablehlo.clamp", "token f f", "f"), "must be a tensor"),
    Broken("stablehlo.clamp", "I3", call("stablehlo.clamp", "f f token", "f"), "must be a tensor"),
    Broken("stablehlo.is_finite", "O1", call("stablehlo.is_finite", "f2", "i2"), "expected"),
    Broken(
        "stablehlo.reduce_precision",
        "I1",
        call("stablehlo.reduce_precision", "i", "i", "exponent_bits = 5 : i32, mantissa_bits = 2 : i32"),
        "must be a tensor of",
    ),
    Broken("stablehlo.complex", "I2", call("stablehlo.complex", "f i", "c"), "must be a tensor of"),
    Broken("stablehlo.real", "I1", call("stablehlo.real", "i", "i"), "must be a tensor of"),
    Broken("stablehlo.imag", "I1", call("stablehlo.imag", "i", "i"), "must be a tensor of"),
    Broken(
        "stablehlo.uniform_dequantize", "I1", call("stablehlo.uniform_dequantize", "f2", "f2"), "found tensor<2xf32>"
    ),
    Broken("stablehlo.uniform_quantize", "I1", call("stablehlo.uniform_quantize", "i2", "f2"), "found tensor<2xi32>"),
]

MOVEMENT = [
    Broken(
        "stablehlo.broadcast_in_dim",
        "I1",
        call("stablehlo.broadcast_in_dim", "token", "f", "broadcast_dimensions = array<i64>"),
        "must be a tensor",
    ),
    Broken(
        "stablehlo.broadcast_in_dim",
        "O1",
        call("stablehlo.broadcast_in_dim", "f", "fq", "broadcast_dimensions = array<i64>"),
        "at most one size may be unknown",
    ),
    Broken("stablehlo.reshape", "I1", call("stablehlo.reshape", "token", "f"), "must be a tensor"),
    Broken("stablehlo.reshape", "O1", call("stablehlo.reshape", "f2", "fq"), "at most one size may be unknown"),
    Broken(
        "stablehlo.iota",
        "O1",
        call("stablehlo.iota", "", "fq", "iota_dimension = 0 : i64"),
        "at most one size may be unknown",
    ),
    Broken(
        "stablehlo.transpose",
        "I1",
        call("stablehlo.transpose", "token", "f", "permutation = array<i64>"),
        "must be a tensor",
    ),
    Broken(
        "stablehlo.reverse",
        "I1",
        call("stablehlo.reverse", "token", "f", "dimensions = array<i64>"),
        "must be a tensor",
    ),
    Broken(
        "stablehlo.slice",
        "I1",
        call(
            "stablehlo.slice",
            "token",
            "f",
            "start_indices = array<i64>, limit_indices = array<i64>, strides = array<i64>",
        ),
        "must be a tensor",
    ),
    Broken(
        "stablehlo.pad",
        "I1",
        call(
            "stablehlo.pad",
            "token f",
            "f",
            "edge_padding_low = array<i64>, edge_padding_high = array<i64>, interior_padding = array<i64>",
        ),
        "must be a tensor",
    ),
    Broken(
        "stablehlo.pad",
        "I2",
        call(
            "stablehlo.pad",
            "f2 f1",
            "f2",
            "edge_padding_low = array<i64: 0>, edge_padding_high = array<i64: 0>, interior_padding = array<i64: 0>",
        ),
        "padding_value must be a scalar",
    ),
    Broken(
        "stablehlo.dynamic_slice",
        "I1",
        call("stablehlo.dynamic_slice", "token", "f", "slice_sizes = array<i64>"),
        "must be a tensor",
    ),
    Broken(
        "stablehlo.real_dynamic_slice",
        "element_type",
        call("stablehlo.real_dynamic_slice", "f2 l1 l1 l1", "iq"),
        "different element types",
    ),
    Broken(
        "stablehlo.real_dynamic_slice",
        "bounds",
        call("stablehlo.real_dynamic_slice", "f2 l1 l2 l1", "fq"),
        "must have 1 elements",
    ),
    Broken(
        "stablehlo.real_dynamic_slice",
        "known_bounds",
        "%c = stablehlo.constant dense<1> : tensor<1xi64>\n  %d = stablehlo.constant dense<3> : tensor<1xi64>\n  "
        '%r = "stablehlo.real_dynamic_slice"(%f2, %c, %d, %c) : ($f2, $l1, $l1, $l1) -> $fq',
        "<= limit 3 <= size 2 does not hold",
    ),
    Broken(
        "stablehlo.set_dimension_size",
        "size",
        call("stablehlo.set_dimension_size", "f2 i1", "f2", "dimension = 0 : i64"),
        "size must be a scalar",
    ),
    Broken(
        "stablehlo.set_dimension_size",
        "rank",
        call("stablehlo.set_dimension_size", "f2 i", "f23", "dimension = 0 : i64"),
        "expected the rank",
    ),
    Broken(
        "stablehlo.set_dimension_size",
        "element_type",
        call("stablehlo.set_dimension_size", "f2 i", "i2", "dimension = 0 : i64"),
        "different element types",
    ),
    Broken(
        "stablehlo.broadcast",
        "broadcast_sizes",
        call("stablehlo.broadcast", "f2", "f2", "broadcast_sizes = array<i64: -1>"),
        "must not be negative",
    ),
    Broken(
        "stablehlo.broadcast",
        "result",
        call("stablehlo.broadcast", "f2", "f2", "broadcast_sizes = array<i64: 3>"),
        "expected tensor<3x2xf32>",
    ),
    Broken(
        "stablehlo.torch_index_select",
        "dim",
        call("stablehlo.torch_index_select", "f23 i2", "f23", "dim = 2 : i64, batch_dims = 0 : i64"),
        "dim (2,) must lie in [0, 2)",
    ),
    Broken(
        "stablehlo.torch_index_select",
        "result",
        call("stablehlo.torch_index_select", "f23 i2", "f23", "dim = 1 : i64, batch_dims = 0 : i64"),
        "expected tensor<2x2xf32>",
    ),
    Broken(
        "stablehlo.einsum",
        "result",
        call("stablehlo.einsum", "f23 f3", "f2", 'einsum_config = "ab,c->ac"'),
        "expected tensor<2x3xf32>",
    ),
    Broken(
        "stablehlo.unary_einsum",
        "result",
        call("stablehlo.unary_einsum", "f23", "f2", 'einsum_config = "ab->b"'),
        "expected tensor<3xf32>",
    ),
    *(
        Broken(
            "stablehlo.dynamic_gather",
            f"gather {label}",
            call(
                "stablehlo.dynamic_gather",
                "f2345 i2345 l4",
                "fqqqqqqq",
                f"dimension_numbers = #stablehlo.gather<{numbers}, index_vector_dim = 3>",
            ),
            expected,
        )
        for label, numbers, expected in (
            ("C10", "operand_batching_dims = [1, 0], start_indices_batching_dims = [0, 1]", "is not sorted"),
            ("C11", "operand_batching_dims = [4], start_indices_batching_dims = [0]", "must lie in [0, 4)"),
            ("C13", "operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 0]", "repeats a value"),
            ("C14", "operand_batching_dims = [0], start_indices_batching_dims = [4]", "must lie in [0, 4)"),
            ("C15", "operand_batching_dims = [0], start_indices_batching_dims = [3]", "index_vector_dim"),
            ("C16", "operand_batching_dims = [0, 1], start_indices_batching_dims = [0]", "elements but"),
            ("C17", "operand_batching_dims = [0], start_indices_batching_dims = [1]", "size"),
        )
    ),
]

ALGORITHM = (
    "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, algorithm = "
    "#stablehlo.dot_algorithm<lhs_precision_type = {}, rhs_precision_type = {}, accumulation_type = {}, lhs_component_count = 1, "
    "rhs_component_count = 1, num_primitive_operations = {}, allow_imprecise_accumulation = false>"
)
RAGGED = "ragged_dot_dimension_numbers = #chlo.ragged_dot<{}>"
RAGGED_RULES = [
    ("C1", "f25 f357 l3", "lhs_batching_dimensions = [0]", "lhs_batching_dimensions has 1 elements"),
    ("C2", "f25 f357 l3", "lhs_contracting_dimensions = [1]", "lhs_contracting_dimensions has 1 elements"),
    ("C3", "f25 f357 l3", "lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [1]", "repeats a value"),
    ("C4", "f25 f357 l3", "lhs_batching_dimensions = [0], rhs_batching_dimensions = [1], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]", "repeats a value"),
    ("C5", "f25 f357 l3", "lhs_batching_dimensions = [2], rhs_batching_dimensions = [0]", "lhs_batching_dimensions (2,) must lie in [0, 2)"),
    ("C6", "f25 f357 l3", "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]", "lhs_contracting_dimensions (2,) must lie in [0, 2)"),
    ("C7", "f25 f357 l3", "lhs_batching_dimensions = [0], rhs_batching_dimensions = [3]", "rhs_batching_dimensions (3,) must lie in [0, 3)"),
    ("C8", "f25 f357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [3]", "rhs_contracting_dimensions (3,) must lie in [0, 3)"),
    ("C9", "f25 f357 l3", "lhs_batching_dimensions = [0], rhs_batching_dimensions = [0]", "batching dimension 0 of lhs has size 2 but dimension 0 of rhs 3"),
    ("C10", "f25 f357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [2]", "contracting dimension 1 of lhs has size 5 but dimension 2 of rhs 7"),
    ("ragged", "f25 f357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]", "must be one dimension"),
    ("ragged", "f25 f357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [2]", "must lie in [0, 2)"),
    ("group_sizes", "f425 f357 l23", "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [1], rhs_group_dimensions = [0]", "expected shape (4, 'groups')"),
    ("group_dimensions", "f25 f357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [3]", "must lie in [0, 3)"),
    ("group_dimensions", "f25 f357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [1]", "repeats a value"),
    ("groups", "f25 f57 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0], lhs_ragged_dimensions = [0]", "must be one dimension"),
    ("groups", "f25 f357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [1], rhs_group_dimensions = [0]", "must be none"),
    ("groups", "f25 f357 l4", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]", "has size 3, expected 4"),
    ("precision_config", "f25 f357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>, precision_config = [#chlo<precision HIGH>, #chlo<precision HIGH>, #chlo<precision HIGH>]", "expected 2"),
    ("elements", "f25 i357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]", "different element types"),
    ("result", "f25 f357 l3", "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]", "expected tensor<2x7xf32>"),
]  # fmt: skip

PRODUCTS = [
    *(
        Broken(
            "stablehlo.dot_general",
            label,
            call("stablehlo.dot_general", "f23 f34", "f24", ALGORITHM.format(*types)),
            expected,
        )
        for label, types, expected in (
            ("I8", ("i8", "f32", "f32", 1), "lhs_precision_type of the algorithm must be a floating-point type"),
            ("I9", ("f32", "i8", "f32", 1), "rhs_precision_type of the algorithm must be a floating-point type"),
            ("I10", ("f32", "f32", "i32", 1), "accumulation_type of the algorithm must be a floating-point type"),
            ("algorithm", ("f32", "f32", "f32", 3), "no hardware is known"),
            ("algorithm", ("f16", "bf16", "f32", 1), "no hardware is known"),
        )
    ),
    Broken("stablehlo.dot", "rank", call("stablehlo.dot", "f234 f4", "f23"), "must be vectors or matrices"),
    Broken("stablehlo.dot", "contracting", call("stablehlo.dot", "f23 f24", "f24"), "3"),
    Broken(
        "stablehlo.dot", "elements", call("stablehlo.dot", "f23 i34", "f24"), "lhs and rhs have different element types"
    ),
    Broken("stablehlo.dot", "result", call("stablehlo.dot", "f23 f34", "f23"), "expected shape (2, 4)"),
    Broken(
        "stablehlo.dot",
        "precision_config",
        call(
            "stablehlo.dot",
            "f23 f34",
            "f24",
            "precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGH>, #stablehlo<precision HIGH>]",
        ),
        "expected 2",
    ),
    *(
        Broken(
            "chlo.ragged_dot",
            label,
            call(
                "chlo.ragged_dot",
                operands,
                "f33",
                RAGGED.format(fields).replace("precision HIGH>]>", "precision HIGH>]"),
            ),
            expected,
        )
        for label, operands, fields, expected in RAGGED_RULES
    ),
    Broken(
        "stablehlo.convolution",
        "window",
        call(
            "stablehlo.convolution",
            "f1881 f0311",
            "f1881",
            "batch_group_count = 1 : i64, feature_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>",
        ),
        "must be positive",
    ),
    Broken(
        "stablehlo.dynamic_conv",
        "window",
        call(
            "stablehlo.dynamic_conv",
            "f1881 f0311 l22",
            "f1881",
            "batch_group_count = 1 : i64, feature_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>",
        ),
        "must be positive",
    ),
]

SCAN_BODY = '{ ^bb0(%x0: $f3, %x1: $f3): "stablehlo.return"(%x0, %x1) : ($f3, $f3) -> () }'
CHLO = [
    Broken("chlo.scan", "segments", call("chlo.scan", "f23 f3", "f23 f3", "operandSegmentSizes = array<i32: 2, 1>, dimension = 0 : i64", SCAN_BODY), "2 together"),
    Broken("chlo.scan", "segments", call("chlo.scan", "f3", "f3", "operandSegmentSizes = array<i32: 0, 1>, dimension = 0 : i64", '{ ^bb0(%x0: $f3): "stablehlo.return"(%x0) : ($f3) -> () }'), "at least one input or output"),
    Broken("chlo.scan", "dimension", call("chlo.scan", "f23 f3", "f23 f3", "operandSegmentSizes = array<i32: 1, 1>, dimension = 2 : i64", SCAN_BODY), "must lie in [0, 2)"),
    Broken("chlo.scan", "size", call("chlo.scan", "f23 f3", "f23 f3", "operandSegmentSizes = array<i32: 1, 1>, dimension = 0 : i64, scan_dim_size = 4 : i64", SCAN_BODY), "has not the size 4"),
    Broken("chlo.scan", "body", call("chlo.scan", "f23 f2", "f23 f2", "operandSegmentSizes = array<i32: 1, 1>, dimension = 0 : i64", SCAN_BODY), "body takes"),
    Broken("chlo.scan", "body", call("chlo.scan", "f23 f3", "f23", "operandSegmentSizes = array<i32: 1, 1>, dimension = 0 : i64", '{ ^bb0(%x0: $f3, %x1: $f3): "stablehlo.return"() : () -> () }'), "body returns"),
    Broken("chlo.scan", "result", call("chlo.scan", "f23 f3", "f33 f3", "operandSegmentSizes = array<i32: 1, 1>, dimension = 0 : i64", SCAN_BODY), "expected (tensor<2x3xf32>, tensor<3xf32>)"),
    Broken("chlo.constant", "result", call("chlo.constant", "", "f3", "value = dense<1.0> : tensor<2xf32>"), "expected tensor<2xf32>"),
    Broken("chlo.constant_like", "result", call("chlo.constant_like", "f2", "i2", "value = 1.0 : f32"), "expected tensor<2xf32>"),
    Broken("chlo.top_k", "k", call("chlo.top_k", "f2", "f3 i3", "k = 3 : i64"), "k 3 must lie within"),
    Broken("chlo.top_k", "result", call("chlo.top_k", "f5", "f3 i3", "k = 2 : i64"), "expected (tensor<2xf32>, tensor<2xi32>)"),
]  # fmt: skip

COLLECTIVES = [
    *(
        Broken(f"stablehlo.{name}", "mesh", call(f"stablehlo.{name}", "f24", "f24", f"{more}{OTHER_AXIS}", region), "the mesh has no axis 'y'")
        for name, more, region in (
            ("all_gather", "all_gather_dim = 0 : i64, ", ""),
            ("all_reduce", "", adder()),
            ("reduce_scatter", "scatter_dimension = 0 : i64, ", adder()),
            ("all_to_all", "split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, ", ""),
            ("collective_broadcast", "", ""),
            ("collective_reduce", "", adder()),
            ("cross-replica-sum", "", ""),
        )
    ),
    Broken("stablehlo.cross-replica-sum", "result", call("stablehlo.cross-replica-sum", "f2", "f3", DENSE_GROUPS), "expected tensor<2xf32>"),
    Broken("stablehlo.cross-replica-sum", "groups", call("stablehlo.cross-replica-sum", "f2", "f2", "replica_groups = dense<0> : tensor<1x2xi64>"), "repeat a process"),
    Broken("stablehlo.collective_reduce", "channel", call("stablehlo.collective_reduce", "f2", "f2", f"{DENSE_GROUPS}, use_global_device_ids", adder()), "needs a channel_handle"),
    Broken("stablehlo.partition_id", "result", call("stablehlo.partition_id", "", "i"), "expected tensor<ui32>"),
    Broken("stablehlo.replica_id", "result", call("stablehlo.replica_id", "", "i"), "expected tensor<ui32>"),
    Broken("stablehlo.infeed", "I1", call("stablehlo.infeed", "f", "f token"), "must be a token"),
    Broken("stablehlo.infeed", "layout", call("stablehlo.infeed", "token", "f2 token", "layout = []"), "for each of the 1 results"),
    Broken("stablehlo.infeed", "layout", call("stablehlo.infeed", "token", "f2 token", "layout = [[unit]]"), "must be a list of integers"),
    Broken("stablehlo.outfeed", "I1", call("stablehlo.outfeed", "token token", "token"), "must be tensors"),
    Broken("stablehlo.outfeed", "O1", call("stablehlo.outfeed", "f token", "f"), "expected !stablehlo.token"),
    Broken("stablehlo.send", "I1", call("stablehlo.send", "token token", "token", "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"), "must be tensors"),
    Broken("stablehlo.outfeed", "I2", call("stablehlo.outfeed", "f", "token"), "must be a token"),
    Broken("stablehlo.send", "I2", call("stablehlo.send", "f", "token", "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"), "must be a token"),
    Broken("stablehlo.recv", "I1", call("stablehlo.recv", "f", "f token", "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"), "must be a token"),
    Broken("stablehlo.recv", "results", call("stablehlo.recv", "token", "token f", "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"), "must be a token"),
]  # fmt: skip

FOO = 'call_target_name = "foo"'
ALIAS = "output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = {}, operand_index = {}, operand_tuple_indices = {}>]"
CALLEE = "func.func private @callee(%a: tensor<2xf32>) -> tensor<2xf32> { func.return %a : tensor<2xf32> }"
CALLS = [
    Broken("func.call", "callee", call("func.call", "f2", "f2", "callee = @nobody"), "there is no function @nobody"),
    Broken("func.call", "callee", call("func.call", "f3", "f3", "callee = @callee"), "is called as", CALLEE),
    *(
        Broken("stablehlo.composite", label, call("stablehlo.composite", operand, result, attributes), expected, CALLEE)
        for label, operand, result, attributes, expected in (
            ("C1", "f2", "f2", 'name = "op", decomposition = @callee', "not a namespaced op name"),
            ("C2", "f2", "f2", 'name = "my.op", decomposition = @nobody', "there is no function @nobody"),
            ("C3", "f3", "f2", 'name = "my.op", decomposition = @callee', "but @callee takes tensor<2xf32>"),
            ("C4", "f2", "f3", 'name = "my.op", decomposition = @callee', "but @callee returns tensor<2xf32>"),
        )
    ),
    Broken("stablehlo.after_all", "I1", call("stablehlo.after_all", "f", "token"), "must be tokens"),
    Broken("sdy.sharding_constraint", "result", call("sdy.sharding_constraint", "f2", "f3"), "different types"),
    *(
        Broken("stablehlo.custom_call", label, call("stablehlo.custom_call", operands, results, f"{FOO}, {attributes}".rstrip(", ")), expected)
        for label, operands, results, attributes, expected in (
            ("layouts", "f2", "f2", "operand_layouts = [dense<0> : tensor<1xindex>]", "both be given, or neither"),
            ("layouts", "f2", "f2", "operand_layouts = [], result_layouts = [dense<0> : tensor<1xindex>]", "has 0 elements, expected 1"),
            ("layouts", "f2", "f2", "operand_layouts = [0 : i64], result_layouts = []", "must be a list of dense"),
            ("layouts", "f23", "f2", "operand_layouts = [dense<[0, 2]> : tensor<2xindex>], result_layouts = [dense<0> : tensor<1xindex>]", "must be a permutation of range(2)"),
            ("layouts", "token", "f2", "operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>]", "of type !stablehlo.token must be"),
            ("layouts", "pair", "f2", "operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>]", "is a tuple"),
            ("aliases", "f2", "f2", "output_operand_aliases = [1 : i64]", "must be a list of"),
            ("aliases", "f2", "f2", ALIAS.format("[]", 1, "[]"), "operand_index 1 must lie in [0, 1)"),
            ("aliases", "pair", "f2", ALIAS.format("[]", 0, "[2]"), "name no element of the operand"),
            ("aliases", "f2", "f2 f2", ALIAS.format("[2]", 0, "[]"), "name no element of the results"),
            ("aliases", "f2", "f3", ALIAS.format("[]", 0, "[]"), "cannot be the memory of a result"),
            ("backend_config", "f2", "f2", "backend_config = {}, api_version = 2 : i32", "must be a string"),
            ("backend_config", "f2", "f2", 'backend_config = "", api_version = 4 : i32', "must be a dictionary"),
            ("buffers", "f2", "buffer", "", "must say of which operand"),
            ("buffers", "buffer", "buffer buffer", ALIAS.format("[0]", 0, "[]")[:-1] + ", " + ALIAS.format("[1]", 0, "[]")[26:], "more than once"),
        )
    ),
    *(
        Broken("stablehlo.custom_call", "buffers", call("stablehlo.custom_call", operands, results, f'call_target_name = "{target}"'), expected)
        for target, operands, results, expected in (
            ("CreateBuffer", "f2", "buffer", "there must be no operands"),
            ("CreateBuffer", "", "f2", "there must be one result, a buffer"),
            ("Pin", "buffer", "buffer", "there must be one operand, a tensor"),
            ("Pin", "f2", "f2", "there must be one result, a buffer"),
            ("Pin", "f2", "buffer3", "the same shape and element type"),
            ("Unpin", "f2", "f2", "there must be one operand, a buffer"),
            ("Unpin", "buffer", "buffer", "there must be one result, a tensor"),
        )
    ),
]  # fmt: skip

_BATCH_NORM = "epsilon = 0.1 : f32, feature_index = 1 : i64"
_SOLVE = "left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>"
ELEMENTS = [
    *(
        Broken(f"chlo.broadcast_{name}", label, call(f"chlo.broadcast_{name}", operands, "i2"), f"{side} must be a tensor of")
        for name in ("and", "or", "xor")
        for label, operands, side in (("I1", "f2 f2", "lhs"), ("I2", "i2 f2", "rhs"))
    ),
    Broken("chlo.square", "I1", call("chlo.square", "i2", "i2"), "operand must be a tensor of"),
    Broken("stablehlo.set_dimension_size", "size", call("stablehlo.set_dimension_size", "f2 f", "f2", "dimension = 0 : i64"), "of type i32, found tensor<f32>"),
    Broken("stablehlo.set_dimension_size", "size", call("stablehlo.set_dimension_size", "f2 l", "f2", "dimension = 0 : i64"), "of type i32, found tensor<i64>"),
    Broken("stablehlo.dynamic_iota", "I1", call("stablehlo.dynamic_iota", "f1", "fq", "iota_dimension = 0 : i64"), "output_shape must be a tensor of integer"),
    Broken("stablehlo.dynamic_reshape", "I2", call("stablehlo.dynamic_reshape", "f4 f2", "fqq"), "output_shape must be a tensor of integer"),
    Broken("stablehlo.dynamic_broadcast_in_dim", "I2", call("stablehlo.dynamic_broadcast_in_dim", "f f1", "fq", "broadcast_dimensions = array<i64>"), "output_dimensions must be a tensor of integer"),
    *(
        Broken("stablehlo.dynamic_pad", f"I{3 + at}", call("stablehlo.dynamic_pad", " ".join(["f2 f", *("f1" if at == each else "i1" for each in range(3))]), "fq"), f"{name} must be a tensor of integer")
        for at, name in enumerate(("edge_padding_low", "edge_padding_high", "interior_padding"))
    ),
    Broken("stablehlo.real_dynamic_slice", "bounds", call("stablehlo.real_dynamic_slice", "f2 i1 f1 i1", "fq"), "limit_indices must be a tensor of integer"),
    Broken("stablehlo.batch_norm_inference", "I1", call("stablehlo.batch_norm_inference", "i23 i3 i3 i3 i3", "i23", _BATCH_NORM), "operand must be a tensor of"),
    Broken("stablehlo.batch_norm_training", "I1", call("stablehlo.batch_norm_training", "c23 c3 c3", "c23 c3 c3", _BATCH_NORM), "operand must be a tensor of"),
    Broken("stablehlo.batch_norm_grad", "I1", call("stablehlo.batch_norm_grad", "c23 c3 c3 c3 c23", "c23 c3 c3", _BATCH_NORM), "operand must be a tensor of"),
    Broken("stablehlo.cholesky", "I1", call("stablehlo.cholesky", "i22", "i22", "lower = true"), "a must be a tensor of"),
    Broken("stablehlo.triangular_solve", "I1", call("stablehlo.triangular_solve", "b22 b22", "b22", _SOLVE), "a must be a tensor of"),
    Broken("stablehlo.triangular_solve", "I2", call("stablehlo.triangular_solve", "f22 i22", "i22", _SOLVE), "b must be a tensor of"),
    *(
        Broken("stablehlo.rng_bit_generator", "O2", call("stablehlo.rng_bit_generator", "l2", f"l2 {kind}", "rng_algorithm = #stablehlo<rng_algorithm PHILOX>"), "output must be a tensor of")
        for kind in ("b6", "m6", "c6", "q6")
    ),
]  # fmt: skip

ROWS = [*ELEMENTWISE, *ELEMENTS, *MOVEMENT, *PRODUCTS, *CHLO, *COLLECTIVES, *CALLS]
