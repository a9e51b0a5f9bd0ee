"""Plugins in processes of their own: first use by several threads, packages that fail to load, notebooks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .processes import install, run

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

COLD = """
import sys, threading
sys.setswitchinterval(1e-6)
import numpy as np, hlojit
from types import SimpleNamespace
barrier, failures = threading.Barrier(8), []

def work():
    barrier.wait()
    try:
        from hlojit.extensions import hookimpl, register, registry
        {first}
        assert registry().backend("cpu") and registry().backend("reference")
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
"""


@pytest.mark.parametrize(
    "first",
    [
        "registry().backend('cpu')",
        "register(SimpleNamespace(__name__=threading.current_thread().name, hlojit_passes=hookimpl(lambda: [])))",
        "hlojit.compile('func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }')",
    ],
    ids=["look-up", "register", "compile"],
)
def test_first_use_from_several_threads(first: str, tmp_path: Path) -> None:
    run(COLD.format(first=first), tmp_path)


EARLY = """
import hlojit, numpy as np
from hlojit.extensions import YES, Backend, hookimpl, register, unregister

class Other(Backend):
    name = "cpu"
    def capability(self, instruction):
        return YES
    def compile(self, module, options):
        return lambda *arrays: [array * 0 for array in arrays]

class Plugin:
    @hookimpl
    def hlojit_backends(self):
        return [Other()]

for arguments in ({}, {"name": "cpu"}):
    try:
        register(Plugin(), **arguments)
    except hlojit.PluginError as error:
        print(error)
unregister("Plugin")
text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
print(hlojit.compile(text)(np.float32([1, 2])).tolist())
"""


def test_a_back_end_registered_early_does_not_displace_the_built_in_one(tmp_path: Path) -> None:
    first, second, result = run(EARLY, tmp_path).splitlines()
    assert "plugin 'Plugin' registers the back end 'cpu', which is built in (plugin 'cpu' (package hlojit" in first
    assert "'cpu' is the name of a plugin that is built in" in second
    assert result == "[1.0, 2.0]"


FUNCTION = "func.func @main(%x: tensor<2x{0}>) -> tensor<2x{0}> {{ {1} }}"
MISSES = {
    "element type": f"hlojit.parse({FUNCTION.format('acme9', 'return %x : tensor<2xacme9>')!r})",
    "op": f"hlojit.parse({FUNCTION.format('f32', '%0 = acme.op %x : tensor<2xf32> return %0 : tensor<2xf32>')!r})",
    "custom call target": "hlojit.compile({!r})".format(
        FUNCTION.format(
            "f32",
            "%0 = stablehlo.custom_call @acme.f(%x) : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32>",
        )
    ),
    "back end": f"hlojit.compile({FUNCTION.format('f32', 'return %x : tensor<2xf32>')!r}, backend='acme9')",
    "array": "hlojit.Array.from_values([1.0], 'acme9')",
}


def test_a_plugin_that_failed_to_load_is_named_when_a_program_misses_something(tmp_path: Path) -> None:
    install(tmp_path, "broken", "import nothing_like_this")
    code = "import hlojit\n" + "".join(
        f"try:\n    {miss}\nexcept hlojit.HlojitError as error:\n    print(str(error).replace(chr(10), ' '))\n"
        for miss in MISSES.values()
    )
    lines = run(code, tmp_path).splitlines()
    assert len(lines) == len(MISSES)
    named = (
        "the plugin 'broken' (package broken 1.5) could not be loaded: "
        "ModuleNotFoundError: No module named 'nothing_like_this'"
    )
    for what, line in zip(MISSES, lines):
        assert "unknown" in line and line.count(named) == 1, (what, line)


def test_a_plugin_that_wants_the_name_of_a_built_in_one_fails_alone(tmp_path: Path) -> None:
    install(
        tmp_path, "taker", "import hlojit.extensions as ext\n\n@ext.hookimpl\ndef hlojit_passes():\n    return []\n"
    )
    (tmp_path / "taker-1.5.dist-info" / "entry_points.txt").write_text("[hlojit]\ncpu = taker\n")
    code = """
    from hlojit.extensions import registry
    records = registry().load().records
    print(records["cpu"].package, registry().backend("cpu").name)
    print(records["cpu (taker)"].error.splitlines()[-1])
    """
    first, second = run(code, tmp_path).splitlines()
    assert first == "hlojit cpu"
    assert "built in" in second


NOTEBOOK = """
import hlojit, numpy as np
from hlojit.extensions import ElementwiseCall, hookimpl, register, registry

text = '''
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.custom_call @cell.f(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
'''
module = hlojit.parse(text)
cell = '''
SCALE = {scale}
def f(x):
    return x * SCALE
class {name}:
    @hookimpl
    def hlojit_custom_calls(self):
        return [ElementwiseCall("cell.f", function=f)]
register({name}())
'''
for name, scale in (("First", 2.0), ("First", 3.0), ("Renamed", 4.0)):
    exec(cell.format(name=name, scale=scale), globals())
    for program in (text, module):
        print(hlojit.compile(program, backend=BACKEND)(np.float32([1, 2])).tolist())
print(sorted(name for name, record in registry().records.items() if not record.package))
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_cell_run_again_with_another_constant_and_a_renamed_class(backend: str, tmp_path: Path) -> None:
    lines = run(NOTEBOOK.replace("BACKEND", repr(backend)), tmp_path).splitlines()
    assert lines == ["[2.0, 4.0]"] * 2 + ["[3.0, 6.0]"] * 2 + ["[4.0, 8.0]"] * 2 + ["['Renamed']"]


EAGER = """
import sys, threading
main = sys.modules["__main__"]
main.begun.set()
assert main.other_waits.wait(30)
import hlojit
import hlojit.extensions as ext

hlojit.parse("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")
main.imports.append(1)

@ext.hookimpl
def hlojit_custom_calls():
    main.calls.append(1)
    return [ext.ElementwiseCall("eager.f", function=lambda x: x)]
"""

IMPORTING = """
import faulthandler, importlib, threading, time
faulthandler.dump_traceback_later(60, exit=True)
import hlojit, hlojit.cpu.backend
from hlojit.extensions import registry
begun, other_waits, imports, calls = threading.Event(), threading.Event(), [], []
found = []
importing = threading.Thread(target=importlib.import_module, args=("eager",))
others = [
    threading.Thread(target=lambda: found.append(registry().custom_call("eager.f") is not None)) for _ in range(4)
]
{first}.start()
{wait}
for each in (importing, *others):
    if each.ident is None:
        each.start()
time.sleep(0.3)     # now each of them waits, or soon will
other_waits.set()
for each in (importing, *others):
    each.join()
print(found, imports, calls, registry().records["eager"].error)
"""


@pytest.mark.parametrize(
    ("first", "wait"), [("importing", "assert begun.wait(30)"), ("others[0]", "assert begun.wait(30)")]
)
def test_a_plugin_that_compiles_while_one_thread_imports_it_and_others_look_it_up(
    first: str, wait: str, tmp_path: Path
) -> None:
    install(tmp_path, "eager", EAGER)
    assert run(IMPORTING.format(first=first, wait=wait), tmp_path) == "[True, True, True, True] [1] [1] \n"


def test_a_plugin_imported_by_its_user_that_compiles_at_once(tmp_path: Path) -> None:
    install(
        tmp_path,
        "early",
        """
        import hlojit
        import hlojit.extensions as ext

        hlojit.parse("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")

        @ext.hookimpl
        def hlojit_custom_calls():
            return [ext.ElementwiseCall("early.f", function=lambda x: x)]
        """,
    )
    code = """
    import early
    from hlojit.extensions import registry
    print(registry().custom_call("early.f").target, registry().records["early"].error)
    """
    assert run(code, tmp_path) == "early.f \n"


HOOKS_WITH_THREADS = """
import os, sys, threading
import numpy as np
import hlojit
import hlojit.extensions as ext

main = sys.modules["__main__"]

def work():
    text = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.add %a, %a : tensor<2xf32> return %0 : tensor<2xf32> }"
    main.inside.append(hlojit.compile(text)(np.float32([1, 2])).tolist())

@ext.hookimpl
def hlojit_custom_calls():
    main.calls.append(1)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    if FORKS:
        child = os.fork()
        if child == 0:
            work()
            os._exit(0 if ext.registry().backend("cpu") else 1)
        main.inside.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return [ext.ElementwiseCall("threaded.f", function=lambda x: x)]
"""

USES_HOOKS_WITH_THREADS = """
import faulthandler, threading
faulthandler.dump_traceback_later(60, exit=True)
from hlojit.extensions import registry
registry()._discovery._works.patience = 0.2     # seconds after which what the hook waits for goes on without it
inside, calls, found = [], [], []
threads = [
    threading.Thread(target=lambda: found.append(registry().custom_call("threaded.f") is not None)) for _ in range({threads})
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(found, inside, calls, registry().records["threaded"].error)
"""


@pytest.mark.parametrize("forks", [False, pytest.param(True, marks=needs_fork)])
def test_a_hook_that_waits_for_a_thread_which_uses_hlojit(forks: bool, tmp_path: Path) -> None:
    install(tmp_path, "threaded", HOOKS_WITH_THREADS.replace("FORKS", repr(forks)))
    inside = "[[2.0, 4.0], 0]" if forks else "[[2.0, 4.0]]"
    assert run(USES_HOOKS_WITH_THREADS.format(threads=1), tmp_path) == f"[True] {inside} [1] \n"


SLOW = """
import sys, time
import hlojit.extensions as ext

@ext.hookimpl
def hlojit_custom_calls():
    sys.modules["__main__"].calls.append(1)
    time.sleep(0.2)
    return [ext.ElementwiseCall("threaded.f", function=lambda x: x)]
"""


def test_threads_wait_for_a_slow_hook(tmp_path: Path) -> None:
    install(tmp_path, "threaded", SLOW)
    code = USES_HOOKS_WITH_THREADS.format(threads=6).replace("= 0.2 ", "= 50.0 ")
    assert run(code, tmp_path) == f"{[True] * 6} [] [1] \n"


INTERRUPTED = """
import sys
import hlojit.extensions as ext

@ext.hookimpl
def hlojit_custom_calls():
    calls = sys.modules["__main__"].calls
    calls.append(1)
    if len(calls) == 1:
        raise KeyboardInterrupt
    return [ext.ElementwiseCall("threaded.f", function=lambda x: x)]
"""


def test_loading_that_was_interrupted_goes_on_later(tmp_path: Path) -> None:
    install(tmp_path, "threaded", INTERRUPTED)
    code = """
    from hlojit.extensions import registry
    calls = []
    for _ in range(3):
        try:
            print(registry().custom_call("threaded.f") is not None, calls)
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert run(code, tmp_path) == "interrupted\nTrue [1, 1]\nTrue [1, 1]\n"
