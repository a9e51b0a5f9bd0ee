"""The registry: what plugins can get wrong, and that everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions.backends.registered import api_of
from hlojit.ir import evaluate
from hlojit.ir.environment import tables
from hlojit.ir.ops.definition import OpDefinition, find_op

from .processes import install, run

CALL = """
func.func @main(%x: tensor<100xf32>) -> tensor<100xf32> {{
  %0 = stablehlo.custom_call @{target}(%x) : (tensor<100xf32>) -> tensor<100xf32>
  return %0 : tensor<100xf32>
}}
"""
X = np.linspace(-2, 2, 100, dtype="f4")


def plugin(**hooks: Any) -> Any:
    """An object whose hooks return what is given: ``plugin(passes=[...])``."""

    def hook(items: Any) -> Any:
        return ext.hookimpl(lambda: items() if callable(items) else items)

    return SimpleNamespace(__name__="test", **{f"hlojit_{name}": hook(items) for name, items in hooks.items()})


@pytest.fixture(autouse=True)
def _unchanged() -> Iterator[None]:
    """Every test leaves the registry as it found it."""
    before = set(ext.registry().load().records)
    yield
    for name in set(ext.registry().records) - before:
        ext.unregister(name)


def scaling(factor: float) -> ext.ElementwiseCall:
    return ext.ElementwiseCall("test.scale", function=lambda x: x * factor)


# --------------------------------------------------------------------------------------------------------- registration


def test_misspelt_hook_is_named_with_the_right_one() -> None:
    with pytest.raises(hlojit.PluginError, match=r"no hook 'hlojit_pases'; did you mean 'hlojit_passes'"):
        ext.register(plugin(pases=[]))
    assert "test" not in ext.registry().records


def test_hook_with_a_wrong_signature_is_refused() -> None:
    wrong = SimpleNamespace(__name__="test", hlojit_passes=ext.hookimpl(lambda argument: []))
    with pytest.raises(hlojit.PluginError, match="'test'.*argument"):
        ext.register(wrong)


def test_hook_that_raises_is_named() -> None:
    with pytest.raises(hlojit.PluginError, match=r"'test': hook hlojit_passes raised ZeroDivisionError"):
        ext.register(plugin(passes=lambda: [1 // 0]))


@pytest.mark.parametrize("hook", ["formats", "ops", "passes", "custom_calls", "backends"])
@pytest.mark.parametrize("items", [[42], ["text"], [None], [object], 42, None])
def test_hook_that_returns_something_else_is_named(hook: str, items: Any) -> None:
    with pytest.raises(hlojit.PluginError, match=f"'test': hook hlojit_{hook}"):
        ext.register(plugin(**{hook: items}))
    assert "test" not in ext.registry().records


def test_classes_instead_of_objects_are_refused() -> None:
    with pytest.raises(hlojit.PluginError, match="hlojit_passes"):
        ext.register(plugin(passes=[BrokenPass]))


def test_a_name_claimed_twice_names_both_plugins() -> None:
    ext.register(plugin(custom_calls=[scaling(2)]), name="first", package="first-package", version="1.0")
    with pytest.raises(
        hlojit.PluginError, match=r"'second'.*'first' \(package first-package 1\.0\).*custom call target 'test\.scale'"
    ):
        ext.register(plugin(custom_calls=[scaling(3)]), name="second")
    assert hlojit.compile(CALL.format(target="test.scale"))(X)[0] == -4


@dataclass(frozen=True)
class BrokenPass(ext.Pass):
    """Fails."""

    name: ClassVar[str] = "broken"
    phase: ClassVar[str] = "simplify"

    def run(self, module: Any) -> bool:
        raise ZeroDivisionError("inside")


@dataclass(frozen=True)
class InvalidPass(ext.Pass):
    """Leaves an invalid module."""

    name: ClassVar[str] = "invalid"
    phase: ClassVar[str] = "before-fusion"

    def run(self, module: Any) -> bool:
        for instruction in list(module.walk()):
            if instruction.op.name == "stablehlo.add":
                instruction.op = find_op("stablehlo.transpose")
        return True


class OtherCpu(ext.Backend):
    """Claims the name of a built-in back end."""

    name = "cpu"

    def capability(self, instruction: Any) -> Any:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        return lambda *arrays: evaluate(module, *arrays)


@pytest.mark.parametrize(("hooks", "name"), [
    ({"backends": [OtherCpu()]}, "cpu"),
    ({"ops": [OpDefinition("stablehlo.add")]}, "stablehlo.add"),
])  # fmt: skip
def test_clash_with_what_is_built_in_is_refused(hooks: dict[str, Any], name: str) -> None:
    with pytest.raises(hlojit.PluginError, match=name):
        ext.register(plugin(**hooks))
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.add %x, %x : tensor<2xf32> return %0 : tensor<2xf32> }"
    assert hlojit.compile(text)(np.ones(2, "f4"))[0] == 2


def test_two_of_a_name_in_one_plugin_are_refused() -> None:
    with pytest.raises(hlojit.PluginError, match=r"test\.scale"):
        ext.register(plugin(custom_calls=[scaling(2), scaling(3)]))


def test_registering_again_replaces_and_nothing_stale_runs() -> None:
    @hlojit.jit
    def f(x: Any) -> Any:
        return x + 1

    for factor in (2.0, 3.0, 5.0):
        ext.register(plugin(custom_calls=[scaling(factor)]))
        np.testing.assert_array_equal(hlojit.compile(CALL.format(target="test.scale"))(X), X * np.float32(factor))
        np.testing.assert_array_equal(f(X), X + 1)


def test_a_failed_replacement_leaves_the_old_plugin() -> None:
    ext.register(plugin(custom_calls=[scaling(2)]))
    with pytest.raises(hlojit.PluginError):
        ext.register(plugin(custom_calls=[42]))
    assert hlojit.compile(CALL.format(target="test.scale"))(X)[0] == -4


def test_using_ends_with_its_block() -> None:
    ext.registry().load()
    before = tables().identity
    with ext.using(plugin(custom_calls=[scaling(2)])):
        executable = hlojit.compile(CALL.format(target="test.scale"))
        with pytest.raises(KeyError), ext.using(plugin(custom_calls=[scaling(7)])):
            assert hlojit.compile(CALL.format(target="test.scale"))(X)[0] == -14
            raise KeyError
        assert hlojit.compile(CALL.format(target="test.scale"))(X)[0] == -4, "the outer plugin is back"
    assert executable(X)[0] == -4, "what is compiled stays usable"
    with pytest.raises(hlojit.HlojitError, match="test.scale"):
        hlojit.compile(CALL.format(target="test.scale"))
    assert tables().identity == before


class Negating(ext.Backend):
    """Returns the negative of everything."""

    name = "negating"

    def capability(self, instruction: Any) -> Any:
        return ext.no("no sines") if instruction.op.name == "stablehlo.sine" else ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        return lambda *arrays: [-each for each in evaluate(module, *arrays)]


def test_plugins_of_one_jitted_function() -> None:
    traced: list[int] = []

    @hlojit.jit(plugins=[plugin(backends=[Negating()])], backend="negating")
    def f(x: Any) -> Any:
        traced.append(1)
        return x + 1

    @hlojit.jit
    def g(x: Any) -> Any:
        traced.append(2)
        return x * 2

    for _ in range(3):
        np.testing.assert_array_equal(f(X), -(X + 1))
        np.testing.assert_array_equal(g(X), X * 2)
    assert traced == [1, 2], "compiled once, and other functions stay compiled"
    assert "negating" not in ext.registry().backends


def test_backend_declines_with_op_backend_reason_and_place() -> None:
    with ext.using(plugin(backends=[Negating()])):
        with pytest.raises(hlojit.UnsupportedError, match=r"(?s)stablehlo\.sine.*'negating'.*no sines.*<string>:2"):
            hlojit.compile(
                "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n%0 = stablehlo.sine %x : tensor<2xf32>\nreturn %0 : tensor<2xf32>\n}",
                backend="negating",
            )
        with pytest.raises(hlojit.HlojitError, match="did you mean 'negating'"):
            hlojit.compile(CALL.format(target="x"), backend="negatin")


class Lying(Negating):
    """Returns what it did not promise."""

    name = "lying"

    def __init__(self, results: Any):
        self.results = results

    def compile(self, module: Any, options: Any) -> Any:
        return lambda *arrays: self.results(*arrays)


@pytest.mark.parametrize("results", [
    lambda x: [], lambda x: [x, x], lambda x: [x[:1]], lambda x: [x.astype("f8")], lambda x: [None], lambda x: 5, lambda x: ["text"], lambda x: None,
])  # fmt: skip
def test_results_that_a_backend_did_not_promise_are_errors(results: Any) -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.abs %x : tensor<2xf32> return %0 : tensor<2xf32> }"
    with (
        ext.using(plugin(backends=[Lying(results)])),
        pytest.raises(hlojit.HlojitError, match=r"result|return|promise"),
    ):
        hlojit.compile(text, backend="lying")(np.ones(2, "f4"))


# ---------------------------------------------------------------------------------------------------------------- passes

ADD = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.add %x, %x : tensor<2xf32> return %0 : tensor<2xf32> }"


@pytest.mark.parametrize("pass_", [BrokenPass(), InvalidPass()], ids=lambda pass_: pass_.name)
def test_a_pass_that_fails_or_breaks_the_module_is_named(pass_: ext.Pass) -> None:
    ext.register(plugin(passes=[pass_]), name="vendor", package="vendor-package", version="3.1")
    with pytest.raises(hlojit.PluginError, match="vendor-package") as caught:
        hlojit.compile(ADD)
    assert pass_.name in str(caught.value)
    ext.unregister("vendor")
    assert hlojit.compile(ADD)(np.ones(2, "f4"))[0] == 2


def test_a_pass_for_another_target_does_not_run() -> None:
    @dataclass(frozen=True)
    class ElsewherePass(BrokenPass):
        name: ClassVar[str] = "elsewhere"
        targets: ClassVar[Any] = frozenset({"reference"})

    with ext.using(plugin(passes=[ElsewherePass()])):
        assert hlojit.compile(ADD)(np.ones(2, "f4"))[0] == 2


class Sealed(Negating):
    """A vendor's object that nobody else writes to."""

    name = "sealed"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is set by somebody else")


@dataclass(frozen=True, slots=True)
class SealedPass(ext.Pass):
    """Has no place for anybody's notes."""

    name: ClassVar[str] = "sealed-pass"

    def run(self, module: Any) -> bool:
        raise ZeroDivisionError("inside")


def test_what_vendors_bring_is_not_written_to() -> None:
    backend, pass_ = Sealed(), BrokenPass()
    refused = plugin(backends=[backend], passes=[pass_], custom_calls=[scaling(2)])
    refused.hlojit_api = (1, 1)
    with ext.using(plugin(custom_calls=[scaling(3)])):
        ext.registry().scope(refused)  # in another scope it is fine
    ext.register(plugin(custom_calls=[scaling(3)]), name="owner")
    with pytest.raises(hlojit.PluginError, match=r"both register the custom call target"):
        ext.register(refused, name="refused", package="refused-package")
    assert vars(backend) == {} and vars(pass_) == {}
    assert "sealed" not in ext.registry().backends


def test_a_pass_without_room_for_notes_is_named_with_its_package() -> None:
    ext.register(plugin(passes=[SealedPass()]), name="vendor", package="vendor-package")
    with pytest.raises(hlojit.PluginError, match=r"'sealed-pass' \(vendor-package\): run raised"):
        hlojit.compile(ADD)


def test_a_back_end_under_two_versions_of_the_hooks() -> None:
    backend = Sealed()
    asked: list[tuple[int, int]] = []
    for api in ((1, 0), (1, 1)):
        written = plugin(backends=[backend])
        written.hlojit_api = api
        with ext.using(written):
            asked.append(api_of(ext.registry().backend("sealed")))
    assert asked == [(1, 0), (1, 1)]
    assert api_of(backend) == (1, 0), "in no table: the version that nobody stated"


# ---------------------------------------------------------------------------------------------------------- identity, API


@pytest.mark.parametrize(
    ("api", "good"),
    [((1, 0), True), ((1, 1), True), ((1, 2), True), ((2, 0), False), ((0, 9), False), ((1, 99), False)],
)
def test_versions_of_the_hooks(api: tuple[int, int], good: bool) -> None:
    written = plugin(passes=[])
    written.hlojit_api = api
    if good:
        ext.register(written)
    else:
        with pytest.raises(hlojit.PluginError, match=r"version .* of the hooks, this hlojit has 1\.2"):
            ext.register(written)


@pytest.mark.parametrize("api", ["1.0", 1, None, (1,), ("a", "b")])
def test_a_malformed_version_is_a_plugin_error(api: Any) -> None:
    written = plugin(passes=[])
    written.hlojit_api = api
    with pytest.raises(hlojit.PluginError, match="hlojit_api"):
        ext.register(written)


GOOD = """
import hlojit.extensions as ext

@ext.hookimpl
def hlojit_custom_calls():
    return [ext.ElementwiseCall("good.twice", function=lambda x: x * 2)]
"""
LOOK = """
import hlojit.extensions as ext
for name, record in sorted(ext.registry().load().records.items()):
    print(name, record.package, record.version, "BAD " + record.error.splitlines()[-1] if record.error else "ok", record.identity)
"""


def test_broken_packages_are_contained(tmp_path: Path) -> None:
    install(tmp_path, "good", GOOD)
    install(tmp_path, "broken_import", "import nothing_like_this")
    install(tmp_path, "broken_syntax", "def f(:")
    install(tmp_path, "broken_hook", GOOD.replace("hlojit_custom_calls", "hlojit_custom_call"))
    install(tmp_path, "broken_missing", GOOD, entry="broken_missing:nothing")
    install(tmp_path, "broken_exit", "raise SystemExit(3)")
    lines = {line.split()[0]: line for line in run(LOOK, tmp_path).splitlines()}
    assert "ok" in lines["good"] and "1.5" in lines["good"] and "ok" in lines["cpu"]
    for name, message in (
        ("import", "No module named"),
        ("syntax", "SyntaxError"),
        ("hook", "did you mean"),
        ("missing", "nothing"),
        ("exit", "SystemExit"),
    ):
        assert "BAD" in lines[f"broken_{name}"] and message in lines[f"broken_{name}"]


def test_plugins_are_disabled_by_the_environment(tmp_path: Path) -> None:
    install(tmp_path, "good", GOOD)
    assert "disabled" in run(LOOK, tmp_path, HLOJIT_DISABLE_PLUGINS="good").split("good good")[1].splitlines()[0]
    everything = run(LOOK, tmp_path, HLOJIT_DISABLE_PLUGINS="all")
    assert "BAD" in everything.split("good good")[1].splitlines()[0]
    assert any(line.startswith("cpu ") and " ok" in line for line in everything.splitlines())


def test_identity_follows_the_source(tmp_path: Path) -> None:
    identities = []
    for factor in (2, 3, 3):
        folder = tmp_path / str(len(identities))
        folder.mkdir()
        install(folder, "good", GOOD.replace("x * 2", f"x * {factor}"))
        identities.append(next(line.split()[-1] for line in run(LOOK, folder).splitlines() if line.startswith("good")))
    assert identities[0] != identities[1] == identities[2]


def test_built_in_back_ends_come_through_the_same_hooks() -> None:
    from hlojit.cpu import plugin as cpu
    from hlojit.reference import plugin as reference

    for module, name in ((cpu, "cpu"), (reference, "reference")):
        (backend,) = module.hlojit_backends()
        assert isinstance(backend, ext.Backend) and backend.name == name
    assert {"cpu", "reference"} <= set(ext.registry().load().records)
