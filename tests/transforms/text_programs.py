"""Ops that JAX does not print and builders do not make in a line, as functions of one op each, in their text."""

from __future__ import annotations

import hlojit
import numpy as np
from hlojit.ir.graph import Function

from tests.transforms.jax_programs import Arrays, numbers

TEXTS: dict[str, str] = {
    "remainder": """func.func @main(%a: tensor<4xf64>, %b: tensor<4xf64>) -> tensor<4xf64> {
      %0 = stablehlo.remainder %a, %b : tensor<4xf64>
      return %0 : tensor<4xf64> }""",
    "rounding": """func.func @main(%a: tensor<4xf64>) -> tensor<4xf64> {
      %0 = stablehlo.ceil %a : tensor<4xf64>
      %1 = stablehlo.floor %a : tensor<4xf64>
      %2 = stablehlo.round_nearest_afz %a : tensor<4xf64>
      %3 = stablehlo.round_nearest_even %a : tensor<4xf64>
      %4 = stablehlo.add %0, %1 : tensor<4xf64>
      %5 = stablehlo.add %2, %3 : tensor<4xf64>
      %6 = stablehlo.add %4, %5 : tensor<4xf64>
      %7 = stablehlo.multiply %6, %a : tensor<4xf64>
      return %7 : tensor<4xf64> }""",
    "reduce_precision": """func.func @main(%a: tensor<4xf64>) -> tensor<4xf64> {
      %0 = stablehlo.reduce_precision %a, format = e11m52 : tensor<4xf64>
      return %0 : tensor<4xf64> }""",
    "optimization_barrier": """func.func @main(%a: tensor<4xf64>, %b: tensor<2xf64>) -> (tensor<4xf64>, tensor<2xf64>) {
      %0:2 = stablehlo.optimization_barrier %a, %b : tensor<4xf64>, tensor<2xf64>
      return %0#0, %0#1 : tensor<4xf64>, tensor<2xf64> }""",
    "if": """func.func @main(%a: tensor<f64>, %b: tensor<3xf64>) -> tensor<3xf64> {
      %z = stablehlo.constant dense<0.0> : tensor<f64>
      %p = stablehlo.compare GT, %a, %z : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %0 = "stablehlo.if"(%p) ({
        %1 = stablehlo.multiply %b, %b : tensor<3xf64>
        stablehlo.return %1 : tensor<3xf64>
      }, {
        %1 = stablehlo.sine %b : tensor<3xf64>
        stablehlo.return %1 : tensor<3xf64>
      }) : (tensor<i1>) -> tensor<3xf64>
      return %0 : tensor<3xf64> }""",
    "batch_norm_training": """func.func @main(%x: tensor<4x3xf64>, %s: tensor<3xf64>, %o: tensor<3xf64>)
        -> (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>) {
      %0:3 = "stablehlo.batch_norm_training"(%x, %s, %o) {epsilon = 0.01 : f32, feature_index = 1 : i64}
        : (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>)
      return %0#0, %0#1, %0#2 : tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64> }""",
    "batch_norm_inference": """func.func @main(%x: tensor<4x3xf64>, %s: tensor<3xf64>, %o: tensor<3xf64>, %m: tensor<3xf64>,
        %r: tensor<3xf64>) -> tensor<4x3xf64> {
      %v = stablehlo.multiply %r, %r : tensor<3xf64>
      %0 = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v) {epsilon = 0.1 : f32, feature_index = 1 : i64}
        : (tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>) -> tensor<4x3xf64>
      return %0 : tensor<4x3xf64> }""",
    "select_and_scatter": """func.func @main(%x: tensor<4x6xf64>, %s: tensor<2x3xf64>, %i: tensor<f64>) -> tensor<4x6xf64> {
      %0 = "stablehlo.select_and_scatter"(%x, %s, %i) ({
      ^bb0(%a: tensor<f64>, %b: tensor<f64>):
        %1 = stablehlo.compare GE, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }, {
      ^bb0(%a: tensor<f64>, %b: tensor<f64>):
        %1 = stablehlo.add %a, %b : tensor<f64>
        stablehlo.return %1 : tensor<f64>
      }) {window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>}
        : (tensor<4x6xf64>, tensor<2x3xf64>, tensor<f64>) -> tensor<4x6xf64>
      return %0 : tensor<4x6xf64> }""",
    "map": """func.func @main(%x: tensor<4xf64>, %y: tensor<4xf64>) -> tensor<4xf64> {
      %0 = "stablehlo.map"(%x, %y) ({
      ^bb0(%a: tensor<f64>, %b: tensor<f64>):
        %1 = stablehlo.multiply %a, %b : tensor<f64>
        %2 = stablehlo.sine %1 : tensor<f64>
        stablehlo.return %2 : tensor<f64>
      }) {dimensions = array<i64: 0>} : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
      return %0 : tensor<4xf64> }""",
    "einsum": """func.func @main(%x: tensor<4x3xf64>, %y: tensor<3x2xf64>) -> tensor<4x2xf64> {
      %0 = "stablehlo.einsum"(%x, %y) {einsum_config = "ij,jk->ik"} : (tensor<4x3xf64>, tensor<3x2xf64>) -> tensor<4x2xf64>
      return %0 : tensor<4x2xf64> }""",
    "dot": """func.func @main(%x: tensor<4x3xf64>, %y: tensor<3x2xf64>) -> tensor<4x2xf64> {
      %0 = stablehlo.dot %x, %y : (tensor<4x3xf64>, tensor<3x2xf64>) -> tensor<4x2xf64>
      return %0 : tensor<4x2xf64> }""",
    "torch_index_select": """func.func @main(%x: tensor<4x3xf64>) -> tensor<2x3xf64> {
      %i = stablehlo.constant dense<[2, 0]> : tensor<2xi32>
      %0 = "stablehlo.torch_index_select"(%x, %i) {dim = 0 : i64, batch_dims = 0 : i64}
        : (tensor<4x3xf64>, tensor<2xi32>) -> tensor<2x3xf64>
      return %0 : tensor<2x3xf64> }""",
    "broadcast": """func.func @main(%x: tensor<3xf64>) -> tensor<2x3xf64> {
      %0 = "stablehlo.broadcast"(%x) {broadcast_sizes = array<i64: 2>} : (tensor<3xf64>) -> tensor<2x3xf64>
      return %0 : tensor<2x3xf64> }""",
    "polygamma": """func.func @main(%x: tensor<3xf64>) -> tensor<3xf64> {
      %n = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf64>
      %e = stablehlo.exponential %x : tensor<3xf64>
      %0 = chlo.polygamma %n, %e : tensor<3xf64>, tensor<3xf64> -> tensor<3xf64>
      return %0 : tensor<3xf64> }""",
    "tan": """func.func @main(%x: tensor<3xf64>) -> tensor<3xf64> {
      %0 = stablehlo.tanh %x : tensor<3xf64>
      %1 = chlo.tan %0 : tensor<3xf64> -> tensor<3xf64>
      return %1 : tensor<3xf64> }""",
    "broadcast_multiply": """func.func @main(%x: tensor<2x3xf64>, %y: tensor<3xf64>) -> tensor<2x3xf64> {
      %0 = chlo.broadcast_multiply %x, %y : (tensor<2x3xf64>, tensor<3xf64>) -> tensor<2x3xf64>
      return %0 : tensor<2x3xf64> }""",
}
"""Expansions that rest on other rules, and what is rarely met."""


def text_program(name: str) -> tuple[Function, Arrays]:
    """The function of a name, and random arguments."""
    module = hlojit.parse(TEXTS[name])
    function = module.main
    return function, [numbers(np.zeros(argument.tensor_type.shape)) for argument in function.body.arguments]
