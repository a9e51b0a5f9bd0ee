"""What goes wrong in programs over several devices, and what is refused."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import YES, Backend, Capability, no
from hlojit.ir import Instruction

from .test_placement import SORTED, X, Y, refusing
from .vendor import NAMES, OwnMemoryBackend, everything, expected

Register = Callable[..., None]


# ------------------------------------------------------------------------------------------------------- errors


def test_an_error_names_device_and_place(nova: OwnMemoryBackend) -> None:
    def fail(program: Any) -> None:
        raise ValueError("overheated")

    executable = hlojit.compile(SORTED, backend=NAMES)
    nova.devices()[0].before = fail
    message = r"main\.0 \(stablehlo.add at <string>:3:3 and 1 more\) on nova:0: the back end 'nova' raised ValueError\('overheated'\)"
    with pytest.raises(hlojit.ExecutionError, match=message):
        executable(X, Y)
    pending = executable.execute(X, Y)
    with pytest.raises(hlojit.ExecutionError, match=message):
        hlojit.get(pending)
    with pytest.raises(hlojit.ExecutionError, match=message):
        hlojit.get(executable.execute(pending, Y))
    nova.devices()[0].before = lambda program: None
    np.testing.assert_array_equal(executable(X, Y), expected(SORTED, X, Y))


def test_a_back_end_that_fails_to_compile_its_part(registered: Register) -> None:
    class Broken(OwnMemoryBackend):
        def compile(self, module: Any, options: Any) -> Any:
            raise ValueError("no compiler today")

    registered(Broken("nova", refusing("stablehlo.sort")), OwnMemoryBackend("last", everything(1e6)))
    with pytest.raises(
        hlojit.PluginError, match=r"the back end 'nova' \(plugin .*\): compile raised ValueError.* for @main\.\d"
    ):
        hlojit.compile(SORTED, backend=NAMES)


def test_a_list_may_be_a_text(nova: OwnMemoryBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ("nova:0", "last:0")
    assert tuple(map(str, hlojit.compile(SORTED, backend="nova,last").devices)) == right
    monkeypatch.setenv("HLOJIT_BACKEND", "nova:0,last")
    assert tuple(map(str, hlojit.compile(SORTED).devices)) == right
    assert str(hlojit.put(X).device) == "nova:0"
    np.testing.assert_allclose(hlojit.jit(lambda x: np.sin(x))(X), np.sin(X), rtol=1e-6)


def test_a_call_can_be_interrupted(nova: OwnMemoryBackend) -> None:
    """While it waits for a device, which goes on."""
    gate = threading.Event()
    has_begun = threading.Event()

    def hang(program: Any) -> None:
        has_begun.set()
        gate.wait(20)

    nova.devices()[0].before = hang
    executable = hlojit.compile(SORTED, backend=NAMES)

    def interrupt() -> None:
        has_begun.wait(20)
        _thread.interrupt_main()

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        executable(X, Y)
    helper.join()
    gate.set()
    np.testing.assert_array_equal(executable(X, Y), expected(SORTED, X, Y))


# ------------------------------------------------------------------------------------------------------- passes


def test_who_sees_the_whole_program_and_who_a_segment(nova: OwnMemoryBackend) -> None:
    """A pass for all targets the program until it is split, one that names a back end that one's segments."""
    from hlojit.extensions import Pass, hookimpl, registry

    seen: list[tuple[str, int]] = []

    def counting(of: str, in_phase: str, for_targets: tuple[str, ...]) -> Pass:
        class Counting(Pass):
            name = of
            phase = in_phase
            targets = for_targets

            def run(self, module: Any) -> bool:
                seen.append((of, sum(not each.op.is_terminator for each in module.main.body)))
                return False

        return Counting()

    class Passes:
        @hookimpl
        def hlojit_passes(self) -> list[Pass]:
            return [
                counting("early", "simplify", ()),
                counting("late", "after-fusion", ()),
                counting("own", "simplify", ("nova",)),
            ]

    with registry().using(Passes()):
        hlojit.compile(SORTED, backend=NAMES)
    assert [each for each in seen if each[0] == "early"] == [("early", 5)]
    assert sorted(each for each in seen if each[0] == "late") == [("late", 1), ("late", 2), ("late", 2)]
    assert [each for each in seen if each[0] == "own"] == [("own", 2), ("own", 2)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "names no back end"),
        (["cpu", 3], "holds names of back ends or devices"),
        (["cpu", "cpu:0"], "names the device cpu:0 twice"),
        (["cpu", "gpt"], "unknown back end 'gpt'"),
        (["nova:7", "cpu"], "there is no device 'nova:7'"),
    ],
)
def test_lists_that_are_refused(nova: OwnMemoryBackend, names: Any, message: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=message):
        hlojit.compile(SORTED, backend=names)


def test_what_is_refused_by_name(nova: OwnMemoryBackend, tmp_path: Any) -> None:
    executable = hlojit.compile(SORTED, backend=NAMES)
    with pytest.raises(hlojit.HlojitError, match="compiled for nova:0, last:0 and cannot be saved"):
        executable.save(tmp_path / "program")
    with pytest.raises(hlojit.ArgumentError, match="it is not moved to cpu by execute"):
        executable.execute(X, Y, device="cpu")
    with pytest.raises(hlojit.UnsupportedError, match="2 processes run together .* is compiled for one back end"):
        hlojit.compile(SORTED, backend=NAMES, num_replicas=2)
    assert "// last:0, segment 1" in executable.as_text()


def test_effects_keep_the_programs_order(registered: Register) -> None:
    """What one back end takes in and another gives out."""
    registered(OwnMemoryBackend("nova", refusing("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.create_token")))
    text = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %t0 = stablehlo.create_token : !stablehlo.token
      %a, %t1 = "stablehlo.infeed"(%t0) : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
      %0 = stablehlo.sine %a : tensor<2xf32>
      %t2 = "stablehlo.outfeed"(%0, %t1) : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
      %b, %t3 = "stablehlo.infeed"(%t2) : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
      %1 = stablehlo.add %0, %b : tensor<2xf32>
      return %1 : tensor<2xf32>
    }
    """
    executable = hlojit.compile(text, backend=["nova", "cpu"])
    for number in (1.0, 2.0):
        hlojit.channel("infeed").put(np.full(2, number, "f4"))
    np.testing.assert_allclose(executable(np.zeros(2, "f4")), np.sin(1) + np.full(2, 2, "f4"), rtol=1e-6)
    np.testing.assert_allclose(hlojit.channel("outfeed").get(timeout=5)[0], np.sin(np.ones(2, "f4")), rtol=1e-6)


def test_a_back_end_of_version_1_0_takes_part(registered: Register) -> None:
    """Asked when all is expanded; its program is a Python function over arrays."""
    from hlojit.ir import evaluate

    class Old(Backend):
        name = "old"

        def capability(self, instruction: Instruction) -> Capability:
            return no("no sorter") if instruction.name == "stablehlo.sort" else Capability(YES.support, "", 1.0)

        def compile(self, module: Any, options: Any) -> Any:
            return lambda *arrays: evaluate(module, *arrays)

    class Plugin:
        def hlojit_backends(self) -> list[Backend]:
            return [Old()]

    from hlojit.extensions import hookimpl, registry

    Plugin.hlojit_backends = hookimpl(Plugin.hlojit_backends)  # type: ignore[method-assign]
    registered(OwnMemoryBackend("last", everything(1e6)))
    with registry().using(Plugin()):
        executable = hlojit.compile(SORTED, backend=["old", "last"])
        assert executable.placement().devices == {"old:0": 4, "last:0": 1}
        np.testing.assert_array_equal(executable(X, Y), expected(SORTED, X, Y))
