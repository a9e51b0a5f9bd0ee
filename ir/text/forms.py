"""The pretty forms of ops: the table that ``OpDefinition.syntax`` names a row of.

A row is a template in a small language, from which the reader, a one-regex fast path and the printer are derived:

* ``$operands``      all operands, separated by commas
* ``$name``          the attribute ``name`` of the op's record, in the short spelling of its kind: ``3``, ``LT``
* ``(... )?``        optional; present if the attribute inside it is
* ``attr-dict``      ``{...}`` with every attribute that the template does not name
* ``types:same``     ``T`` if all operands and results have one type, else as ``types:function``
* ``types:function`` ``(A, B) -> R``
* ``types:arrow``    ``A, B -> R``
* ``types:results``  ``R``
* ``<name>``         a piece with its own code in ``hlojit.ir.text.pieces``
* anything else      stands for itself

A row that is only ``<name>`` is written by hand.  Forms that several ops share have names that begin with ``pretty-``;
all others are named by the op's mnemonic.  ``generic`` is the form ``"op"(%a) <{...}> : (A) -> R``; every op has it.

=======================  ===============================================================================================
syntax                   ops
=======================  ===============================================================================================
generic                  if case sort scatter gather dynamic_gather map reduce_window select_and_scatter batch_norm_*
                         triangular_solve all_* collective_* send recv infeed outfeed dynamic_conv torch_index_select
                         async_* reduce_scatter chlo.broadcast_compare chlo.constant_like chlo.ragged_dot hlojit.fusion
pretty-same-type         unary and binary elementwise ops (also convert, real, imag, uniform_*quantize) clamp after_all
pretty-function-type     is_finite bitcast_convert reshape dynamic_reshape dynamic_update_slice real_dynamic_slice
                         dynamic_pad, chlo.broadcast_* (add ... select)
pretty-arrow-type        chlo unary ops (erf, acos, ...), chlo.next_after polygamma zeta mulhi
pretty-to-type           tensor.cast, arith.index_cast and other conversions: ``A to B``
pretty-result-type       create_token replica_id partition_id
(mnemonic)               the op of that mnemonic: use syntax="dot_general" for stablehlo.dot_general and so on
=======================  ===============================================================================================
"""

from __future__ import annotations

from typing import Final

FORMS: Final[dict[str, str]] = {
    "generic": "",
    "pretty-same-type": "$operands attr-dict : types:same",
    "pretty-function-type": "$operands attr-dict : types:function",
    "pretty-arrow-type": "$operands attr-dict : types:arrow",
    "pretty-result-type": "attr-dict : types:results",
    "constant": "<constant>",
    "chlo.constant": "<constant>",
    "iota": "dim = $iota_dimension attr-dict : types:results",
    "dynamic_iota": "$operands , dim = $iota_dimension attr-dict : types:function",
    "complex": "$operands attr-dict : <complex_types>",
    "select": "$operands attr-dict : <select_types>",
    "compare": "$comparison_direction , $operands ( , $compare_type )? attr-dict : types:function",
    "slice": "$operands <slice_ranges> attr-dict : types:function",
    "dynamic_slice": "$operands , sizes = $slice_sizes attr-dict : types:function",
    "broadcast": "$operands , sizes = $broadcast_sizes attr-dict : types:function",
    "broadcast_in_dim": "$operands , dims = $broadcast_dimensions attr-dict : types:function",
    "dynamic_broadcast_in_dim": "$operands , dims = $broadcast_dimensions attr-dict : types:function",
    "transpose": "$operands , dims = $permutation attr-dict : types:function",
    "reverse": "$operands , dims = $dimensions attr-dict : types:same",
    "cholesky": "$operands ( , lower = $lower )? attr-dict : types:same",
    "concatenate": "$operands , dim = $dimension attr-dict : types:function",
    "get_dimension_size": "$operands , dim = $dimension attr-dict : types:function",
    "set_dimension_size": "$operands , dim = $dimension attr-dict : types:function",
    "pad": "$operands , low = $edge_padding_low , high = $edge_padding_high , interior = $interior_padding attr-dict"
    " : types:function",
    "dot": "$operands <precision> attr-dict : types:function",
    "dot_general": "$operands , <dot_dimensions> <precision> attr-dict : types:function",
    "convolution": "( $operands ) dim_numbers = <conv_dimensions> , window = { <window> } attr-dict : types:function",
    "einsum": "$operands , config = $einsum_config attr-dict : types:function",
    "unary_einsum": "$operands , config = $einsum_config attr-dict : types:function",
    "fft": "$operands , type = $fft_type , length = $fft_length attr-dict : types:function",
    "rng": "$operands , distribution = $rng_distribution attr-dict : types:function",
    "rng_bit_generator": "$operands , algorithm = $rng_algorithm attr-dict : types:function",
    "reduce_precision": "$operands , format = <exponent_mantissa> attr-dict : types:same",
    "get_tuple_element": "$operands [ $index ] attr-dict : types:function",
    "tuple": "$operands attr-dict : <tuple_type>",
    "optimization_barrier": "attr-dict <barrier>",
    "sharding_constraint": "$operands <sharding> attr-dict : types:same",
    "custom_call": "<call_target> ( $operands ) attr-dict : types:function",
    "composite": "$name $operands attr-dict : types:function",
    "return": "<return>",
    "call": "<call>",
    "reduce": "<reduce>",
    "while": "<while>",
    "scan": "<scan>",
    "pretty-to-type": "$operands attr-dict : <to_types>",
    "arith.constant": "<typed_constant>",
    "arith.cmpi": "<predicate>",
    "arith.select": "$operands attr-dict : <selected_types>",
    "tensor.dim": "$operands attr-dict : <source_type>",
    "tensor.from_elements": "$operands attr-dict : <elements_type>",
    "tensor.extract": "<element>",
    "shape.const_shape": "<written_shape>",
    "shape.constraint": "$operands attr-dict : <constrained_types>",
    "func.constant": "<function_value>",
    "func.call_indirect": "<indirect_call>",
    "top_k": "<top_k>",
}
"""Template of each pretty form, by the name that op records use."""
