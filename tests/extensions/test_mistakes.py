"""Mistakes that vendors make: each ends in one error that says what is wrong, whose it is, why, and what to do.

Of registration, passes and back ends; ``test_mistakes_of_functions.py`` has those of ops, calls and formats.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import numpy as np
import pluggy
import pytest
from hlojit.ir import Builder, evaluate

from .mistakes import ABS, X, clean, nova, one_line, registering

left_as_found = pytest.fixture(autouse=True)(clean)

# ---------------------------------------------------------------------------------------------------------- registration


class Undecorated:
    """Has no marks."""

    def hlojit_passes(self) -> Any:
        return []


class Marked:
    """Its hooks are methods."""

    @ext.hookimpl
    def hlojit_passes(self) -> Any:
        return []


class MarkedByPytest:
    """Marked for somebody else's hooks."""

    @pluggy.HookimplMarker("pytest")
    def hlojit_passes(self) -> Any:
        return []


class Wrapper:
    """Wraps hooks of other plugins, as pytest's do."""

    @ext.hookimpl(wrapper=True)
    def hlojit_passes(self) -> Any:
        return (yield)


class Asynchronous:
    """A coroutine."""

    @ext.hookimpl
    async def hlojit_passes(self) -> Any:
        return []


def hook(**hooks: Any) -> Any:
    """A plugin whose hooks are these functions."""
    return SimpleNamespace(__name__="nova", **{f"hlojit_{kind}": ext.hookimpl(made) for kind, made in hooks.items()})


@dataclass(frozen=True)
class Idle(ext.Pass):
    """Does nothing."""

    name: ClassVar[str] = "nova-idle"

    def run(self, module: Any) -> bool:
        return False


class Abstract(ext.Pass):
    """Lacks what every pass has."""

    name: ClassVar[str] = "nova-abstract"


def failing_generator() -> Any:
    yield Idle()
    raise OSError("no such file")


FORMAT = ext.FloatFormat("nova6", exponent_bits=3, mantissa_bits=2, bias=3)

REGISTRATIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "misspelt hook": (lambda: hook(pases=lambda: []), "there is no hook 'hlojit_pases'; did you mean 'hlojit_passes'?"),
    "unknown hook": (lambda: hook(zzz=lambda: []), r"there is no hook 'hlojit_zzz'; hooks are hlojit_formats, .*hlojit_passes"),
    "hook that is not marked": (Undecorated, "has no hooks; hlojit_passes lacks the decorator @hookimpl"),
    "one of two hooks is not marked": (
        lambda: SimpleNamespace(__name__="nova", hlojit_ops=ext.hookimpl(lambda: []), hlojit_passes=lambda: []),
        "hlojit_passes lacks the decorator @hookimpl",
    ),
    "hook marked for other software": (MarkedByPytest, "has no hooks; hlojit_passes lacks the decorator @hookimpl"),
    "module without hooks": (lambda: ModuleType("nova"), "has no hooks: none of its functions is marked @hookimpl"),
    "class in the place of an object": (lambda: Marked, "is a class, and its hooks are methods; give an instance: .*Marked"),
    "name of a module": (lambda: "hlojit_nova.plugin", r"is a str, not a module or object with hooks; .*import hlojit_nova\.plugin"),
    "None": (lambda: None, "is None, not a module or object with hooks"),
    "list of plugins": (lambda: [Marked()], r"is a list, not a module or object with hooks; register each of them"),
    "list in the place of a hook": (
        lambda: SimpleNamespace(__name__="nova", hlojit_passes=[Idle()]),
        r"hlojit_passes is a list; write a function marked @hookimpl that returns it",
    ),
    "hook with an argument": (lambda: hook(passes=lambda target: []), "hook hlojit_passes takes target; hooks take no arguments"),
    "hook that wraps": (Wrapper, "hook hlojit_passes is a wrapper; hooks are plain functions that return a list"),
    "coroutine": (Asynchronous, "hook hlojit_passes is a coroutine; hooks are plain functions that return a list"),
    "hook that raises": (lambda: hook(passes=lambda: [1 // 0]), r"hook hlojit_passes raised ZeroDivisionError\("),
    "generator that raises": (lambda: hook(passes=failing_generator), r"hook hlojit_passes raised OSError\('no such file'\)"),
    "hook without a return": (lambda: hook(passes=lambda: None), "hook hlojit_passes returned None, expected a list"),
    "one object, not a list": (lambda: hook(passes=lambda: Idle()), r"hook hlojit_passes returned one Idle; return a list of them: \[Idle"),
    "number": (lambda: hook(passes=lambda: 42), "hook hlojit_passes returned 42, expected a list"),
    "mapping": (lambda: hook(passes=lambda: {"a": Idle()}), "hook hlojit_passes returned a dict; return a list of Pass objects"),
    "class in the place of a pass": (lambda: hook(passes=lambda: [Idle]), r"<class .*Idle'>, expected Pass objects; .*Idle\(\)"),
    "abstract pass": (lambda: hook(passes=lambda: [Abstract()]), "hook hlojit_passes raised TypeError.*abstract"),
    "format from the hook of passes": (
        lambda: hook(passes=lambda: [FORMAT]),
        r"returned FloatFormat\(.*, expected Pass objects; return it from hlojit_formats",
    ),
    "function in the place of a pass": (lambda: hook(passes=lambda: [lambda module: True]), "expected Pass objects"),
    "text as the version": (lambda: with_api("1.1"), r"hlojit_api is '1\.1', not a pair of numbers such as \(1, 2\)"),
    "number as the version": (lambda: with_api(1.1), r"hlojit_api is 1\.1, not a pair of numbers"),
    "older first version": (lambda: with_api((0, 9)), r"written for version 0\.9 of the hooks, this hlojit has 1\.2; install"),
    "newer first version": (lambda: with_api((2, 0)), r"written for version 2\.0 of the hooks, this hlojit has 1\.2; install"),
    "newer second version": (lambda: with_api((1, 99)), r"written for version 1\.99 of the hooks, this hlojit has 1\.2"),
    "the same pass twice": (lambda: hook(passes=lambda: [Idle(), Idle()]), "registers the pass 'nova-idle' twice"),
}  # fmt: skip


def with_api(api: Any) -> Any:
    return SimpleNamespace(__name__="nova", hlojit_api=api, hlojit_passes=ext.hookimpl(lambda: []))


@pytest.mark.parametrize("mistake", REGISTRATIONS)
def test_registration(mistake: str) -> None:
    make, message = REGISTRATIONS[mistake]
    made = make()
    error = registering(made, message)
    assert one_line(error).startswith("plugin 'nova' (package hlojit-nova 0.1.0)")


def test_registering_under_a_name_that_is_none() -> None:
    for name in (42, b"x"):
        with pytest.raises(hlojit.PluginError, match="a plugin's name is a string, not "):
            ext.register(hook(passes=lambda: []), name=name)


# -------------------------------------------------------------------------------------------- names that are taken or no names


def named(kind: type, name: Any) -> Any:
    return type(kind.__name__, (kind,), {"name": name})()


class Device(ext.Backend):
    """Evaluates programs."""

    name = "nova"

    def capability(self, instruction: Any) -> Any:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        return lambda *arrays: evaluate(module, *arrays)


def op(name: str, **fields: Any) -> Any:
    from hlojit.ir.ops.definition import OpDefinition

    return OpDefinition(name, **fields)


def call(target: Any) -> Any:
    return ext.ElementwiseCall(target, function=lambda x: x)


NAMES: dict[str, tuple[dict[str, Callable[[], Any]], str]] = {
    "op": ({"ops": lambda: op("stablehlo.add")}, "registers the op 'stablehlo.add', which is built in"),
    "pass": ({"passes": lambda: named(Idle, "dead-code-elimination")}, "registers the pass 'dead-code-elimination', which is built in"),
    "short name of a pass": ({"passes": lambda: named(Idle, "cse")}, "registers the pass 'cse', which is built in"),
    "pass of the driver": ({"passes": lambda: named(Idle, "legalization")}, "registers the pass 'legalization', which is built in"),
    "back end": ({"backends": lambda: named(Device, "cpu")}, "registers the back end 'cpu', which is built in .*; give it another name"),
    "reference": ({"backends": lambda: named(Device, "reference")}, "registers the back end 'reference', which is built in"),
    "pass without a name": ({"passes": lambda: named(Idle, None)}, "a Idle without a name; set name to a string"),
    "back end without a name": ({"backends": lambda: named(Device, "")}, "a Device whose name is ''; set name to a string"),
    "name that is a number": ({"passes": lambda: named(Idle, 5)}, "a Idle whose name is 5; set name to a string"),
    "target that is a number": ({"custom_calls": lambda: call(7)}, "a ElementwiseCall whose target is 7; set target to a string"),
    "target that is empty": ({"custom_calls": lambda: call("")}, "a ElementwiseCall whose target is ''"),
    "pass with a space": ({"passes": lambda: named(Idle, "nova tile")}, r"the pass 'nova tile' cannot be named in a pipeline"),
    "pass with braces": ({"passes": lambda: named(Idle, "nova{1}")}, r"the pass 'nova\{1\}' cannot be named in a pipeline"),
    "back end with a colon": ({"backends": lambda: named(Device, "nova:0")}, r"the back end 'nova:0' cannot be named: .*\(nova:0 is the name of a device\)"),
    "op without a dialect": ({"ops": lambda: op("silu")}, "the op 'silu' has no dialect: call it 'acme.silu'"),
    "op with a space": ({"ops": lambda: op("nova.my silu")}, "the op 'nova.my silu' cannot be written in a program"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", NAMES)
def test_names(mistake: str) -> None:
    hooks, message = NAMES[mistake]
    error = registering(nova(**{kind: [make()] for kind, make in hooks.items()}), message)
    assert "hlojit-nova 0.1.0" in one_line(error)
    np.testing.assert_array_equal(hlojit.compile(ABS)(X), np.abs(X))


def test_a_name_that_another_plugin_has_names_both_and_says_what_to_do() -> None:
    with ext.using(nova(passes=[Idle()])):
        other = SimpleNamespace(__name__="other", hlojit_passes=ext.hookimpl(lambda: [Idle()]))
        with pytest.raises(
            hlojit.PluginError, match=r"plugin 'other' and plugin 'nova' both register the pass 'nova-idle'"
        ):
            ext.scope(other)


# ----------------------------------------------------------------------------------------------------------------- passes


def pass_of(run: Any = None, **attributes: Any) -> Callable[[], Any]:
    return lambda: type("Made", (Idle,), {**({"run": run} if run else {}), **attributes})()


class Undeclared(Idle):
    """Has a field, and is no dataclass."""

    size: int = 4


def clears(self: Any, module: Any) -> bool:
    module.functions.clear()
    return True


def builds_what_does_not_fit(self: Any, module: Any) -> bool:
    builder = Builder.in_front_of(next(module.walk()))
    builder.add(builder.constant(np.ones(7, "i1")), builder.constant(np.ones(3, "f4")))
    return True


def replaces_by_a_value(self: Any, module: Any) -> bool:
    first = next(module.walk())
    first.replace_with(first.operands[0])
    return True


def compiles(self: Any, module: Any) -> bool:
    hlojit.compile("nonsense")
    return False


def compiles_again(self: Any, module: Any) -> bool:
    hlojit.compile(ABS)
    return False


def erases(self: Any, module: Any) -> bool:
    next(module.walk()).erase()
    return True


def raises(self: Any, module: Any) -> bool:
    raise KeyError("tile")


class Unprintable(Exception):
    def __repr__(self) -> str:
        raise ZeroDivisionError

    __str__ = __repr__


def raises_unprintable(self: Any, module: Any) -> bool:
    raise Unprintable


def retypes(self: Any, module: Any) -> bool:
    next(module.walk()).result.type = hlojit.ir.tensor((7,), "f32")
    return True


REGISTERED_PASSES: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown phase": (pass_of(phase="late"), "the pass 'nova-idle' names the phase 'late'; phases are import, legalize"),
    "targets as a string": (pass_of(targets="cpu"), r"has targets = 'cpu', which is not a sequence of names such as \('cpu',\)"),
    "before as a string": (pass_of(before="cse"), "has before = 'cse', which is not a sequence of names"),
    "after holds a pass": (pass_of(after=(Idle(),)), r"has after = \(Idle\(\),\), which is not a sequence of names"),
    "fields without a dataclass": (Undeclared, r"has the field size, and its class Undeclared is no dataclass; .*@dataclass\(frozen=True\)"),
    "run takes no module": (pass_of(lambda self: True), r"its method run takes no module; write def run\(self, module\)"),
}  # fmt: skip

FAILING_PASSES: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (pass_of(raises), r"pass 'nova-idle' \(hlojit-nova 0\.1\.0\): run raised KeyError\('tile'\)"),
    "raises what cannot be printed": (pass_of(raises_unprintable), r"\(hlojit-nova 0\.1\.0\): run raised <Unprintable"),
    "exits": (pass_of(lambda self, module: sys.exit(3)), r"pass 'nova-idle' \(hlojit-nova 0\.1\.0\): run raised SystemExit\(3\)"),
    "returns the module": (pass_of(lambda self, module: module), r"run returned <Module @.*; it rewrites the module in place"),
    "builds what does not fit": (pass_of(builds_what_does_not_fit), r"pass 'nova-idle' \(hlojit-nova 0\.1\.0\): run raised TypeInferenceError at \S+:\d+: .*add \(C1\)"),
    "replaces by a value": (pass_of(replaces_by_a_value), r"pass 'nova-idle' \(hlojit-nova 0\.1\.0\): run at \S+:\d+: stablehlo\.abs: replace_with was given one value; it takes a list of 1, .*replace_with\(\[value\]\)"),
    "compiles what is wrong": (pass_of(compiles), r"pass 'nova-idle' \(hlojit-nova 0\.1\.0\): run raised ParseError at \S+:\d+: <string>:1:1"),
    "compiles the same": (pass_of(compiles_again), r"pass 'nova-idle' \(hlojit-nova 0\.1\.0\): run raised .*Error"),
    "erases what is used": (pass_of(erases), r"\(hlojit-nova 0\.1\.0\): run raised AssertionError\('stablehlo.abs is still used"),
    "leaves an invalid module": (pass_of(retypes), r"pass 'nova-idle' \(hlojit-nova 0\.1\.0\) left an invalid program behind"),
    "leaves no function": (pass_of(clears), r"pass 'nova-idle' \(hlojit-nova 0\.1\.0\) left an invalid program behind: its function @main is gone"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", REGISTERED_PASSES)
def test_passes_that_are_refused(mistake: str) -> None:
    make, message = REGISTERED_PASSES[mistake]
    one_line(registering(nova(passes=[make()]), message))


@pytest.mark.parametrize("mistake", FAILING_PASSES)
def test_passes_that_fail(mistake: str) -> None:
    make, message = FAILING_PASSES[mistake]
    ext.register(nova(passes=[make()]), package="hlojit-nova", version="0.1.0")
    with pytest.raises(hlojit.PluginError, match=message) as caught:
        hlojit.compile(ABS, backend="reference")
    one_line(caught.value)


def test_a_circle_of_places_names_the_passes_and_their_packages() -> None:
    circle = [pass_of(name="a", before=("b",))(), pass_of(name="b", before=("a",))()]
    ext.register(nova(passes=circle), package="hlojit-nova", version="0.1.0")
    with pytest.raises(
        hlojit.HlojitError, match=r"form a circle: a \(hlojit-nova 0\.1\.0\), b \(hlojit-nova 0\.1\.0\)"
    ):
        hlojit.compile(ABS, backend="reference")


# -------------------------------------------------------------------------------------------------------------- back ends


def device(**members: Any) -> Any:
    return type("Made", (Device,), members)()


def raising(*arguments: Any) -> Any:
    raise KeyError("unit 7")


NOVA = r"the back end 'nova' \(hlojit-nova 0\.1\.0\)"
BACKENDS: dict[str, tuple[dict[str, Any], str]] = {
    "capability raises": ({"capability": raising}, rf"{NOVA}: capability raised KeyError\('unit 7'\) at \S+:\d+ when it was asked about stablehlo\.abs"),
    "capability says True": ({"capability": lambda self, i: True}, rf"{NOVA}: capability returned True when .*; return YES, DECOMPOSE or no\(reason\)"),
    "capability says nothing": ({"capability": lambda self, i: None}, rf"{NOVA}: capability returned None"),
    "capability says Support": ({"capability": lambda self, i: ext.Support.YES}, rf"{NOVA}: capability returned <Support.YES.*return YES"),
    "capability takes nothing": ({"capability": lambda self: ext.YES}, rf"{NOVA}: capability raised TypeError"),
    "no without a reason": ({"capability": lambda self, i: ext.no()}, rf"{NOVA}: capability raised TypeError.*reason"),
    "no for a number": ({"capability": lambda self, i: ext.no(7)}, rf"{NOVA}: capability raised PluginError at \S+:\d+: Capability: the reason of a no is a text, not 7"),  # type: ignore[arg-type]
    "support is a text": ({"capability": lambda self, i: ext.Capability("yes")}, rf"{NOVA}: capability raised PluginError at \S+:\d+: Capability: support is 'yes'; return YES"),  # type: ignore[arg-type]
    "compile builds what does not fit": ({"compile": lambda self, m, o: builds_what_does_not_fit(self, m.clone())}, rf"{NOVA}: compile raised TypeInferenceError at \S+:\d+: add \(C1\)"),
    "no is a function": ({"capability": lambda self, i: ext.no}, rf"{NOVA}: capability returned <function no"),
    "compile raises": ({"compile": raising}, rf"{NOVA}: compile raised TypeError|{NOVA}: compile raised KeyError\('unit 7'\) at \S+:\d+ for @main"),
    "compile exits": ({"compile": lambda self, m, o: sys.exit(1)}, rf"{NOVA}: compile raised SystemExit\(1\) at \S+:\d+ for @main"),
    "compile gives nothing": ({"compile": lambda self, m, o: None}, rf"{NOVA}: compile returned None for @main; expected a function of arrays"),
    "compile gives the module": ({"compile": lambda self, m, o: m}, rf"{NOVA}: compile returned <Module .*; expected a function of arrays"),
    "compile takes no options": ({"compile": lambda self, m: None}, rf"{NOVA}: compile raised TypeError"),
    "compile changes the module": ({"compile": lambda self, m, o: m.main.body.append(m.main.body.first)}, rf"{NOVA}: compile: the module is frozen; work on module\.clone"),
    "unavailable raises": ({"unavailable": raising}, rf"{NOVA}: unavailable raised KeyError\('unit 7'\)"),
    "unavailable says False": ({"unavailable": lambda self: False}, rf"{NOVA}: unavailable returned False; return None where"),
    "run raises": ({"compile": lambda self, m, o: raising}, rf"main: {NOVA} raised KeyError\('unit 7'\)"),
    "run gives nothing": ({"compile": lambda self, m, o: lambda x: None}, rf"main: {NOVA} returned NoneType, not a sequence of results"),
    "run gives too much": ({"compile": lambda self, m, o: lambda x: [x, x]}, rf"main: {NOVA} returned 2 results, not 1"),
    "run gives another shape": ({"compile": lambda self, m, o: lambda x: [x[:2]]}, rf"main: {NOVA} returned for result 0, which is tensor<50xf32>, an array of dtype float32 and shape \(2,\)"),
    "run gives another type": ({"compile": lambda self, m, o: lambda x: [x.astype("f8")]}, rf"{NOVA} returned for result 0, which is tensor<50xf32>, an array of dtype float64"),
    "run takes nothing": ({"compile": lambda self, m, o: lambda: []}, rf"main: {NOVA} raised TypeError"),
    "run writes to its arguments": ({"compile": lambda self, m, o: lambda x: [np.abs(x, out=x)]}, rf"main: {NOVA} raised ValueError.*read-only"),
    "devices raises": ({"devices": raising}, rf"{NOVA}: devices raised KeyError\('unit 7'\)"),
    "devices gives nothing": ({"devices": lambda self: None}, rf"{NOVA}: devices raised TypeError|{NOVA}: devices returned None"),
    "devices gives names": ({"devices": lambda self: ["nova:0"]}, rf"{NOVA}: devices returned \['nova:0'\]; expected at least one Device"),
    "devices gives none": ({"devices": lambda self: []}, rf"{NOVA}: devices returned \[\]; expected at least one Device"),
    "cache identity raises": ({"cache_identity": raising}, rf"{NOVA}: cache_identity raised KeyError\('unit 7'\)"),
    "cache identity is a number": ({"cache_identity": lambda self: 7}, rf"{NOVA}: cache_identity returned 7; return a string"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BACKENDS)
def test_back_ends(mistake: str) -> None:
    members, message = BACKENDS[mistake]
    ext.register(nova(backends=[device(**members)]), package="hlojit-nova", version="0.1.0")
    with pytest.raises(hlojit.HlojitError, match=message) as caught:
        hlojit.compile(ABS, backend="nova")(X)
        hlojit.devices("nova")
    one_line(caught.value)


BACKEND_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "limits are a mapping": ({"fusion_limits": {"rows": True}}, r"the back end 'nova' has fusion_limits = \{'rows': True\}, expected FusionLimits"),
    "fuses is a word": ({"fuses": "yes"}, "the back end 'nova' has fuses = 'yes', expected True or False"),
    "compile is missing": ({"compile": None}, "the back end 'nova' has compile = None, which is not a function"),
    "capability is a table": ({"capability": {"stablehlo.add": ext.YES}}, "the back end 'nova' has capability = .*, which is not a function"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BACKEND_FIELDS)
def test_back_ends_that_are_refused(mistake: str) -> None:
    members, message = BACKEND_FIELDS[mistake]
    one_line(registering(nova(backends=[device(**members)]), message))


def test_an_interrupted_back_end_is_named_in_a_note() -> None:
    def interrupt(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    for members, where in (({"capability": interrupt}, "capability"), ({"compile": interrupt}, "compile")):
        with ext.using(nova(backends=[device(**members)])), pytest.raises(KeyboardInterrupt) as caught:
            hlojit.compile(ABS, backend="nova")
        assert caught.value.__notes__[0].startswith(f"interrupted in the back end 'nova' (plugin 'nova'): {where}")


def test_an_unknown_back_end_has_near_names() -> None:
    with ext.using(nova(backends=[Device()])), pytest.raises(hlojit.HlojitError, match=r"did you mean 'nova'\?"):
        hlojit.compile(ABS, backend="novva")
    for backend in (5, Device()):
        with pytest.raises(hlojit.HlojitError, match="backend is the name of a back end, or a list of names, not"):
            hlojit.compile(ABS, backend=backend)  # type: ignore[arg-type]
