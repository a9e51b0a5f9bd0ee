"""Process replay: show that a change of the compiler changes no kernel and no program.

    python tools/process_replay.py record BEFORE          # with the old source (PYTHONPATH=.../build/dev)
    python tools/process_replay.py record AFTER           # with the new one
    python tools/process_replay.py compare BEFORE AFTER   # exit status 1 if anything differs
    python tools/process_replay.py against HEAD           # all three, the old source from a commit (make replay)

``record`` lowers every benchmark program, the StableHLO files of ``examples/`` and a few traced functions for the CPU
back end, without generating machine code or running anything, and writes text: ``NAME/program.txt`` holds the program
record (steps, buffers, arena), ``NAME/kernel_NN_OP.ll`` each kernel's LLVM IR in the order of its first launch.  Names
are normalized: a kernel's own symbols begin with ``kernel``, whatever the scheme of the process that made them.
Fields of the record that have their default value are left out, so that a new field is no difference by itself.
"""

from __future__ import annotations

import argparse
import difflib
import enum
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
# The programs belong to this tool: an old compiler and a new one are given the same.
sys.path.insert(0, str(ROOT))

LEFT_OUT = ("kernel", "buffers", "operands", "results", "workspace", "location")
"""Fields of launches that are shown in another way, or that say nothing about what happens."""


# ------------------------------------------------------------------------------------------------------- the programs


def _normalize(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)) @ v


def _stencil(u: Any) -> Any:
    for _ in range(3):
        inner = u[1:-1, 1:-1]
        u = np.pad(inner + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner), 1)
    return u


def _ranks(x: Any) -> Any:
    return np.sort(x, axis=-1), np.where(x > 0, x, 0).argmax(-1), np.cumsum(x, 0)


TRACED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]] = {
    "traced_normalize": (_normalize, ((64, 300),), "f4"),
    "traced_attention": (_attention, ((96, 64), (96, 64), (96, 64)), "f4"),
    "traced_stencil_f64": (_stencil, ((50, 70),), "f8"),
    "traced_ranks": (_ranks, ((16, 100),), "f4"),
}


def _traced(function: Callable[..., Any], shapes: Sequence[tuple[int, ...]], dtype: str) -> str:
    import hlojit

    return str(hlojit.jit(function).lower(*(np.zeros(shape, dtype) for shape in shapes)))


def _text_of(make: Callable[[], Any]) -> str:
    text: str = make().text()
    return text


def programs() -> dict[str, Callable[[], str]]:
    """StableHLO text of every program, made when it is asked for."""
    from benchmarks.kernels import KERNELS
    from benchmarks.programs import REAL_PROGRAMS

    found: dict[str, Callable[[], str]] = {}
    for name, make in {**REAL_PROGRAMS, **KERNELS}.items():
        found[name] = partial(_text_of, make)
    for path in sorted((ROOT / "examples").glob("*.mlir")):
        found[f"example_{path.stem}"] = path.read_text
    for name, case in TRACED.items():
        found[name] = partial(_traced, *case)
    return found


# ---------------------------------------------------------------------------------------------------------- recording


def lowered_program(text: str) -> Any:
    """The program record of a text, as the CPU back end schedules it."""
    from hlojit.compiler import lower, parse
    from hlojit.cpu.backend import CpuBackend
    from hlojit.extensions import CompileOptions

    # A back end of its own: numbers of earlier programs' kernels play no part.
    backend = CpuBackend()
    return backend.program(lower(parse(text), backend, CompileOptions()).freeze())


def record(folder: Path, names: Sequence[str] = ()) -> list[str]:
    """Write the records of the programs called ``names`` (all of them, if none) and return their names."""
    known = programs()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"unknown program {unknown[0]!r}; known: {', '.join(known)}")
    chosen = list(names) or list(known)
    for name in chosen:
        write_record(lowered_program(known[name]()), folder / name)
        print(f"{name}: {len(list((folder / name).glob('kernel_*')))} kernels", flush=True)
    return chosen


def write_record(program: Any, folder: Path) -> None:
    """One program's files."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.iterdir():
        stale.unlink()
    numbers: dict[str, int] = {}
    kernels: dict[int, tuple[str, Any]] = {}
    for launch in program.launches():
        number = numbers.setdefault(launch.kernel.phases[0].symbol, len(numbers))
        kernels.setdefault(number, (launch.instruction_name, launch.kernel))
    for number, (instruction_name, kernel) in kernels.items():
        (folder / f"kernel_{number:02}_{instruction_name.partition('.')[2]}.ll").write_text(kernel_text(kernel))
    (folder / "program.txt").write_text("\n".join(_program_lines(program, numbers)) + "\n")


def kernel_text(kernel: Any) -> str:
    """A kernel's code and launches with its own symbols, and those of the parts that it shares, normalized."""
    base = _own_symbol(kernel)
    described = [f"; {field}" for field in _plain_fields(kernel, ("ir", "linked", "parts"))]
    linked = [f"; linked {symbol}\n{text}" for symbol, text in kernel.linked]
    # The symbols of parts are hashes of what they are made by: versions among it.
    parts = [(_own_symbol(part), f"part{number}", part) for number, part in enumerate(getattr(kernel, "parts", ()))]
    shown = [f"; {name}\n{kernel_text(part)}" for _, name, part in parts]
    text = "\n".join([*described, kernel.ir, *linked])
    for symbol, name in ((base, "kernel"), *((symbol, name) for symbol, name, _ in parts)):
        # Further functions of a kernel are called by its symbol and a suffix.
        text = re.sub(rf"\b{re.escape(symbol)}(?=\b|_)", name, text)
    return "\n".join([text, *shown])


def _own_symbol(kernel: Any) -> str:
    symbol: str = kernel.phases[0].symbol
    return symbol.partition(".")[0]


def _program_lines(program: Any, numbers: dict[str, int]) -> Iterator[str]:
    yield f"arena_bytes: {program.arena_bytes}"
    for field in fields(program):
        value = getattr(program, field.name)
        if field.name in ("steps", "arenas", "arena_bytes") or _has_default(field, value):
            continue
        if isinstance(value, list):
            yield f"{field.name}:"
            for index, item in enumerate(value):
                yield f"  {index}: {_describe(item) if isinstance(item, np.ndarray) else _buffer(item)}"
        else:
            yield f"{field.name}: {_describe(value)}"
    yield "steps:"
    yield from _step_lines(program.steps, numbers, 1)


def _buffer(buffer: Any) -> str:
    """Size and place of a buffer, and what is special about its storage."""
    parts = [f"{name}={getattr(buffer, name)}" for name in ("nbytes", "offset")]
    storage = getattr(buffer, "storage", None)
    if storage is not None and (storage.donated or not storage.is_plain):
        parts.append(_full(storage))
    return " ".join(parts)


def _step_lines(steps: Sequence[Any], numbers: dict[str, int], depth: int) -> Iterator[str]:
    for step in steps:
        nested = {field.name: getattr(step, field.name) for field in fields(step)}
        nested = {name: value for name, value in nested.items() if isinstance(value, list)}
        kernel = getattr(step, "kernel", None)
        launched = ""
        if kernel is not None:
            launched = f" kernel {numbers[kernel.phases[0].symbol]} over {_describe(step.buffers)}"
        described = " ".join(_plain_fields(step, (*(LEFT_OUT if launched else ()), *nested)))
        yield "  " * depth + f"{type(step).__name__}{launched} {described}".rstrip()
        for name, value in nested.items():
            cases = value if value and isinstance(value[0], list) else [value]
            for inner in cases:
                yield "  " * (depth + 1) + f"{name}:"
                yield from _step_lines(inner, numbers, depth + 2)


def _plain_fields(value: Any, without: Sequence[str] = ()) -> list[str]:
    parts = []
    for field in fields(value):
        content = getattr(value, field.name)
        if field.name not in without and not _has_default(field, content):
            parts.append(f"{field.name}={_describe(content)}")
    return parts


def _has_default(field: Field[Any], content: Any) -> bool:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return default is not MISSING and type(content) is type(default) and bool(content == default)


def _full(value: Any) -> str:
    return f"{type(value).__name__}({', '.join(_plain_fields(value))})" if is_dataclass(value) else _describe(value)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} sha256 {hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_describe, value))})"
    if is_dataclass(value) and hasattr(value, "kind") and hasattr(value, "index"):
        return f"{value.kind.name.lower()}{value.index}"
    return _full(value) if is_dataclass(value) else repr(value)


# ---------------------------------------------------------------------------------------------------------- comparing


def compare(before: Path, after: Path, *, lines: int = 0) -> list[str]:
    """What differs, a line a program (with up to ``lines`` lines of each file's difference); nothing if all is equal."""
    differences = []
    for name in sorted({path.name for folder in (before, after) for path in folder.iterdir()}):
        sides = [_files(folder / name) for folder in (before, after)]
        missing = [str(folder) for folder, side in zip((before, after), sides) if not side]
        if missing:
            differences.append(f"{name}: not in {missing[0]}")
        elif sides[0] != sides[1]:
            differences.append(f"{name}: {_difference(*sides)}")
            differences += _unified(*sides, lines) if lines else []
    return differences


def _files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*"))}


def _difference(before: dict[str, str], after: dict[str, str]) -> str:
    parts = []
    sides = [{name: text for name, text in side.items() if name != "program.txt"} for side in (before, after)]
    if sides[0] != sides[1]:
        if sorted(sides[0].values()) == sorted(sides[1].values()):
            parts.append("the same kernels in another order")
        elif len(sides[0]) != len(sides[1]):
            parts.append(f"{len(sides[0])} kernels became {len(sides[1])}")
        else:
            changed = [name for name, text in sides[0].items() if sides[1].get(name) != text]
            parts.append(f"{len(changed)} of {len(sides[0])} kernels differ: {', '.join(changed[:5])}")
    if before["program.txt"] != after["program.txt"]:
        parts.append("the program record differs")
    return "; ".join(parts)


def _unified(before: dict[str, str], after: dict[str, str], lines: int) -> list[str]:
    shown: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        texts = before.get(name, "").splitlines(), after.get(name, "").splitlines()
        shown += [f"    {line}" for line in list(difflib.unified_diff(*texts, name, name, "", "", 1, ""))[:lines]]
    return shown


def against(commit: str, *, names: Sequence[str], lines: int) -> int:
    """Record with the source of a commit and with this one, and compare; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="hlojit-replay-") as temporary:
        tree, before, after = (Path(temporary) / name for name in ("tree", "before", "after"))
        _run("git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            for source, folder in ((tree, before), (ROOT, after)):
                _run(sys.executable, str(source / "tools" / "link_tree.py"), quiet=True)
                path = str(source / "build" / "dev")
                _run(sys.executable, __file__, "record", str(folder), *names, quiet=True, PYTHONPATH=path)
        finally:
            _run("git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree))
        return report(before, after, lines)


def _run(*command: str, quiet: bool = False, **variables: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL if quiet else None, env={**os.environ, **variables})


def report(before: Path, after: Path, lines: int) -> int:
    """Print what differs; returns the exit status."""
    differences = compare(before, after, lines=lines)
    count = len(list(after.iterdir()))
    kernels = len(list(after.glob("*/kernel_*")))
    print("\n".join(differences) or f"{count} programs with {kernels} kernels: nothing differs")
    return 1 if differences else 0


def main() -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Show that a change of the compiler changes no kernel and no program.")
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    recorder = commands.add_parser("record", help="write the records of the programs")
    recorder.add_argument("folder", type=Path)
    comparer = commands.add_parser("compare", help="say what differs between two folders of records")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    both = commands.add_parser("against", help="record with a commit's source and with this one, and compare")
    both.add_argument("commit")
    for each in (recorder, both):
        each.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all)")
    for each in (comparer, both):
        each.add_argument("--lines", type=int, default=0, metavar="N", help="show N lines of each file's difference")
    options = parser.parse_args()
    if options.command == "record":
        record(options.folder, options.names)
        return 0
    if options.command == "against":
        return against(options.commit, names=options.names, lines=options.lines)
    return report(options.before, options.after, options.lines)


if __name__ == "__main__":
    sys.exit(main())
