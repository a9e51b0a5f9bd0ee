"""Programs that talk to the host while they run, and tokens, which say in which order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit import ExecutionError, HlojitError
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.token_removal import TokenRemoval
from hlojit.ir.types import TokenType

BACKENDS = ("cpu", "reference", "cuda")
COMPILED = ("cpu", "cuda")
TOKEN = "!stablehlo.token"


def infeed(name: str, token: str, type: str) -> str:
    return f'%{name}, %{name}_t = "stablehlo.infeed"(%{token}) : ({TOKEN}) -> ({type}, {TOKEN})\n'


def send(
    value: str, token: str, into: str, type: str, more: str = "handle = 5, type = 2>, is_host_transfer = true"
) -> str:
    channel = f"channel_handle = #stablehlo.channel_handle<{more}"
    return f'%{into} = "stablehlo.send"(%{value}, %{token}) {{{channel}}} : ({type}, {TOKEN}) -> {TOKEN}\n'


def recv(name: str, token: str, type: str, more: str = "handle = 5, type = 3>, is_host_transfer = true") -> str:
    channel = f"channel_handle = #stablehlo.channel_handle<{more}"
    return f'%{name}, %{name}_t = "stablehlo.recv"(%{token}) {{{channel}}} : ({TOKEN}) -> ({type}, {TOKEN})\n'


def outfeed(value: str, token: str, into: str, type: str) -> str:
    return f'%{into} = "stablehlo.outfeed"(%{value}, %{token}) : ({type}, {TOKEN}) -> {TOKEN}\n'


@pytest.fixture(autouse=True)
def channels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is left over for the next test; GPUs are simulated where a test has not said how many."""
    if "HLOJIT_CUDA" not in os.environ:
        monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    yield
    for name in ("infeed", "outfeed", "5", "host work"):
        for process in range(2):
            found = hlojit.channel(name, process)
            found.clear()
            found.handle()


def array(*numbers: float) -> Any:
    return np.array(numbers, "f4")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("bf16", ml_dtypes.bfloat16), ("f16", "f2"), ("f8E4M3FN", ml_dtypes.float8_e4m3fn), ("i4", ml_dtypes.int4), ("ui8", "u1"),
        ("i1", "?"), ("complex<f32>", "c8"),
    ],
)  # fmt: skip
def test_arrays_have_their_own_types_outside(backend: str, element: str, dtype: Any) -> None:
    kind = f"tensor<3x{element}>"
    text = f"func.func @main(%t: {TOKEN}) -> {TOKEN} {{\n{infeed('a', 't', kind)}{outfeed('a', 'a_t', 'u', kind)}  return %u : {TOKEN}\n}}"
    given = np.array([1, 0, 3]).astype(dtype)
    hlojit.channel("infeed").put(given)
    hlojit.compile(text, backend=backend)()
    (found,) = hlojit.channel("outfeed").get()
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found, given)


T = "tensor<2xf32>"
FED = (
    f"func.func @main(%x: {T}, %t: {TOKEN}) -> ({T}, {TOKEN}) {{\n"
    f"{infeed('a', 't', T)}  %s = stablehlo.add %x, %a : {T}\n{outfeed('s', 'a_t', 'u', T)}  return %s, %u : {T}, {TOKEN}\n}}"
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_fed_in_and_out(backend: str) -> None:
    program = hlojit.compile(FED, backend=backend)
    assert [str(type) for type in program.input_types] == [T], "tokens are neither taken nor given"
    hlojit.channel("infeed").put(array(1, 2))
    hlojit.channel("infeed").put(array(3, 4))
    assert program(array(10, 20)).tolist() == [11, 22]
    assert program(array(10, 20)).tolist() == [13, 24]
    assert [each.tolist() for _ in range(2) for each in hlojit.channel("outfeed").get(5)] == [[11, 22], [13, 24]]
    with pytest.raises(TimeoutError, match="nothing came through channel 'outfeed' of process 0"):
        hlojit.channel("outfeed").get(0.01)


@pytest.mark.parametrize("backend", BACKENDS)
def test_through_one_channel_to_the_host_and_back(backend: str) -> None:
    text = (
        f"func.func @main(%x: {T}) -> {T} {{\n  %t = stablehlo.create_token : {TOKEN}\n"
        f"{send('x', 't', 'u', T)}{recv('r', 'u', T)}  return %r : {T}\n}}"
    )
    program = hlojit.compile(text, backend=backend)
    assert program(array(1, 2)).tolist() == [1, 2]
    sent: list[Any] = []
    hlojit.channel(5).handle(sends=lambda x: sent.append(x.copy()), receives=lambda: sent[-1] * 10)
    assert program(array(3, 4)).tolist() == [30, 40]
    assert sent[0].tolist() == [3, 4]


def test_channels_by_the_program_s_name_for_them() -> None:
    named = "handle = 5, type = 2>, is_host_transfer = true, mhlo.frontend_attributes = {_xla_host_transfer_handler_name = \"host work\"}"  # fmt: skip
    text = f"func.func @main(%x: {T}) {{\n  %t = stablehlo.after_all : {TOKEN}\n{send('x', 't', 'u', T, named)}  return\n}}"
    hlojit.compile(text)(array(1, 2))
    (found,) = hlojit.channel("host work").get(5)
    assert found.tolist() == [1, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_order_in_loops_and_branches(backend: str) -> None:
    text = f"""func.func @main(%t: {TOKEN}, %p: tensor<i1>) -> {TOKEN} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %four = stablehlo.constant dense<4> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %u = %t) : tensor<i32>, {TOKEN}
      cond {{
        %c = stablehlo.compare LT, %i, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        {outfeed("i", "u", "v", "tensor<i32>")}
        %n = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %n, %v : tensor<i32>, {TOKEN}
      }}
      %w = "stablehlo.if"(%p) ({{
        {outfeed("four", "r#1", "y", "tensor<i32>")}
        stablehlo.return %y : {TOKEN}
      }}, {{
        stablehlo.return %r#1 : {TOKEN}
      }}) : (tensor<i1>) -> {TOKEN}
      %k = stablehlo.optimization_barrier %w : {TOKEN}
      %e = stablehlo.after_all %k, %w : {TOKEN}
      return %e : {TOKEN}
    }}"""
    program = hlojit.compile(text, backend=backend)
    program(np.bool_(True))
    program(np.bool_(False))
    found = [int(hlojit.channel("outfeed").get(5)[0]) for _ in range(9)]
    assert found == [0, 1, 2, 3, 4, 0, 1, 2, 3] and not len(hlojit.channel("outfeed"))


def test_no_token_is_left() -> None:
    module = hlojit.parse(FED)
    assert TokenRemoval().run(module) and not TokenRemoval().run(module)
    hlojit.verify(module)
    types = [*module.main.type.inputs, *module.main.type.results]
    assert not any(isinstance(type, TokenType) for type in types)


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("f64", "f8"),
        ("i1", "?"),
        ("ui16", "u2"),
        ("bf16", ml_dtypes.bfloat16),
        ("i4", ml_dtypes.int4),
        ("complex<f32>", "c8"),
    ],
)
def test_element_types(backend: str, element: str, dtype: Any) -> None:
    type = f"tensor<2x3x{element}>"
    text = f"func.func @main(%x: {type}) -> {type} {{\n  %t = stablehlo.create_token : {TOKEN}\n{send('x', 't', 'u', type)}{recv('r', 'u', type)}  return %r : {type}\n}}"  # fmt: skip
    x = np.arange(6).reshape(2, 3).astype(dtype)
    found = hlojit.compile(text, backend=backend)(x)
    assert found.dtype == x.dtype and found.tobytes() == x.tobytes()


@pytest.mark.parametrize("backend", COMPILED)
def test_nothing_at_all_and_empty_arrays(backend: str) -> None:
    type = "tensor<0x3xf32>"
    text = f'func.func @main(%x: {type}) -> {type} {{\n  %t = stablehlo.create_token : {TOKEN}\n  %u = "stablehlo.outfeed"(%t) : ({TOKEN}) -> {TOKEN}\n{infeed("r", "u", type)}  return %r : {type}\n}}'  # fmt: skip
    hlojit.channel("infeed").put(np.zeros((0, 3), "f4"))
    assert hlojit.compile(text, backend=backend)(np.zeros((0, 3), "f4")).shape == (0, 3)
    assert hlojit.channel("outfeed").get(5) == ()


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("given", [(np.zeros(2, "f8"),), (array(1),), (array(1, 2), array(1, 2)), ()])
def test_other_arrays_than_the_program_takes(backend: str, given: Any) -> None:
    hlojit.channel("infeed").put(*given)
    with pytest.raises(ExecutionError, match=r"channel 'infeed': the program takes float32\[2\], and was given"):
        hlojit.compile(FED, backend=backend)(array(1, 2))
    hlojit.channel("infeed").put(array(1, 2))
    assert hlojit.compile(FED, backend=backend)(array(1, 2)).tolist() == [2, 4], "the next call is not concerned"


@pytest.mark.parametrize("backend", COMPILED)
def test_what_a_handler_raises_ends_the_call(backend: str) -> None:
    hlojit.channel("infeed").handle(receives=lambda: 1 / 0)
    with pytest.raises(ExecutionError, match="division by zero"):
        hlojit.compile(FED, backend=backend)(array(1, 2))
    with pytest.raises(hlojit.ArgumentError, match="is not a function"):
        hlojit.channel("infeed").handle(sends=3)  # type: ignore[arg-type]
    for name in ("", True, None):
        with pytest.raises(hlojit.ArgumentError, match="a channel's name"):
            hlojit.channel(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", COMPILED)
def test_ctrl_c_ends_the_wait_for_the_host(backend: str) -> None:
    program = hlojit.compile(FED, backend=backend)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        program(array(1, 2))
        raise AssertionError("the call has ended without a word")
    hlojit.channel("infeed").put(array(1, 2))
    assert program(array(1, 2)).tolist() == [2, 4]


def test_a_program_in_another_thread_sends_what_this_one_receives() -> None:
    sender = hlojit.compile(f"func.func @main(%x: {T}, %t: {TOKEN}) {{\n{send('x', 't', 'u', T)}  return\n}}")
    receiver = hlojit.compile(f"func.func @main(%t: {TOKEN}) -> {T} {{\n{recv('r', 't', T)}  return %r : {T}\n}}")
    thread = threading.Thread(target=lambda: [sender(array(n, n)) for n in range(20)])
    thread.start()
    found = [receiver().tolist()[0] for _ in range(20)]
    thread.join()
    assert found == list(range(20))


@pytest.mark.parametrize("backend", COMPILED)
def test_programs_with_channels_are_saved(backend: str, tmp_path: Any) -> None:
    hlojit.compile(FED, backend=backend).save(tmp_path / "fed")
    hlojit.channel("infeed").put(array(1, 2))
    assert hlojit.load(tmp_path / "fed")(array(1, 2)).tolist() == [2, 4]


SHIFTED = (
    f"func.func @main(%x: {T}) -> {T} {{\n  %t = stablehlo.create_token : {TOKEN}\n"
    f"{send('x', 't', 'u', T, 'handle = 5, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>')}"
    f"{recv('r', 'u', T, 'handle = 5, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>')}"
    f"  return %r : {T}\n}}"
)


def test_from_process_to_process(every: str) -> None:
    program: Any = hlojit.compile(SHIFTED, backend=every, num_partitions=2)
    found = program([[array(1, 2)], [array(3, 4)]])
    assert [np.asarray(each).ravel().tolist() for each in found] == [[3, 4], [1, 2]]


def test_each_process_has_an_infeed(several: str) -> None:
    program: Any = hlojit.compile(FED, backend=several, num_replicas=2)
    for process in range(2):
        hlojit.channel("infeed", process).put(array(process, process))
    program([[array(10, 20)], [array(30, 40)]])
    found = [hlojit.channel("outfeed", process).get(5)[0].tolist() for process in range(2)]
    assert found == [[10, 20], [31, 41]]


def test_who_waits_for_the_host_is_freed_when_another_process_fails(several: str) -> None:
    hlojit.channel("infeed", 1).put(np.zeros(3, "f4"))
    program: Any = hlojit.compile(FED, backend=several, num_replicas=2)
    with pytest.raises(ExecutionError, match=r"float32\[2\], and was given float32\[3\]"):
        program([[array(1, 2)], [array(3, 4)]])


def test_what_nobody_sends_is_refused() -> None:
    lost = SHIFTED.replace("handle = 5, type = 1>, source", "handle = 6, type = 1>, source", 1)
    with pytest.raises(HlojitError, match="no (send|recv) through channel [56] of the same types"):
        hlojit.compile(lost, num_partitions=2)


def test_the_interpreter_hands_tokens_on() -> None:
    module = hlojit.parse(f"func.func @main(%t: {TOKEN}) -> {TOKEN} {{\n  return %t : {TOKEN}\n}}")
    assert evaluate(module, None) == (None,)


def test_random_numbers_are_the_same_on_all_machines() -> None:
    text = """func.func @main() -> tensor<300xf32> {
  %a = stablehlo.constant dense<0.0> : tensor<f32>
  %b = stablehlo.constant dense<1.0> : tensor<f32>
  %s = stablehlo.constant dense<300> : tensor<1xi64>
  %0 = stablehlo.rng %a, %b, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<300xf32>
  return %0 : tensor<300xf32>
}"""
    state = np.array([3, 4], np.uint64)
    hlojit.channel("random").handle(receives=lambda: state)
    try:
        found = [hlojit.compile(text, backend=backend)() for backend in BACKENDS]
    finally:
        hlojit.channel("random").handle()
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def test_nothing_is_sent_behind_what_failed(every: str) -> None:
    """What the infeed did not give is nothing to send."""
    type = "tensor<2xf32>"
    text = f"""func.func @main() -> {type} {{
      %t = stablehlo.create_token : {TOKEN}
      {infeed("a", "t", type)}
      %w = stablehlo.add %a, %a : {type}
      %k = "stablehlo.outfeed"(%w, %a_t) : ({type}, {TOKEN}) -> {TOKEN}
      return %w : {type}
    }}"""
    program: Any = hlojit.compile(text, backend=every)
    hlojit.channel("infeed").put(np.zeros(3, "f4"))
    with pytest.raises(HlojitError, match=r"float32\[3\]"):
        program()
    hlojit.channel("infeed").put(array(1, 2))
    program()
    assert hlojit.channel("outfeed").get(5)[0].tolist() == [2, 4]
