"""One program for each kind of GPU kernel, and what is expected of its accesses: for ``tools/assemble.py``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A program and what is expected of its kernels' accesses; no text: the kernels that set conditions in graphs."""

    text: str
    wide: bool = True
    """Whether whole pieces of 16 bytes are loaded and stored."""
    scatters: bool = False
    """Whether elements are stored one by one, each where it goes."""

    @property
    def directions(self) -> frozenset[str]:
        """What is done 16 bytes at once."""
        if not self.wide:
            return frozenset()
        return frozenset({"ld"}) if self.scatters else frozenset({"ld", "st"})


def _function(body: str, result: str, *arguments: str) -> str:
    named = ", ".join(f"%{name}: {kind}" for name, kind in zip("xyzw", arguments))
    return f"func.func @main({named}) -> {result} {{\n{body}\n}}\n"


def _chain(dtype: str) -> Kind:
    t = f"tensor<8192x8192x{dtype}>"
    body = f"""
      %0 = stablehlo.multiply %x, %y : {t}
      %1 = stablehlo.add %0, %x : {t}
      return %1 : {t}"""
    return Kind(_function(body, t, t, t))


def _unary(op: str, dtype: str, *, wide: bool = True) -> Kind:
    t = f"tensor<4096x4096x{dtype}>"
    body = f"""
      %0 = stablehlo.{op} %x : {t}
      %1 = stablehlo.multiply %0, %x : {t}
      return %1 : {t}"""
    return Kind(_function(body, t, t), wide)


def _convert(source: str, target: str) -> Kind:
    s, t = (f"tensor<4096x4096x{dtype}>" for dtype in (source, target))
    body = f"""
      %0 = stablehlo.negate %x : {s}
      %1 = stablehlo.convert %0 : ({s}) -> {t}
      return %1 : {t}"""
    return Kind(_function(body, t, s))


def _bias(dtype: str, columns: int = 4096) -> Kind:
    t, row = f"tensor<4096x{columns}x{dtype}>", f"tensor<{columns}x{dtype}>"
    body = f"""
      %0 = stablehlo.broadcast_in_dim %y, dims = [1] : ({row}) -> {t}
      %1 = stablehlo.add %x, %0 : {t}
      return %1 : {t}"""
    return Kind(_function(body, t, t, row))


def _transpose(dtype: str) -> Kind:
    t = f"tensor<4096x4096x{dtype}>"
    body = f"""
      %0 = stablehlo.transpose %x, dims = [1, 0] : ({t}) -> {t}
      %1 = stablehlo.add %0, %y : {t}
      return %1 : {t}"""
    return Kind(_function(body, t, t, t))


def _reduce(dtype: str, op: str, shape: str, dimensions: str, result: str, initial: str) -> Kind:
    t, r = f"tensor<{shape}x{dtype}>", f"tensor<{result}{dtype}>"
    body = f"""
      %0 = stablehlo.constant dense<{initial}> : tensor<{dtype}>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.{op} across dimensions = [{dimensions}]
        : ({t}, tensor<{dtype}>) -> {r}
      return %1 : {r}"""
    return Kind(_function(body, r, t), wide=False)


def _cumulative_sum(dtype: str, sizes: str, padding: str, *, wide: bool = True) -> Kind:
    t = f"tensor<4096x4096x{dtype}>"
    body = f"""
      %0 = stablehlo.constant dense<0.0> : tensor<{dtype}>
      %1 = "stablehlo.reduce_window"(%x, %0) ({{
      ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
        %2 = stablehlo.add %a, %b : tensor<{dtype}>
        stablehlo.return %2 : tensor<{dtype}>
      }}) {{window_dimensions = array<i64: {sizes}>, padding = dense<[{padding}]> : tensor<2x2xi64>}}
        : ({t}, tensor<{dtype}>) -> {t}
      return %1 : {t}"""
    return Kind(_function(body, t, t), wide)


def _argmax() -> Kind:
    t = "tensor<4096x4096xf32>"
    body = f"""
      %0 = stablehlo.iota dim = 1 : tensor<4096x4096xi32>
      %1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %2 = stablehlo.constant dense<0> : tensor<i32>
      %3:2 = stablehlo.reduce(%x init: %1), (%0 init: %2) across dimensions = [1]
        : ({t}, tensor<4096x4096xi32>, tensor<f32>, tensor<i32>) -> (tensor<4096xf32>, tensor<4096xi32>)
        reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {{
        %4 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %5 = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %6 = stablehlo.or %4, %5 : tensor<i1>
        %7 = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %8 = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %9 = stablehlo.and %7, %8 : tensor<i1>
        %10 = stablehlo.or %6, %9 : tensor<i1>
        %11 = stablehlo.select %6, %a, %b : tensor<i1>, tensor<f32>
        %12 = stablehlo.select %10, %i, %j : tensor<i1>, tensor<i32>
        stablehlo.return %11, %12 : tensor<f32>, tensor<i32>
      }}
      return %3#1 : tensor<4096xi32>"""
    return Kind(_function(body, "tensor<4096xi32>", t), wide=False)


def _softmax(dtype: str, columns: int = 4096) -> Kind:
    t, r = f"tensor<4096x{columns}x{dtype}>", f"tensor<4096x{dtype}>"
    body = f"""
      %0 = stablehlo.constant dense<0xFF80> : tensor<bf16>
      %1 = stablehlo.convert %0 : (tensor<bf16>) -> tensor<{dtype}>
      %2 = stablehlo.reduce(%x init: %1) applies stablehlo.maximum across dimensions = [1]
        : ({t}, tensor<{dtype}>) -> {r}
      %3 = stablehlo.broadcast_in_dim %2, dims = [0] : ({r}) -> {t}
      %4 = stablehlo.subtract %x, %3 : {t}
      %5 = stablehlo.exponential %4 : {t}
      %6 = stablehlo.constant dense<0.0> : tensor<{dtype}>
      %7 = stablehlo.reduce(%5 init: %6) applies stablehlo.add across dimensions = [1]
        : ({t}, tensor<{dtype}>) -> {r}
      %8 = stablehlo.broadcast_in_dim %7, dims = [0] : ({r}) -> {t}
      %9 = stablehlo.divide %5, %8 : {t}
      return %9 : {t}"""
    return Kind(_function(body, t, t))


def _layer_norm(dtype: str, columns: int) -> Kind:
    """Computed in f32, with gain and bias of the element type."""
    t, r, v = f"tensor<4096x{columns}x{dtype}>", "tensor<4096xf32>", f"tensor<{columns}x{dtype}>"
    f = f"tensor<4096x{columns}xf32>"

    def mean(value: str, number: int) -> str:
        return f"""
      %s{number} = stablehlo.reduce(%{value} init: %zero) applies stablehlo.add across dimensions = [1]
        : ({f}, tensor<f32>) -> {r}
      %m{number} = stablehlo.divide %s{number}, %count : {r}"""

    body = f"""
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %count = stablehlo.constant dense<{columns}.0> : {r}
      %small = stablehlo.constant dense<1.0e-5> : {r}
      %0 = stablehlo.convert %x : ({t}) -> {f}{mean("0", 0)}
      %1 = stablehlo.broadcast_in_dim %m0, dims = [0] : ({r}) -> {f}
      %2 = stablehlo.subtract %0, %1 : {f}
      %3 = stablehlo.multiply %2, %2 : {f}{mean("3", 1)}
      %4 = stablehlo.add %m1, %small : {r}
      %5 = stablehlo.rsqrt %4 : {r}
      %6 = stablehlo.broadcast_in_dim %5, dims = [0] : ({r}) -> {f}
      %7 = stablehlo.multiply %2, %6 : {f}
      %8 = stablehlo.convert %7 : ({f}) -> {t}
      %9 = stablehlo.broadcast_in_dim %y, dims = [1] : ({v}) -> {t}
      %10 = stablehlo.multiply %8, %9 : {t}
      %11 = stablehlo.broadcast_in_dim %z, dims = [1] : ({v}) -> {t}
      %12 = stablehlo.add %10, %11 : {t}
      return %12 : {t}"""
    return Kind(_function(body, t, t, v, v))


def _norm_gradient(dtype: str, columns: int) -> Kind:
    """Of a norm by the root of the mean square, with respect to x and the scale, which is a sum over all rows."""
    t, f, r, c = (
        f"tensor<4096x{columns}x{dtype}>",
        f"tensor<4096x{columns}xf32>",
        "tensor<4096xf32>",
        f"tensor<{columns}xf32>",
    )
    body = f"""
      %0 = stablehlo.convert %x : ({t}) -> {f}
      %1 = stablehlo.convert %y : ({t}) -> {f}
      %2 = stablehlo.constant dense<0.0> : tensor<f32>
      %3 = stablehlo.multiply %0, %0 : {f}
      %4 = stablehlo.reduce(%3 init: %2) applies stablehlo.add across dimensions = [1] : ({f}, tensor<f32>) -> {r}
      %5 = stablehlo.rsqrt %4 : {r}
      %6 = stablehlo.broadcast_in_dim %5, dims = [0] : ({r}) -> {f}
      %7 = stablehlo.multiply %0, %6 : {f}
      %8 = stablehlo.multiply %1, %7 : {f}
      %9 = stablehlo.reduce(%8 init: %2) applies stablehlo.add across dimensions = [0] : ({f}, tensor<f32>) -> {c}
      %10 = stablehlo.broadcast_in_dim %z, dims = [1] : ({c}) -> {f}
      %11 = stablehlo.multiply %1, %10 : {f}
      %12 = stablehlo.multiply %11, %7 : {f}
      %13 = stablehlo.reduce(%12 init: %2) applies stablehlo.add across dimensions = [1] : ({f}, tensor<f32>) -> {r}
      %14 = stablehlo.broadcast_in_dim %13, dims = [0] : ({r}) -> {f}
      %15 = stablehlo.multiply %7, %14 : {f}
      %16 = stablehlo.subtract %11, %15 : {f}
      %17 = stablehlo.multiply %16, %6 : {f}
      %18 = stablehlo.convert %17 : ({f}) -> {t}
      return %18, %9 : {t}, {c}"""
    return Kind(_function(body, f"({t}, {c})", t, t, c))


def _gather() -> Kind:
    body = """
      %0 = "stablehlo.gather"(%x, %y) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 768>}
        : (tensor<50257x768xf32>, tensor<4096x1xi32>) -> tensor<4096x768xf32>
      return %0 : tensor<4096x768xf32>"""
    return Kind(_function(body, "tensor<4096x768xf32>", "tensor<50257x768xf32>", "tensor<4096x1xi32>"), wide=False)


def _scatter(dtype: str, combiner: str) -> Kind:
    t, u = f"tensor<50257x768x{dtype}>", f"tensor<4096x768x{dtype}>"
    body = f"""
      %0 = "stablehlo.scatter"(%x, %y, %z) ({{
      ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
        %1 = stablehlo.{combiner} %a, %b : tensor<{dtype}>
        stablehlo.return %1 : tensor<{dtype}>
      }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
        : ({t}, tensor<4096x1xi32>, {u}) -> {t}
      return %0 : {t}"""
    return Kind(_function(body, t, t, "tensor<4096x1xi32>", u), wide=False)


def _update_slice() -> Kind:
    t, u, i = "tensor<1000x2000xf32>", "tensor<100x200xf32>", "tensor<i32>"
    body = f"""
      %0 = stablehlo.dynamic_update_slice %x, %y, %z, %z : ({t}, {u}, {i}, {i}) -> {t}
      return %0 : {t}"""
    return Kind(_function(body, t, t, u, i), wide=False)


def _sort(
    dtype: str, shape: str, dimension: int, order: str, *others: str, wide: bool = True, scatters: bool = False
) -> Kind:
    """Sorted by the first operand, which others follow."""
    elements = (dtype, *others)
    tensors = [f"tensor<{shape}x{element}>" for element in elements]
    names = [f"%{name}" for name, _ in zip("xyzw", elements)]
    scalars = ", ".join(f"%a{n}: tensor<{element}>, %b{n}: tensor<{element}>" for n, element in enumerate(elements))
    types = f"({', '.join(tensors)})"
    body = f"""
      %0:{len(elements)} = "stablehlo.sort"({", ".join(names)}) ({{
      ^bb0({scalars}):
        %1 = stablehlo.compare LT, %a0, %b0{order} : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }}) {{dimension = {dimension} : i64, is_stable = true}} : {types} -> {types}
      return {", ".join(f"%0#{n}" for n in range(len(elements)))} : {", ".join(tensors)}"""
    return Kind(_function(body, types, *tensors), wide, scatters)


def _top_k(dtype: str, shape: str, k: int) -> Kind:
    t, v, i = f"tensor<{shape}x{dtype}>", f"tensor<64x{k}x{dtype}>", f"tensor<64x{k}xi32>"
    body = f"""
      %0:2 = chlo.top_k(%x, k = {k}) : {t} -> ({v}, {i})
      return %0#0, %0#1 : {v}, {i}"""
    return Kind(_function(body, f"({v}, {i})", t), scatters=True)


def _window(dtype: str) -> Kind:
    t, r = f"tensor<16x128x128x{dtype}>", f"tensor<16x64x64x{dtype}>"
    body = f"""
      %0 = stablehlo.constant dense<0.0> : tensor<{dtype}>
      %1 = "stablehlo.reduce_window"(%x, %0) ({{
      ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):
        %2 = stablehlo.maximum %a, %b : tensor<{dtype}>
        stablehlo.return %2 : tensor<{dtype}>
      }}) {{window_dimensions = array<i64: 1, 3, 3>, window_strides = array<i64: 1, 2, 2>,
        padding = dense<[[0, 0], [1, 0], [1, 0]]> : tensor<3x2xi64>}} : ({t}, tensor<{dtype}>) -> {r}
      return %1 : {r}"""
    return Kind(_function(body, r, t), wide=False)


def _product(
    dtype: str,
    result: str = "",
    rows: int = 1024,
    *,
    columns: int = 1024,
    contracted: int = 0,
    wide: bool = False,
    algorithm: tuple[str, str] = ("", ""),
) -> Kind:
    """``algorithm``: the type that operands may be rounded to, and whether sums need not have all bits."""
    shape = (columns, 1024) if contracted else (1024, columns)
    left, right, r = (
        f"tensor<{rows}x1024x{dtype}>",
        f"tensor<{shape[0]}x{shape[1]}x{dtype}>",
        f"tensor<{rows}x{columns}x{result or dtype}>",
    )
    precision, imprecise = algorithm
    chosen = precision and (
        f", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = {precision}, rhs_precision_type = {precision}, "
        "accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, "
        f"allow_imprecise_accumulation = {imprecise}>"
    )
    dims = f"lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [{contracted}]"
    body = f"""
      %0 = "stablehlo.dot_general"(%x, %y) {{dot_dimension_numbers = #stablehlo.dot<{dims}>{chosen}}} : ({left}, {right}) -> {r}
      return %0 : {r}"""
    return Kind(_function(body, r, left, right), wide)


def _linear(dtype: str, rows: int = 1024, columns: int = 1024, *, wide: bool = True) -> Kind:
    """A product with a bias, gelu and a residual."""
    x, w = f"tensor<{rows}x1024x{dtype}>", f"tensor<1024x{columns}x{dtype}>"
    b, r = f"tensor<{columns}x{dtype}>", f"tensor<{rows}x{columns}x{dtype}>"
    body = f"""
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({x}, {w}) -> {r}
      %1 = stablehlo.broadcast_in_dim %z, dims = [1] : ({b}) -> {r}
      %2 = stablehlo.add %0, %1 : {r}
      %3 = stablehlo.constant dense<0.044715> : {r}
      %4 = stablehlo.multiply %2, %2 : {r}
      %5 = stablehlo.multiply %4, %2 : {r}
      %6 = stablehlo.multiply %5, %3 : {r}
      %7 = stablehlo.add %6, %2 : {r}
      %8 = stablehlo.tanh %7 : {r}
      %9 = stablehlo.multiply %8, %2 : {r}
      %10 = stablehlo.add %9, %w : {r}
      return %10 : {r}"""
    return Kind(_function(body, r, x, w, b, r), wide)


def _convolution(dtype: str, *, then: str = "") -> Kind:
    t, w = f"tensor<16x32x32x128x{dtype}>", f"tensor<3x3x128x128x{dtype}>"
    body = f"""
      %0 = stablehlo.convolution(%x, %y) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({t}, {w}) -> {t}
      {f"%1 = stablehlo.{then} %0 : {t}" if then else ""}
      return %{1 if then else 0} : {t}"""
    return Kind(_function(body, t, t, w), wide=False)


def _concatenate(dtype: str) -> Kind:
    t, r = f"tensor<4096x1024x{dtype}>", f"tensor<4096x2048x{dtype}>"
    body = f"""
      %0 = stablehlo.concatenate %x, %y, dim = 1 : ({t}, {t}) -> {r}
      %1 = stablehlo.negate %0 : {r}
      return %1 : {r}"""
    return Kind(_function(body, r, t, t))


def _cholesky(dtype: str, order: int = 64) -> Kind:
    t = f"tensor<100x{order}x{order}x{dtype}>"
    body = f"""
      %0 = stablehlo.cholesky %x, lower = true : {t}
      return %0 : {t}"""
    return Kind(_function(body, t, t), wide=False)


def _triangular_solve(dtype: str) -> Kind:
    a, b = f"tensor<100x64x64x{dtype}>", f"tensor<100x64x1000x{dtype}>"
    body = f"""
      %0 = "stablehlo.triangular_solve"(%x, %y) <{{left_side = true, lower = true, unit_diagonal = false,
        transpose_a = #stablehlo<transpose NO_TRANSPOSE>}}> : ({a}, {b}) -> {b}
      return %0 : {b}"""
    return Kind(_function(body, b, a, b), wide=False)


def _transform(dtype: str, length: int, kind: str = "FFT") -> Kind:
    t = f"tensor<100x{length}x{dtype}>"
    body = f"""
      %0 = stablehlo.fft %x, type = {kind}, length = [{length}] : ({t}) -> {t}
      return %0 : {t}"""
    return Kind(_function(body, t, t), wide=False)


def _complex_chain(element: str) -> Kind:
    type = f"tensor<1048576xcomplex<{element}>>"
    return Kind(
        f"""func.func @main(%x: {type}, %y: {type}) -> {type} {{
          %0 = stablehlo.multiply %x, %y : {type}
          %1 = stablehlo.divide %0, %x : {type}
          %2 = stablehlo.exponential %1 : {type}
          return %2 : {type}
        }}"""
    )


KINDS = {
    **{f"chain_{dtype}": _chain(dtype) for dtype in ("f32", "f64", "bf16", "f16", "f8E4M3FN", "i8", "i64")},
    **{f"{op}_f32": _unary(op, "f32") for op in ("exponential", "tanh", "sine", "logistic", "log")},
    "exponential_bf16": _unary("exponential", "bf16"),
    "exponential_f64": _unary("exponential", "f64", wide=False),
    "chain_complex_f32": _complex_chain("f32"),
    "chain_complex_f64": _complex_chain("f64"),
    "convert_f32_bf16": _convert("f32", "bf16"),
    "convert_bf16_f32": _convert("bf16", "f32"),
    "bias_f32": _bias("f32"),
    "bias_odd_f32": _bias("f32", 1001),
    "bias_odd_bf16": _bias("bf16", 50257),
    "transpose_f32": _transpose("f32"),
    "transpose_bf16": _transpose("bf16"),
    "reduce_rows_f32": _reduce("f32", "add", "4096x4096", "1", "4096x", "0.0"),
    "reduce_columns_f32": _reduce("f32", "add", "4096x4096", "0", "4096x", "0.0"),
    "reduce_all_f32": _reduce("f32", "maximum", "67108864", "0", "", "0.0"),
    "reduce_rows_i32": _reduce("i32", "add", "4096x4096", "1", "4096x", "0"),
    "softmax_f32": _softmax("f32"),
    "softmax_bf16": _softmax("bf16"),
    "softmax_f64": _softmax("f64"),
    "softmax_long_f32": _softmax("f32", 32768),
    "softmax_long_bf16": _softmax("bf16", 16384),
    "softmax_odd_f32": _softmax("f32", 1001),
    "softmax_odd_bf16": _softmax("bf16", 50257),
    "layer_norm_f32": _layer_norm("f32", 1024),
    "layer_norm_bf16": _layer_norm("bf16", 4096),
    "layer_norm_odd_f32": _layer_norm("f32", 1001),
    "layer_norm_odd_bf16": _layer_norm("bf16", 5003),
    "reduce_odd_rows_bf16": _reduce("bf16", "add", "4096x50257", "1", "4096x", "0.0"),
    **{
        f"norm_gradient_{dtype}_{columns}": _norm_gradient(dtype, columns)
        for dtype, columns in (("f32", 64), ("f32", 768), ("f32", 4096), ("bf16", 4096))
    },
    "argmax_f32": _argmax(),
    "scan_rows_f32": _cumulative_sum("f32", "1, 4096", "[0, 0], [4095, 0]"),
    "scan_columns_f32": _cumulative_sum("f32", "4096, 1", "[4095, 0], [0, 0]"),
    "concatenate_f32": _concatenate("f32"),
    "gather_f32": _gather(),
    "scatter_atomic_i32": _scatter("i32", "add"),
    "scatter_ordered_f32": _scatter("f32", "add"),
    "update_slice_f32": _update_slice(),
    "sort_merge_f32": _sort("f32", "64x4096", 1, ""),
    "sort_radix_f32": _sort("f32", "16777216", 0, ", TOTALORDER", scatters=True),
    "sort_radix_rows_f32": _sort("f32", "4096x4096", 1, ", TOTALORDER"),
    "sort_radix_bf16_i32": _sort("bf16", "64x50256", 1, ", TOTALORDER", "i32", scatters=True),
    "sort_radix_short_i64": _sort("i64", "65536x64", 1, ""),
    "sort_radix_columns_i32": _sort("i32", "100000x16", 0, "", scatters=True),
    "sort_radix_by_number": _sort("f32", "16777216", 0, ", TOTALORDER", "f64", "f64", "i64", scatters=True),
    "top_k_f32": _top_k("f32", "64x50256", 50),
    "top_k_bf16": _top_k("bf16", "64x50256", 1000),
    "top_k_rows_f32": _top_k("f32", "64x4096", 50),
    "window_f32": _window("f32"),
    "product_f32": _product("f32", wide=True),
    "product_f64": _product("f64", wide=True),
    "product_bf16": _product("bf16"),
    "product_f16_transposed": _product("f16", "f32", contracted=1),
    "product_f8": _product("f8E4M3FN", "f32", contracted=1),
    "product_i8": _product("i8", "i32", contracted=1),
    "product_i8_odd": _product("i8", "i32", columns=1001),
    "product_tf32": _product("f32", algorithm=("tf32", "false")),
    "product_e4m3": _product("f8E4M3FN", "f32", contracted=1, algorithm=("f8E4M3FN", "true")),
    "product_f6": _product("f6E3M2FN", "f32"),
    "product_bf16_logits": _product("bf16", rows=4096, columns=50257, contracted=1),
    "vector_product_f32": _product("f32", rows=1),
    "vector_product_bf16": _product("bf16", rows=1, contracted=1),
    **{f"linear_{dtype}": _linear(dtype) for dtype in ("f32", "bf16", "f16", "f64")},
    "linear_odd_bf16": _linear("bf16", columns=1001, wide=False),
    "linear_few_rows_bf16": _linear("bf16", rows=4, wide=False),
    "convolution_tanh_bf16": _convolution("bf16", then="tanh"),
    "convolution_f32": _convolution("f32"),
    "convolution_bf16": _convolution("bf16"),
    **{f"cholesky_{name}": _cholesky(dtype) for name, dtype in (("f32", "f32"), ("c64", "complex<f32>"))},
    **{
        f"triangular_solve_{name}": _triangular_solve(dtype)
        for name, dtype in (("f64", "f64"), ("c64", "complex<f32>"))
    },
    "fft_c64": _transform("complex<f32>", 1024),
    "fft_c128": _transform("complex<f64>", 256, "IFFT"),
    "fft_prime_c64": _transform("complex<f32>", 1009),
    "condition": Kind("", wide=False),
}
"""By name: one program for each kind of kernel."""
