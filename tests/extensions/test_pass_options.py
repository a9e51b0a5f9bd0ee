"""Options of plugins' passes: set by the caller, checked by what the pass declares, part of what is kept."""

from __future__ import annotations

import enum
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.command import main
from hlojit.ir import Builder

from .processes import install, run

TEXT = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
X = np.arange(4, dtype="f4")


class Order(enum.Enum):
    ROWS = "rows"
    COLUMNS = "columns"


SEEN: list[Any] = []


@dataclass(frozen=True)
class Tile(ext.Pass):
    """Tiles for the matrix unit.

    Adds ``shift`` to every negated tensor, so that one sees what it was given.
    """

    name: ClassVar[str] = "nova-tile"
    phase: ClassVar[str] = "before-fusion"
    size: int = 16
    shift: float = 0.0
    exact: bool = True
    mode: Literal["fast", "safe"] = "safe"
    order: Order = Order.ROWS
    tiles: tuple[int, ...] = ()
    most: int | None = None
    label: str = ""

    def run(self, module: Any) -> bool:
        SEEN.append(self)
        if not self.shift:
            return False
        for negate in [each for each in module.walk() if each.name == "stablehlo.negate"]:
            builder = Builder.in_front_of(negate)
            shift = builder.constant(self.shift, negate.result.tensor_type)
            negate.replace_with([builder.subtract(shift, negate.operands[0])])
        return True


def plugin(*passes: ext.Pass, **more: Any) -> Any:
    return SimpleNamespace(__name__="Nova", hlojit_passes=ext.hookimpl(lambda: list(passes)), **more)


@pytest.fixture(autouse=True)
def _nova() -> Iterator[None]:
    SEEN.clear()
    ext.register(plugin(Tile(size=8)), package="hlojit-nova", version="0.1.0")
    yield
    ext.unregister("Nova")


@pytest.mark.parametrize(("options", "changed"), [
    ({}, {}),
    ({"size": 32}, {"size": 32}),
    ({"size": np.int64(32)}, {"size": 32}),
    ({"shift": 2}, {"shift": 2.0}),
    ({"exact": False, "mode": "fast"}, {"exact": False, "mode": "fast"}),
    ({"order": "columns"}, {"order": Order.COLUMNS}),
    ({"order": Order.COLUMNS}, {"order": Order.COLUMNS}),
    ({"tiles": [16, 4]}, {"tiles": (16, 4)}),
    ({"most": 3, "label": "x"}, {"most": 3, "label": "x"}),
    ({"most": None}, {}),
])  # fmt: skip
def test_options_reach_the_pass(options: dict[str, Any], changed: dict[str, Any]) -> None:
    hlojit.compile(TEXT, backend="reference", pass_options={"nova-tile": options})(X)
    assert [Tile(**{"size": 8, **changed})] == SEEN
    assert SEEN[0].phase == "before-fusion"


@pytest.mark.parametrize(("options", "message"), [
    ({"nova-tyle": {}}, r"pass_options: unknown pass 'nova-tyle'; known: .*; did you mean 'nova-tile'\?"),
    ({"nova-tile": {"sise": 3}}, r"pass 'nova-tile' \(hlojit-nova 0\.1\.0\) has no option 'sise'; it has size, .*; did you mean 'size'\?"),
    ({"nova-tile": {"size": "32"}}, r"pass 'nova-tile' \(hlojit-nova 0\.1\.0\): option 'size' is an int, not '32'"),
    ({"nova-tile": {"size": True}}, r"option 'size' is an int, not True"),
    ({"nova-tile": {"size": 1.5}}, r"option 'size' is an int, not 1\.5"),
    ({"nova-tile": {"shift": "1"}}, r"option 'shift' is a float, not '1'"),
    ({"nova-tile": {"exact": 1}}, r"option 'exact' is a bool, not 1"),
    ({"nova-tile": {"mode": "slow"}}, r"option 'mode' is one of 'fast', 'safe', not 'slow'"),
    ({"nova-tile": {"order": "diagonal"}}, r"option 'order' is one of ROWS, COLUMNS, not 'diagonal'"),
    ({"nova-tile": {"tiles": 16}}, r"option 'tiles' is of type tuple\[int, ...\], not 16"),
    ({"nova-tile": {"most": "3"}}, r"option 'most' is an int or None, not '3'"),
    ({"nova-tile": 32}, r"pass_options holds a mapping of options for each pass, such as .*'acme-tile'"),
    ("nova-tile", r"pass_options holds a mapping of options for each pass"),
    ({3: {}}, r"pass_options holds a mapping"),
])  # fmt: skip
def test_what_a_pass_does_not_take_is_refused(options: Any, message: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=message):
        hlojit.compile(TEXT, backend="reference", pass_options=options)
    assert SEEN == []


def test_options_change_the_program_and_are_part_of_its_key() -> None:
    for shift in (0.0, 1.0, 2.0, 1.0):
        executable = hlojit.compile(TEXT, pass_options={"nova-tile": {"shift": shift}})
        np.testing.assert_array_equal(executable(X), shift - X)


def test_options_of_a_jitted_function_and_among_the_others() -> None:
    f = hlojit.jit(options={"pass_options": {"nova-tile": {"shift": 3.0}}})(lambda x: -x)
    np.testing.assert_array_equal(f(X), 3 - X)
    options = hlojit.CompileOptions(pass_options={"nova-tile": {"shift": 3.0, "size": 4}})
    assert hash(options) == hash(hlojit.CompileOptions(pass_options={}))
    executable = hlojit.compile(TEXT, options=options, pass_options={"nova-tile": {"shift": 4.0}})
    np.testing.assert_array_equal(executable(X), 4 - X)
    assert SEEN[-1].size == 4, "what the call says is on top of what the options say"


def test_options_are_kept_on_disk_apart(tmp_path: Path) -> None:
    install(tmp_path, "nova", f"from tests_tile import Tile\nimport hlojit.extensions as ext\n{HOOK}")
    source = Path(__file__).read_text(encoding="utf-8")
    begin, end = source.index("class Order"), source.index("def plugin(")
    head = "import enum\nfrom dataclasses import dataclass\nfrom typing import *\nimport hlojit.extensions as ext\nfrom hlojit.ir import Builder\n"
    (tmp_path / "tests_tile.py").write_text(head + source[begin:end])
    script = f"""
import hlojit, numpy as np
x = np.arange(4, dtype="f4")
for shift in (1.0, 2.0):
    print(hlojit.compile({TEXT!r}, pass_options={{"nova-tile": {{"shift": shift}}}})(x)[0])
"""
    for _ in range(2):
        assert run(script, tmp_path, HLOJIT_CACHE=str(tmp_path / "cache")).split() == ["1.0", "2.0"]


HOOK = """
@ext.hookimpl
def hlojit_passes():
    return [Tile()]
"""


# ---------------------------------------------------------------------------------------------------------- command line


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.mlir"
    path.write_text(TEXT)
    return str(path)


def test_options_on_the_command_line(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "nova-tile{size=32 shift=1.5 exact=false mode=fast order=columns tiles=16x4 most=none}"
    assert main(["opt", program, "-p", text]) == 0
    assert "stablehlo.subtract" in capsys.readouterr().out
    assert [Tile(32, 1.5, False, "fast", Order.COLUMNS, (16, 4), None)] == SEEN
    assert str(SEEN[0]) == "nova-tile{size=32 shift=1.5 exact=false mode=fast order=COLUMNS tiles=16x4}"
    assert main(["opt", program, "-p", str(SEEN[0])]) == 0
    assert SEEN[0] == SEEN[1]


@pytest.mark.parametrize(("text", "message"), [
    ("nova-tile{size=x}", "option 'size' of pass 'nova-tile': 'x' is not an int"),
    ("nova-tile{mode=slow}", "option 'mode' of pass 'nova-tile': 'slow' is not one of 'fast', 'safe'"),
    ("nova-tile{siz=3}", "pass 'nova-tile' has no option 'siz'; it has size, shift"),
    ("nova-tyle", "unknown pass 'nova-tyle'"),
])  # fmt: skip
def test_wrong_options_on_the_command_line(
    text: str, message: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", program, "-p", text]) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert len(printed.splitlines()) == 1


@dataclass(frozen=True)
class Silu(ext.Pass):
    """For Nova alone."""

    name: ClassVar[str] = "nova-silu"
    targets: ClassVar[tuple[str, ...]] = ("reference",)

    def run(self, module: Any) -> bool:
        SEEN.append(self)
        return False


def test_a_pass_for_another_back_end_is_known_and_said_to_be(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ext.using(plugin(Silu())):
        assert main(["opt", program, "-p", "nova-silu"]) == 0
        assert (
            "note: the pass 'nova-silu' (plugin 'Nova') is for the back end 'reference', and in no pipeline of 'cpu'"
            in capsys.readouterr().err
        )
        assert [Silu()] == SEEN
        assert main(["opt", program, "-p", "nova-silu", "--backend", "reference"]) == 0
        assert capsys.readouterr().err == ""
        assert main(["opt", "--list"]) == 0
        assert "For Nova alone. (for the back end 'reference')" in capsys.readouterr().out
        hlojit.compile(TEXT, options={"disable_passes": ("nova-silu",)}, pass_options={"nova-silu": {}})
        assert [Silu(), Silu()] == SEEN, "left out of the CPU's pipeline anyway, and no mistake"


# ------------------------------------------------------------------------------------------------------- places, warnings


def warned(*passes: ext.Pass) -> list[str]:
    with warnings.catch_warnings(record=True) as caught, ext.using(plugin(*passes)):
        warnings.simplefilter("always")
        for _ in range(2):
            hlojit.compile(TEXT, backend="reference")
    assert all(each.category is hlojit.PluginWarning and each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


def placed(name: str, **places: Any) -> ext.Pass:
    kind = type("Placed", (Silu,), {"name": name, "targets": (), **places})
    made: ext.Pass = kind()
    return made


def test_places_that_name_nothing_are_said_once_with_near_names() -> None:
    (target,) = warned(placed("a", targets=("referense",)))
    assert target == (
        "pass 'a' (plugin 'Nova'): targets names the back end 'referense', which nobody registers; did you mean 'reference'?"
    )
    (before,) = warned(placed("b", before=("algebraic-simplifyer",)))
    assert (
        "before names the pass 'algebraic-simplifyer', which nobody registers; did you mean 'algebraic-simplifier"
        in before
    )
    (after,) = warned(placed("c", after=("xyz",)))
    assert after == "pass 'c' (plugin 'Nova'): after names the pass 'xyz', which nobody registers"
    (phase,) = warned(placed("d", phase="after-fusion", before=("tuple-legalizer",)))
    assert (
        "before names the pass 'tuple-legalizer', which runs in the phase 'import'; 'd' runs in 'after-fusion'" in phase
    )


def test_places_that_name_something_are_not_warned_of() -> None:
    assert warned(
        placed("e", targets=("cpu",), before=("dead-code-elimination", "f"), after=("algebraic-simplifier",)),
        placed("f", phase="before-fusion", before=("instruction-fusion", "legalization"), targets=("cuda", "reference")),
    ) == []  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ time limit


@dataclass(frozen=True)
class Endless(ext.Pass):
    """Never ends, and swallows whatever it can."""

    name: ClassVar[str] = "endless"

    def run(self, module: Any) -> bool:
        while True:
            try:
                time.sleep(0.001)
            except Exception:
                continue


@dataclass(frozen=True)
class Swallowing(Endless):
    """Takes everything that is raised, once."""

    def run(self, module: Any) -> bool:
        try:
            super().run(module)
        except BaseException:
            super().run(module)
        return True


@pytest.mark.parametrize("kind", [Endless, Swallowing])
def test_a_pass_that_does_not_end_is_named(kind: type[ext.Pass]) -> None:
    options = {"pass_time_limit": 0.05}
    with (
        ext.using(plugin(kind())),
        pytest.raises(
            hlojit.PluginError,
            match=r"pass 'endless' \(plugin 'Nova'\): run had not ended after 0\.05 s.*pass_time_limit",
        ),
    ):
        hlojit.compile(TEXT, backend="reference", options=options)
    hlojit.compile(TEXT, backend="reference", options={"pass_time_limit": 60})
    time.sleep(0.06)


@pytest.mark.parametrize("limit", [0, -1, "1", True, float("nan")])
def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(hlojit.HlojitError, match="pass_time_limit"):
        hlojit.compile(TEXT, options={"pass_time_limit": limit})


def test_an_interrupted_pass_is_named(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Interrupted(ext.Pass):
        name: ClassVar[str] = "interrupted"

        def run(self, module: Any) -> bool:
            raise KeyboardInterrupt

    with ext.using(plugin(Interrupted())), pytest.raises(KeyboardInterrupt) as caught:
        hlojit.compile(TEXT, backend="reference")
    assert caught.value.__notes__ == ["interrupted in pass 'interrupted' (plugin 'Nova'): run"]


# ------------------------------------------------------------------------------------------------------- what passes change


@dataclass(frozen=True)
class Says(Tile):
    """Says what it is told of whether it changed anything."""

    says: Any = None

    def run(self, module: Any) -> Any:
        super().run(module)
        return self.says


def events(pass_: ext.Pass) -> list[tuple[str, bool]]:
    from hlojit.compiler import lower

    seen: list[tuple[str, bool]] = []
    with ext.using(plugin(pass_)):
        backend = ext.registry().backend("reference")
        lower(
            hlojit.parse(TEXT),
            backend,
            hlojit.CompileOptions(),
            callback=lambda e: seen.append((e.pass_.name, e.changed)),
        )
    return seen


@pytest.mark.parametrize("says", [None, False, 0, True, 1, np.False_])
def test_changes_are_found_whatever_a_pass_says_of_them(says: Any) -> None:
    assert ("nova-tile", bool(says)) in events(Says(says=says))
    assert ("nova-tile", True) in events(Says(shift=1.0, says=says))


def test_a_pass_that_finds_nothing_has_nothing_verified_nor_legalized_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import hlojit.ir.verifier

    verified: list[Any] = []
    verify = hlojit.ir.verifier.verify
    monkeypatch.setattr(hlojit.ir.verifier, "verify", lambda *a, **b: (verified.append(1), verify(*a, **b))[1])

    @dataclass(frozen=True)
    class Early(Says):
        phase: ClassVar[str] = "simplify"

    assert [changed for name, changed in events(Early()) if name == "legalization"] == [False, False]
    assert verified == []
    assert len([name for name, _ in events(Early(shift=1.0))]) == len(events(Early()))
    assert len(verified) == 1


def test_a_pass_that_returns_a_module_is_told_what_to_return() -> None:
    with pytest.raises(
        hlojit.PluginError, match=r"pass 'nova-tile' \(plugin 'Nova'\): run returned 'module'; it rewrites"
    ):
        events(Says(says="module"))


def test_a_change_that_is_kept_quiet_is_verified() -> None:
    @dataclass(frozen=True)
    class Quiet(Says):
        def run(self, module: Any) -> Any:
            module.main.result_types[0] = hlojit.ir.tensor((5,), "f32")

    with pytest.raises(hlojit.PluginError, match=r"pass 'nova-tile' \(plugin 'Nova'\) left an invalid program"):
        events(Quiet())
