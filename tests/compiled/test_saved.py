"""Executables that are saved and loaded again, in this process and in others."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit import compiled as files
from hlojit.extensions import registry
from hlojit.ir.errors import HlojitError
from hlojit.ir.files import sealed
from hlojit.ir.formats import FloatFormat
from hlojit.ir.ops.definition import OpDefinition, Operand, Pointwise
from hlojit.lowering import program
from hlojit.lowering.kernel import KernelCode

from ..extensions.processes import install, run

TEXT = """
func.func @main(%x: tensor<8x8xf32>, %n: tensor<i32>) -> (tensor<8x8xf32>, tensor<i32>) {
  %c = stablehlo.constant dense<[0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]> : tensor<8xf32>
  %b = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<8xf32>) -> tensor<8x8xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<8x8xf32>
    cond { %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1> }
    do { %j = stablehlo.add %i, %one : tensor<i32>
      %d = stablehlo.dot %y, %b : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %t = stablehlo.tanh %d : tensor<8x8xf32>
      stablehlo.return %j, %t : tensor<i32>, tensor<8x8xf32> }
  return %r#1, %r#0 : tensor<8x8xf32>, tensor<i32>
}
"""
X = np.linspace(-1, 1, 64, dtype="f4").reshape(8, 8)


def expected(turns: int) -> Any:
    y, b = X.astype("f8"), np.broadcast_to(np.arange(1, 9) / 2, (8, 8))
    for _ in range(turns):
        y = np.tanh(y @ b)
    return y


def saved(tmp_path: Path, text: str = TEXT) -> Path:
    path = tmp_path / "program.hlojit"
    hlojit.compile(text).save(path)
    return path


def test_a_saved_program_computes_the_same(tmp_path: Path) -> None:
    path = saved(tmp_path)
    loaded = hlojit.load(path)
    again = hlojit.compile(TEXT)
    for got in (loaded(X, np.int32(3)), again(X, np.int32(3))):
        np.testing.assert_allclose(got[0], expected(3), rtol=1e-5, atol=1e-6)
        assert got[1] == 3
    assert loaded.input_types == again.input_types and loaded.output_types == again.output_types
    assert [type(step) for step in loaded.spec.program.walk()] == [type(step) for step in again.spec.program.walk()]


def test_in_another_process_without_the_text(tmp_path: Path) -> None:
    path = saved(tmp_path)
    np.save(tmp_path / "x.npy", X)
    script = (
        "import sys, hlojit, numpy as np; y, n = hlojit.load(sys.argv[1])(np.load(sys.argv[2]), np.int32(2))\n"
        "np.save(sys.argv[3], y); assert 'hlojit.ir.text.parser' not in sys.modules"
    )
    arguments = [str(path), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-c", script, *arguments], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(2), rtol=1e-5, atol=1e-6)


def test_what_is_written_down(tmp_path: Path) -> None:
    compiled = files.read(saved(tmp_path))
    origin = compiled.provenance
    assert origin.source == hashlib.sha256(TEXT.encode()).hexdigest()
    assert origin.options["fold_limit"] == 4096 and "progress" not in origin.options
    assert {"python", "hlojit", "llvmlite", "numba", "numpy"} <= set(origin.versions)
    assert origin.features and origin.triple
    assert [str(kind) for kind in compiled.inputs] == ["tensor<8x8xf32>", "tensor<i32>"]
    # Kernels keep their LLVM IR, for people and tools to look at.
    kernels = [launch.kernel for launch in hlojit.compile(hlojit.parse(TEXT)).spec.program.launches()]
    assert kernels and [launch.kernel for launch in compiled.program.launches()] == kernels
    # Saved again, it is the same file: no text was lost in between, and nothing depends on the process.
    assert files.encode(compiled) == (tmp_path / "program.hlojit").read_bytes()


def test_two_processes_write_the_same_file(tmp_path: Path) -> None:
    script = "import sys, hlojit; hlojit.compile(open(sys.argv[1]).read()).save(sys.argv[2])"
    (tmp_path / "text").write_text(TEXT)
    for name, cache in (("a", "off"), ("b", str(tmp_path / "cache")), ("c", str(tmp_path / "cache"))):
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "text"), str(tmp_path / name)],
            check=True, env={**__import__("os").environ, "HLOJIT_CACHE": cache},
        )  # fmt: skip
    first = (tmp_path / "a").read_bytes()
    assert first == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


def test_jitted_functions_and_formats(tmp_path: Path) -> None:
    @hlojit.jit
    def f(x: Any) -> Any:
        return np.exp(x) + 1

    module = f.lower(X)
    path = tmp_path / "f"
    hlojit.compile(module).save(path)
    np.testing.assert_allclose(hlojit.load(path)(X), np.exp(X) + 1, rtol=1e-6)


def every_step() -> set[type]:
    """Classes that steps are of: those that no other step is derived from."""
    found, stack = set(), [program.Step]
    while stack:
        kind = stack.pop()
        derived = kind.__subclasses__()
        stack += derived
        if not derived:
            found.add(kind)
    return found


def test_every_kind_of_step_can_be_written() -> None:
    assert every_step() <= set(files._program_records().values())
    assert {program.Buffer, program.Program, KernelCode} <= set(files._program_records().values())


# ------------------------------------------------------------------------------------------------- what is refused


def test_python_functions_cannot_be_saved(tmp_path: Path) -> None:
    executable = hlojit.compile(TEXT, backend="reference")
    with pytest.raises(HlojitError, match="main cannot be saved: its back end returned a Python callable"):
        executable.save(tmp_path / "x")


class Pointing:
    """A plugin whose op has a lowering rule that depends on an address."""

    @ext.hookimpl
    def hlojit_ops(self) -> Any:
        pointer = ctypes.c_void_p(1)

        def twice(builder: Any, call: Any, x: Any) -> Any:
            return builder.fadd(x, x) if pointer else x

        def same(call: Any) -> Any:
            return call.operand_types

        return [OpDefinition("vendor.pointing", operands=(Operand("x"),), infer=same, lowering=Pointwise(twice))]


def test_c_pointers_are_refused_by_name_and_not_kept(tmp_path: Path) -> None:
    text = (
        "func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {\n"
        '  %0 = "vendor.pointing"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>\n'
        "  return %0 : tensor<8x8xf32>\n}"
    )
    with ext.using(Pointing()):
        executable = hlojit.compile(text)
        np.testing.assert_array_equal(executable(X), 2 * X)
        with pytest.raises(HlojitError, match="main cannot be saved: .*c_void_p"):
            executable.save(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        hlojit.compile(TEXT).save(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["program.hlojit"]


def altered(path: Path, **changes: Any) -> Path:
    compiled = files.read(path)
    known = {field.name for field in dataclasses.fields(compiled.provenance)}
    provenance = dataclasses.replace(compiled.provenance, **{n: v for n, v in changes.items() if n in known})
    rest = {name: value for name, value in changes.items() if name not in known}
    path.write_bytes(files.encode(dataclasses.replace(compiled, provenance=provenance, **rest)))
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"features": ("avx512f", "teleport", "warp")}, "features that this one does not have: teleport, warp"),
        ({"triple": "z80-unknown-cpm"}, "compiled for z80-unknown-cpm"),
        ({"runtime": "another"}, "whose runtime differs"),
        ({"backend": "abacus"}, "unknown back end 'abacus'"),
        ({"formats": {"f32": "0123"}}, "another element type 'f32'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_here_is_said(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = altered(saved(tmp_path), **changes)
    with pytest.raises(HlojitError, match=said):
        hlojit.load(path)


ACME = FloatFormat("vendor8", exponent_bits=4, mantissa_bits=3, bias=9)


class Formats:
    def __init__(self, row: FloatFormat):
        self.row = row

    @ext.hookimpl
    def hlojit_formats(self) -> Any:
        return [self.row]


def test_a_vendor_s_format_must_be_the_same_one(tmp_path: Path) -> None:
    text = "func.func @main(%x: tensor<4xvendor8>) -> tensor<4xvendor8> { %0 = stablehlo.negate %x : tensor<4xvendor8> return %0 : tensor<4xvendor8> }"
    with ext.using(Formats(ACME)):
        path = saved(tmp_path, text)
        hlojit.load(path)
    with pytest.raises(HlojitError, match="'vendor8' is not registered"):
        hlojit.load(path)
    with (
        ext.using(Formats(dataclasses.replace(ACME, bias=8))),
        pytest.raises(HlojitError, match="another element type"),
    ):
        hlojit.load(path)


# ---------------------------------------------------------------------------------------------------- damaged files


def test_a_file_cut_off_or_altered_anywhere(tmp_path: Path) -> None:
    data = saved(tmp_path).read_bytes()
    path = tmp_path / "damaged"
    random = np.random.default_rng(0)
    for _ in range(60):
        place = int(random.integers(len(data)))
        path.write_bytes(data[:place])
        with pytest.raises(HlojitError, match="damaged"):
            hlojit.load(path)
        broken = bytearray(data)
        broken[place] ^= int(random.integers(1, 256))
        path.write_bytes(broken)
        # The header's padding is the only place where a byte may change unseen.
        if not 56 <= place < 64 and not 12 <= place < 16:
            with pytest.raises(HlojitError, match="damaged"):
                hlojit.load(path)


def test_a_file_with_something_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "longer"
    path.write_bytes(saved(tmp_path).read_bytes() + b"more")
    with pytest.raises(HlojitError, match="longer than what was written"):
        hlojit.load(path)


def test_alterations_under_a_right_checksum(tmp_path: Path) -> None:
    """Not what the checksum is for, but whatever is read is checked: an error or a program, never a crash."""
    data = saved(tmp_path).read_bytes()
    body = data[64:]
    random, refused = np.random.default_rng(1), 0
    for _ in range(300):
        broken = bytearray(body)
        for place in random.integers(0, min(len(body), 4000), 3):
            broken[place] = int(random.integers(256))
        try:
            files.decode(sealed(files.MAGIC, files.FORMAT_VERSION, bytes(broken))).program  # noqa: B018
        except HlojitError:
            refused += 1
    assert 100 < refused < 300, (
        "both happen: wrong bytes of records are found, other numbers of constants and code are not"
    )


def test_a_record_that_contradicts_itself_or_its_signature(tmp_path: Path) -> None:
    path = saved(tmp_path)
    sound = files.read(path)
    broken = files.read(path).program
    broken.steps.append(broken.steps[0])
    broken.outputs.reverse()
    for wrong in (
        dataclasses.replace(sound, record=files.ProgramRecord(broken)),
        dataclasses.replace(sound, inputs=sound.inputs[::-1]),
        dataclasses.replace(sound, outputs=sound.outputs[:1]),
        dataclasses.replace(sound, donated=((0, 0),)),
        dataclasses.replace(sound, arena_bytes=sound.arena_bytes + 64),
    ):
        path.write_bytes(files.encode(wrong))
        with pytest.raises(HlojitError, match="program record"):
            hlojit.load(path)


VENDOR = """
from hlojit.extensions import hookimpl
from hlojit.ir.formats import FloatFormat
@hookimpl
def hlojit_formats():
    return [FloatFormat("vendor9", exponent_bits=5, mantissa_bits=3)]
"""


def test_installed_plugins_are_found_before_a_file_is_read(tmp_path: Path) -> None:
    install(tmp_path, "vendor_formats", VENDOR)
    save = """
    import sys, hlojit
    text = "func.func @main(%x: tensor<4xvendor9>) -> tensor<4xvendor9> { return %x : tensor<4xvendor9> }"
    hlojit.compile(text).save("FILE")
    """
    run(save.replace("FILE", str(tmp_path / "file")), tmp_path)
    load = "import hlojit; print(hlojit.load('FILE').input_types)"
    assert "vendor9" in run(load.replace("FILE", str(tmp_path / "file")), tmp_path)


def test_a_program_record_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    monkeypatch.setattr(files, "MAXIMUM_RECORD_BYTES", 1000)
    with pytest.raises(HlojitError, match="longer than any program"):
        hlojit.load(path)


def test_other_files_and_versions(tmp_path: Path) -> None:
    data = saved(tmp_path).read_bytes()
    path = tmp_path / "other"
    path.write_bytes(b"#!/bin/sh\n" * 20)
    with pytest.raises(HlojitError, match="other: this is no file"):
        hlojit.load(path)
    path.write_bytes(data[:8] + struct.pack("<I", 99) + data[12:])
    with pytest.raises(HlojitError, match="version 99 of the format"):
        hlojit.load(path)
    with pytest.raises(OSError):
        hlojit.load(tmp_path / "nowhere")


def test_back_ends_without_load_say_so() -> None:
    with pytest.raises(HlojitError, match="'reference' does not load compiled programs"):
        registry().backend("reference").load(None)
