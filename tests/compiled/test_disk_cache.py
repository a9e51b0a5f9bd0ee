"""The cache on disk: what it finds, what it must not find, and what it survives."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit import compiled as files
from hlojit import disk_cache as caches
from hlojit import program_cache
from hlojit.cpu.backend import CpuBackend
from hlojit.disk_cache import DiskCache
from hlojit.ir.errors import HlojitError
from hlojit.ir.passes.fusion_limits import FusionLimits

SCRIPT = Path(__file__).with_name("cached_process.py")
needs_users = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users here")


def layers(count: int, head: str = "tanh") -> str:
    """So many equal layers, and another op at the end."""
    lines = ["func.func @main(%x0: tensor<16x16xf32>, %w: tensor<16x16xf32>) -> tensor<16x16xf32> {"]
    for number in range(count):
        lines += [
            f"  %d{number} = stablehlo.dot %x{number}, %w : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>",
            f"  %x{number + 1} = stablehlo.logistic %d{number} : tensor<16x16xf32>",
        ]
    lines += [f"  %r = stablehlo.{head} %x{count} : tensor<16x16xf32>", "  return %r : tensor<16x16xf32>", "}"]
    return "\n".join(lines)


def run(folder: Path, text: str, **environment: str) -> tuple[float, dict[str, int]]:
    program = folder / "program.mlir"
    program.write_text(text)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(program)],
        env={**os.environ, "HLOJIT_CACHE": str(folder / "cache"), **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    value, _, stages = done.stdout.partition(" ")
    counts: dict[str, int] = eval(stages)
    return float(value), counts


NOTHING = {"parsed": 0, "emitted": 0, "compiled": 0}


def test_a_second_process_neither_parses_nor_compiles(tmp_path: Path) -> None:
    first, counts = run(tmp_path, layers(2))
    assert counts["parsed"] and counts["emitted"] and counts["compiled"]
    assert run(tmp_path, layers(2)) == (first, NOTHING)
    # What counts is the text.
    assert run(tmp_path, layers(2) + "\n")[1]["parsed"]


def test_another_program_finds_the_kernels_of_the_same_layers(tmp_path: Path) -> None:
    kernels = run(tmp_path, layers(2))[1]["emitted"]
    _, counts = run(tmp_path, layers(3))
    assert counts == {"parsed": 1, "emitted": 0, "compiled": 1}  # the host program is new
    _, counts = run(tmp_path, layers(2, head="exponential"))
    assert counts["parsed"] == 1 and 0 < counts["emitted"] < kernels


def test_switched_off(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(tmp_path, layers(1), HLOJIT_CACHE="off")[1]["parsed"]
    assert not (tmp_path / "cache").exists()


def test_the_folder_of_the_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOJIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caches.folder_setting() == tmp_path / "hlojit"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert caches.folder_setting() == Path("/home/somebody/.cache/hlojit")
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path / "own"))
    assert caches.folder_setting() == tmp_path / "own"
    for off in ("off", "OFF", "0"):
        monkeypatch.setenv("HLOJIT_CACHE", off)
        assert caches.folder_setting() is None and caches.disk_cache() is None
    monkeypatch.setenv("HLOJIT_CACHE_SIZE", "3m")
    assert caches.limit_setting() == 3 << 20
    monkeypatch.setenv("HLOJIT_CACHE_SIZE", "much")
    with pytest.raises(HlojitError, match="HLOJIT_CACHE_SIZE='much'"):
        caches.limit_setting()


# --------------------------------------------------------------------------------------------- what keys depend on


X = np.arange(6, dtype="f4")
CALL = """func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  %0 = stablehlo.custom_call @vendor.scaled(%x) : (tensor<6xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}"""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def count(folder: Path, kind: str) -> int:
    return sum(entry.kind == kind for entry in DiskCache(folder).entries())


class Scaled:
    def __init__(self, factor: float):
        self.function = lambda x: x * factor

    @ext.hookimpl
    def hlojit_custom_calls(self) -> Any:
        return [ext.ElementwiseCall("vendor.scaled", function=self.function)]


class Expanded:
    def __init__(self, op: str):
        def expand(builder: Any, instruction: Any) -> Any:
            (x,) = instruction.operands
            return [getattr(builder, op)(x, x)]

        self.expand = expand

    @ext.hookimpl
    def hlojit_custom_calls(self) -> Any:
        return [ext.ExpansionCall("vendor.scaled", expand=self.expand)]


def test_plugins_count_by_content(own_folder: Path) -> None:
    for plugin, expected in (
        (Scaled(2.0), 2 * X), (Scaled(3.0), 3 * X), (Expanded("add"), X + X), (Expanded("multiply"), X * X),
        (Scaled(2.0), 2 * X),
    ):  # fmt: skip
        with ext.using(plugin):
            np.testing.assert_array_equal(hlojit.compile(CALL)(X), expected)
    # The first and the last plugin are one.
    assert count(own_folder, "programs") == 4


def reading(path: Path, identity: Any = None) -> Expanded:
    """A plugin whose expansion multiplies by what a file says."""

    def expand(builder: Any, instruction: Any) -> Any:
        (x,) = instruction.operands
        return [builder.multiply(x, builder.constant(float(path.read_text()), x.tensor_type))]

    if identity is not None:
        expand.hlojit_identity = identity  # type: ignore[attr-defined]
    plugin = Expanded("add")
    plugin.expand = expand
    return plugin


def test_what_reads_a_file_is_compiled_anew_unless_it_states_an_identity(own_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuned"
    for factor in (2, 3):
        path.write_text(str(factor))
        with ext.using(reading(path)):
            np.testing.assert_array_equal(hlojit.compile(CALL)(X), factor * X)
    assert count(own_folder, "programs") == 0
    for factor, kept in ((2, 1), (3, 2), (2, 2)):
        path.write_text(str(factor))
        with ext.using(reading(path, lambda: path.read_text())):
            np.testing.assert_array_equal(hlojit.compile(CALL)(X), factor * X)
        assert count(own_folder, "programs") == kept


def test_options_count_and_progress_does_not(own_folder: Path) -> None:
    for options in ({}, {"progress": False}, {"fold_limit": 1}, {"disable_passes": ("call-inliner",)}):
        hlojit.compile(layers(1), options=options)
    assert count(own_folder, "programs") == 3


def test_modules_are_found_too(own_folder: Path) -> None:
    def traced() -> Any:
        @hlojit.jit
        def f(x: Any) -> Any:
            return np.exp(x) * 2

        return f

    for _ in range(2):
        np.testing.assert_allclose(traced()(X), np.exp(X) * 2, rtol=1e-6)
    assert count(own_folder, "programs") == 1


class Vendor(CpuBackend):
    """Says of itself what its device is, and nothing of hlojit."""

    name = "vendor"

    def __init__(self, **wants: Any):
        super().__init__()
        self.__dict__.update(wants)

    def cache_identity(self) -> str:
        return "vendor 1"


class OtherVendor(Vendor):
    def compile(self, module: Any, options: Any) -> Any:
        return super().compile(module, options)


class Boxed(Vendor):
    lock = threading.Lock()


def test_a_back_end_counts_with_its_class_and_the_passes_before_it(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept(backend: Any) -> int:
        holder = type("Holder", (), {"hlojit_backends": ext.hookimpl(lambda self: [backend])})
        with ext.using(holder()):
            hlojit.compile(layers(0), backend="vendor")
        return count(own_folder, "programs")

    assert [kept(Vendor()) for _ in range(2)] == [1, 1]
    assert kept(Vendor(fusion_limits=FusionLimits(rows=False))) == 2
    assert kept(OtherVendor()) == 3
    assert kept(Boxed()) == 3, "a lock has no content: not kept"
    monkeypatch.setattr(program_cache, "versions_text", lambda: "another hlojit")
    assert kept(Vendor()) == 4


# ------------------------------------------------------------------------------------------------ what is survived


def damage_truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_truncate, damage_flip, damage_empty])
def test_damaged_entries_are_misses_and_are_replaced(damage: Callable[[Path], None], tmp_path: Path) -> None:
    first, _ = run(tmp_path, layers(1))
    for entry in DiskCache(tmp_path / "cache").entries():
        damage(entry.path)
    value, counts = run(tmp_path, layers(1))
    assert value == first and counts["parsed"]
    assert run(tmp_path, layers(1)) == (first, NOTHING)


LOADED = """
import sys
from pathlib import Path
import hlojit, numpy as np

# Constants of more than a page, code, and a saved file: everything that a program has of files.
kind = "tensor<70000xf32>"
values = ", ".join(str(number % 97) + ".0" for number in range(70000))
text = (f"func.func @main(%x: {kind}) -> {kind} {{\\n  %c = stablehlo.constant dense<[{values}]> : {kind}\\n"
        f"  %0 = stablehlo.multiply %x, %c : {kind}\\n  %1 = stablehlo.exponential %0 : {kind}\\n  return %1 : {kind}\\n}}")
folder = Path(sys.argv[1])
program = hlojit.compile(text)
program.save(folder / "saved")
loaded = hlojit.load(folder / "saved")
x = np.full(70000, np.float32(0.01))
files = [path for path in folder.rglob("*") if path.is_file()]
for path in files if sys.argv[2] == "cut" else ():
    with path.open("r+b") as file:
        file.truncate(0)
for each in (program, loaded):
    assert np.allclose(each(x), np.exp(x * (np.arange(70000) % 97).astype("f4")), rtol=1e-5)
maps = Path("/proc/self/maps")
assert not maps.exists() or str(folder) not in maps.read_text()
print(len(files))
"""


def test_files_that_are_cut_off_after_loading_do_no_harm(tmp_path: Path) -> None:
    """Nothing is mapped: a page of a mapped file that another process cuts off would end this one (SIGBUS)."""
    environment = {**os.environ, "HLOJIT_CACHE": str(tmp_path / "cache")}
    for what in ("leave", "cut", "cut"):  # compiled; found; found to be damaged
        command = [sys.executable, "-c", LOADED, str(tmp_path), what]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and int(done.stdout) >= 3, (done.returncode, done.stderr)


@pytest.mark.parametrize("kind", ["programs", "kernels"])
def test_an_entry_is_that_of_its_key_alone(kind: str, tmp_path: Path) -> None:
    """Two entries that have changed places, by a tool that copies caches or by somebody's hand, are misses."""
    expected = {head: run(tmp_path, layers(0, head))[0] for head in ("sine", "cosine")}
    entries = list(DiskCache(tmp_path / "cache").entries())
    paths = [each.path for each in entries if each.kind == kind]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1]):
        path.write_bytes(content)
    if kind == "kernels":
        for each in entries:
            if each.kind == "programs":
                each.path.unlink()
    assert {head: run(tmp_path, layers(0, head))[0] for head in expected} == expected


def test_what_cannot_be_loaded_is_compiled_again(own_folder: Path) -> None:
    """Entries whose checksum is right and whose code is not, or is for another runtime."""
    text = layers(1, head="cosine")
    compiles(text)
    (entry,) = [each for each in DiskCache(own_folder).entries() if each.kind == "programs"]
    kept = files.decode(memoryview(entry.path.read_bytes()), entry.key)
    junk = dataclasses.replace(kept, objects=tuple((symbol, b"no object") for symbol, _ in kept.objects))
    stranger = dataclasses.replace(kept, provenance=dataclasses.replace(kept.provenance, runtime="another"))
    for wrong in (junk, stranger):
        entry.path.write_bytes(files.encode(wrong, entry.key))
        compiles(text)
        assert files.decode(memoryview(entry.path.read_bytes()), entry.key).provenance == kept.provenance


def compiles(text: str) -> None:
    x = np.full((16, 16), 0.5, "f4")
    hlojit.compile(text)(x, x)


def test_a_full_disk(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(caches, "write_file", full)
    compiles(layers(1, head="sine"))
    assert not list(DiskCache(own_folder).entries())


def test_a_read_only_folder(tmp_path: Path) -> None:
    """As the superuser may write everywhere, a file stands where the folder would be; others see both."""
    first, _ = run(tmp_path, layers(1))
    for path in [*(tmp_path / "cache").rglob("*"), tmp_path / "cache"]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert run(tmp_path, layers(1)) == (first, NOTHING)
        run(tmp_path, layers(2))
    finally:
        for path in [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]:
            path.chmod(0o700)
    (tmp_path / "file").write_text("")
    assert run(tmp_path, layers(1), HLOJIT_CACHE=str(tmp_path / "file"))[0] == first
    assert run(tmp_path, layers(1), HLOJIT_CACHE="/proc/nowhere/cache")[0] == first


@needs_users
def test_files_that_others_may_write_are_not_read(tmp_path: Path) -> None:
    run(tmp_path, layers(1))
    for entry in DiskCache(tmp_path / "cache").entries():
        entry.path.chmod(0o666)
    assert run(tmp_path, layers(1))[1]["parsed"]
    (tmp_path / "cache").chmod(0o777)
    assert run(tmp_path, layers(1))[1]["parsed"]
    assert "others may write it" in caches.reason_against(tmp_path / "cache")


@needs_users
@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only the superuser can give files away")
def test_files_of_another_user_are_not_read(tmp_path: Path) -> None:
    run(tmp_path, layers(1))
    for entry in DiskCache(tmp_path / "cache").entries():
        os.chown(entry.path, 12345, 12345)
    assert run(tmp_path, layers(1))[1]["parsed"]
    os.chown(tmp_path / "cache", 12345, 12345)
    assert run(tmp_path, layers(1))[1]["parsed"]


@needs_users
def test_links_are_not_followed_and_folders_are_the_user_s_alone(tmp_path: Path) -> None:
    run(tmp_path, layers(1))
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    for entry in list(DiskCache(tmp_path / "cache").entries()):
        moved = tmp_path / entry.key
        entry.path.rename(moved)
        entry.path.symlink_to(moved)
    assert run(tmp_path, layers(1))[1]["parsed"]


@pytest.mark.slow
def test_many_writers_at_once(tmp_path: Path) -> None:
    program = tmp_path / "program.mlir"
    program.write_text(layers(2))
    environment = {**os.environ, "HLOJIT_CACHE": str(tmp_path / "cache")}
    writers = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(program)], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    values = {writer.communicate()[0].partition(" ")[0] for writer in writers}
    assert len(values) == 1 and not any(writer.returncode for writer in writers)
    assert run(tmp_path, layers(2))[1] == NOTHING
    assert not list((tmp_path / "cache").rglob("*.tmp"))


# ------------------------------------------------------------------------------------------------ size and command


def test_the_oldest_entries_go(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", limit=100_000)
    for number in range(30):
        cache.put("kernels", f"{number:064x}", bytes(10_000))
        path = cache._path("kernels", f"{number:064x}")
        os.utime(path, (1e9 + number, 1e9 + number))
        assert sum(entry.nbytes for entry in cache.entries()) <= 110_000
    kept = {int(entry.key, 16) for entry in cache.entries()}
    assert 29 in kept and 0 not in kept
    # Reading counts as using.
    oldest = min(kept)
    assert cache.get("kernels", f"{oldest:064x}") is not None
    assert min(cache.entries(), key=lambda entry: entry.used).key != f"{oldest:064x}"
    cache.put("kernels", "f" * 64, bytes(60_000))
    assert cache.get("kernels", "f" * 64) is None


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c")
    cache.put("kernels", "a" * 64, b"x")
    left = cache._path("kernels", "a" * 64).with_name(".aaa.tmp")
    for age, stays in ((10, True), (7200, False)):
        left.write_bytes(b"half")
        os.utime(left, (time.time() - age, time.time() - age))
        cache.evict()
        assert left.exists() is stays
    assert cache.get("kernels", "a" * 64) == b"x"


def test_the_command_shows_and_clears(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hlojit.command import main

    compiles(layers(1))
    assert main(["cache"]) == 0
    said = capsys.readouterr().out
    assert str(own_folder) in said and "programs" in said and "kernels" in said
    assert main(["cache", "--clear"]) == 0
    assert not list(DiskCache(own_folder).entries())
    assert "removed" in capsys.readouterr().out


def test_the_command_says_why_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hlojit.command import main

    monkeypatch.setenv("HLOJIT_CACHE", "off")
    assert main(["cache"]) == 0
    assert "off" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path / "file"))
    assert main(["cache"]) == 0
    assert "not used" in capsys.readouterr().out


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")


@needs_pipes
def test_a_pipe_is_a_miss_and_no_program(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    cache.put("programs", "abcd", b"data")
    [entry] = cache.entries()
    entry.path.unlink()
    os.mkfifo(entry.path, 0o600)
    assert cache.get("programs", "abcd") is None
    with pytest.raises(OSError, match="no regular file"):
        hlojit.load(entry.path)


def test_entries_that_are_too_large_are_not_read(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", limit=1 << 20)
    cache.put("programs", "abcd", b"data")
    [entry] = cache.entries()
    os.truncate(entry.path, 1 << 42)
    assert cache.get("programs", "abcd") is None
    # Where the limit allows it, there is no memory for it.
    assert DiskCache(tmp_path / "cache", limit=1 << 60).get("programs", "abcd") is None
    with pytest.raises(HlojitError, match="no memory for its 4,398,046,511,104 bytes"):
        hlojit.load(entry.path)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of descriptors here")
def test_a_file_object_that_cannot_be_made_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DiskCache(tmp_path / "cache")
    cache.put("programs", "abcd", b"data")
    count = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fdopen", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EMFILE, "too many")))
    for _ in range(3):
        assert cache.get("programs", "abcd") is None
        cache.put("programs", "efgh", b"data")
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == count
    assert [entry.key for entry in cache.entries()] == ["abcd"]


def test_the_folder_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "~nosuchuser/x")
    with pytest.raises(HlojitError, match=r"HLOJIT_CACHE='~nosuchuser/x'"):
        caches.folder_setting()
