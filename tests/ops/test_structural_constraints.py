"""Every constraint that the specification states of structural ops has a call that breaks it.

A row is op, label, how the correct call is changed, and text of the fault that the verifier must report.
"""

from __future__ import annotations

import pytest
from hlojit.ir.builder import Builder
from hlojit.ir.errors import TypeInferenceError
from hlojit.ir.graph import Block, Function, Module
from hlojit.ir.ops.definition import InferenceRequest, op
from hlojit.ir.types import future_type
from hlojit.ir.verifier import collect_faults

from .calls import CALLS, Call, Constant, region, shaped
from .constraint_rows import ROWS

LABELS = {
    "after_all": 0, "all_gather": 6, "all_reduce": 7, "all_to_all": 9, "async_done": 1, "async_start": 4,
    "batch_norm_grad": 5, "batch_norm_inference": 7, "batch_norm_training": 7, "case": 4, "cholesky": 3,
    "collective_broadcast": 6, "collective_permute": 5, "collective_reduce": 4, "composite": 4, "convolution": 34,
    "custom_call": 0, "dot_general": 24, "dynamic_broadcast_in_dim": 10, "dynamic_conv": 34, "dynamic_gather": 14,
    "dynamic_iota": 2, "dynamic_pad": 4, "dynamic_reshape": 4, "dynamic_update_slice": 6, "fft": 5, "gather": 23,
    "get_tuple_element": 2, "if": 3, "infeed": 3, "map": 4, "optimization_barrier": 1, "outfeed": 0,
    "partition_id": 0, "recv": 5, "reduce": 8, "reduce_scatter": 9, "reduce_window": 16, "replica_id": 0, "rng": 3,
    "rng_bit_generator": 2, "scatter": 25, "select_and_scatter": 12, "send": 5, "sort": 5, "triangular_solve": 4,
    "tuple": 1, "uniform_dequantize": 2, "uniform_quantize": 2, "while": 3,
}  # fmt: skip
"""Number of constraints (C1, C2, ...) of each op in the specification."""

ELSEWHERE = {
    "async_done": {"C1"},
    "async_start": {"C1", "C2", "C3", "C4"},
    "composite": {"C1", "C2", "C3", "C4"},
}
"""Constraints with tests of their own below."""

NOT_CHECKED = {
    # A value at run time.
    "collective_broadcast": {"C6"},
    # How many replicas and partitions there are is known when a program is compiled; the ids are checked as a range.
}


@pytest.mark.parametrize("name", CALLS)
def test_correct_call_has_no_faults(name: str) -> None:
    assert CALLS[name].faults() == []


@pytest.mark.parametrize(
    ("name", "label", "change", "text"), ROWS, ids=[f"{row[0]}-{row[1]}-{n}" for n, row in enumerate(ROWS)]
)
def test_broken_constraint_is_reported(name: str, label: str, change: dict, text: str) -> None:
    faults = CALLS[name].but(**change).faults()
    assert any(fault.op == name and fault.label == label and text in fault.message for fault in faults), faults
    assert not any("cannot be checked" in fault.message for fault in faults), faults


@pytest.mark.parametrize(
    ("name", "label", "change", "text"), ROWS, ids=[f"{row[0]}-{row[1]}-{n}" for n, row in enumerate(ROWS)]
)
def test_inference_never_crashes(name: str, label: str, change: dict, text: str) -> None:
    """Inference on a broken call gives types or a TypeInferenceError, never another exception."""
    call: Call = CALLS[name].but(**change)
    record = op(name)
    if record.infer is None:
        return
    types = tuple(shaped(o.type if isinstance(o, Constant) else o) for o in call.operands)
    try:
        record.infer(InferenceRequest(types, call.attributes, [make() for make in call.regions]))
    except TypeInferenceError as error:
        assert error.message


def test_every_label_of_the_specification_has_a_row() -> None:
    covered = {(row[0], row[1]) for row in ROWS}
    missing = {
        f"{name} C{number}"
        for name, count in LABELS.items()
        for number in range(1, count + 1)
        if (name, f"C{number}") not in covered
        and f"C{number}" not in ELSEWHERE.get(name, set()) | NOT_CHECKED.get(name, set())
    }
    assert not missing


@pytest.mark.parametrize("name", LABELS)
def test_op_is_registered(name: str) -> None:
    assert op(name).name == f"stablehlo.{name}"


# composite and asynchronous calls


def composite(
    name: str = "my.op", decomposition: str = "callee", operands: tuple = ("f32",), results: tuple = ("f32",)
) -> Module:
    module = Call("composite", operands, results, {"name": name, "decomposition": decomposition}).build()
    callee = module.add_function(Function("callee", [shaped("f32")], [shaped("f32")], visibility="private"))
    Builder(callee.body).return_(callee.body.arguments[0])
    return module


@pytest.mark.parametrize(
    ("label", "module", "text"),
    [
        ("C1", composite(name="op"), "name 'op' is not a namespaced op name"),
        ("C2", composite(decomposition="nobody"), "there is no function @nobody"),
        ("C3", composite(operands=("i32",)), "inputs are tensor<i32> but @callee takes tensor<f32>"),
        ("C4", composite(results=("i32",)), "results are tensor<i32> but @callee returns tensor<f32>"),
    ],
)
def test_composite(label: str, module: Module, text: str) -> None:
    assert not collect_faults(composite())
    assert any(fault.label == label and text in fault.message for fault in collect_faults(module))


FUTURE = "!stablehlo.future<tensor<2xf32>>"


@pytest.mark.parametrize(
    ("label", "arguments", "returned", "build", "result", "text"),
    [
        ("C1", ["2xf32"], ["2xf32", "2xf32"], "", "2xf32", "body must be one op and a return"),
        ("C2", ["2xf32", "2xf32"], [], "add", "2xf32", "body must be a collective or a slice, found stablehlo.add"),
        ("C3", ["3xf32"], [], "collective_permute", "2xf32", "body takes tensor<3xf32> but is given tensor<2xf32>"),
        ("C4", ["2xf32"], [], "collective_permute", "3xf32", f"expected {FUTURE}"),
    ],
)
def test_async_start(label: str, arguments: list, returned: list, build: str, result: str, text: str) -> None:
    def body() -> Block:
        if build != "collective_permute":
            return region(arguments, returned, build)()
        block = Block([shaped(type) for type in arguments])
        builder = Builder(block)
        moved = builder.create(build, block.arguments, attributes={"source_target_pairs": ((0, 1),)})
        builder.return_(*moved.results)
        return block

    faults = Call("async_start", ("2xf32",), (future_type([shaped(result)]),), {}, (body,)).faults()
    assert any(fault.label == label and text in fault.message for fault in faults), faults


def test_async_done_c1_result_is_what_the_future_holds() -> None:
    assert not Call("async_done", (future_type([shaped("2xf32")]),), ("2xf32",)).faults()
    (fault,) = Call("async_done", (future_type([shaped("2xf32")]),), ("3xf32",)).faults()
    assert fault.label == "C1"
