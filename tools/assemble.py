"""Every kind of GPU kernel as PTX and machine code, with no GPU: what it uses, and that nothing is wrong with it.

    python tools/assemble.py                              # all kinds, both assemblers, sm_80, sm_90, sm_100 (make assemble)
    python tools/assemble.py softmax_f32 --targets sm_90a --assemblers numba

Texts go to ``build/assembled/TARGET/KIND.ASSEMBLER.ptx`` (``.sass`` beside it where nvdisasm is installed), the table to
``build/assembled/table.md``.  The exit status is 1 if a kernel calls something, spills, keeps in local memory what registers
could hold, lacks the accesses of 16 bytes that its plan is for, or multiplies by matrix instructions in more registers than
leave room for a second block on a multiprocessor.  What has no GPU kernel yet is listed as such.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import hlojit
from hlojit.compiler import lower
from hlojit.cuda.assemblers.choice import NAMES, assembler
from hlojit.cuda.assemblers.cubin import Usage, cubin_of, unavailable
from hlojit.cuda.nvptx import SM_80, SM_90, SM_100, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Indexed, Kernel, Pointwise, Reduction
from hlojit.lowering.grid_matrix_plan import REGISTERS
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.simt.conditions import condition_kernels
from hlojit.simt.dialect import Dialect
from hlojit.simt.kernels import emit_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.kernel_kinds import KINDS, Kind

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {target.cpu: target for target in (SM_80, SM_90, SM_100)}
CAPABILITIES = {"sm_80": (8, 0), "sm_90a": (9, 0), "sm_100a": (10, 0)}
WIDE = re.compile(r"\b(ld|st)(?:\.\w+)*\.global(?:\.\w+)*\.(?:v4\.[bfu]32|v2\.[bfus]64)\b")
CALLED = re.compile(r"(?<![\w.])call(?:\.uni)?\s[^;]*?([\w$]+)(?=,\s*\([^()]*\);|;)")
ACCESS = re.compile(r"\b(?:ld|st)(?:\.\w+)*\.global\b")


@dataclass(frozen=True)
class Row:
    """One assembled kernel."""

    kind: str
    assembler: str
    target: str
    code: KernelCode
    ptx: str
    usage: dict[str, Usage]
    wide: frozenset[str]
    """What has to be done 16 bytes at once: ``ld``, ``st``."""

    def faults(self) -> list[str]:
        """What is wrong with it."""
        found = []
        if set(CALLED.findall(self.ptx)) - NvptxDialect.externs:
            found.append("it calls a function that nobody defines")
        if ".local" in self.ptx:
            found.append("values lie in local memory")
        directions = {match[1] for match in WIDE.finditer(self.ptx)}
        if not self.wide <= directions:
            found.append("pieces are not read and written 16 bytes at once")
        for symbol, usage in self.usage.items():
            if usage.spills:
                found.append(f"{symbol} spills {usage.spills} bytes")
        return found + self._too_large()

    def _too_large(self) -> list[str]:
        """Kernels of matrix instructions with more registers than plans count on, or more shared memory than there is."""
        machine = TARGETS[self.target].grid
        assert machine is not None
        if "mma.sync" not in self.ptx or "ld.global" in self.ptx:
            # What comes by registers has to be held there.
            return []
        found = []
        for phase in self.code.phases:
            usage = self.usage.get(phase.symbol)
            if usage is not None and usage.registers > REGISTERS:
                found.append(f"{phase.symbol} takes {usage.registers} registers, more than {REGISTERS}")
            if phase.shared_bytes > machine.shared_bytes:
                found.append(f"{phase.symbol} takes {phase.shared_bytes} bytes of shared memory")
        return found

    def cells(self) -> list[str]:
        """The row of the table."""
        phases, usages = self.code.phases, self.usage.values()
        return [
            self.kind,
            self.assembler,
            self.target,
            str(len(phases)),
            "/".join(sorted({str(phase.threads) for phase in phases})),
            str(max((usage.registers for usage in usages), default="")),
            str(max((usage.spills for usage in usages), default="")),
            str(max((usage.stack for usage in usages), default="")),
            str(max(phase.shared_bytes for phase in phases)),
            f"{len(WIDE.findall(self.ptx))} of {len(ACCESS.findall(self.ptx))}",
        ]


HEADER = [*"kernel assembler target launches threads registers spills stack shared".split(), "accesses of 16 bytes"]


def codes(kind: Kind, target: Target, dialect: Dialect) -> Iterator[KernelCode]:
    """The kernels of a program."""
    if not kind.text:
        yield from condition_kernels(dialect)
        return
    module = lower(hlojit.parse(kind.text), registry().backend("cuda"), CompileOptions())
    instructions = [each for each in module.main.body if _has_code(each)]
    for number, instruction in enumerate(instructions):
        yield emit_kernel(instruction, target, dialect, f"kernel_{number}")


def _has_code(instruction: Instruction) -> bool:
    return isinstance(instruction.op.lowering, (Kernel, Pointwise, Indexed, Reduction))


def rows(names: Sequence[str], targets: Sequence[str], assemblers: Sequence[str], folder: Path) -> Iterator[Row | str]:
    """Assembled kernels; for what has no kernel yet, a line that says so."""
    for name in names:
        for target in targets:
            try:
                made = list(codes(KINDS[name], TARGETS[target], NvptxDialect(CAPABILITIES[target])))
            except UnsupportedError as error:
                yield f"{name}: {str(error).splitlines()[0]}"
                break
            for chosen in assemblers:
                for number, code in enumerate(made):
                    part = name if len(made) == 1 else f"{name}.{number}"
                    ptx = assembler(chosen).ptx(code, TARGETS[target])
                    usages = _machine_code(ptx, TARGETS[target], folder / target / f"{part}.{chosen}")
                    yield Row(part, chosen, target, code, ptx, usages, KINDS[name].directions)


def _machine_code(ptx: str, target: Target, path: Path) -> dict[str, Usage]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.ptx").write_text(ptx)
    if unavailable():
        return {}
    made = cubin_of(ptx, target)
    image = path.with_name(f"{path.name}.cubin")
    image.write_bytes(made.image)
    if disassembler := _disassembler():
        listing = subprocess.run([disassembler, str(image)], capture_output=True, text=True, check=True)
        path.with_name(f"{path.name}.sass").write_text(listing.stdout)
    return dict(made.usages)


def _disassembler() -> str | None:
    from cuda.pathfinder import find_nvidia_binary_utility

    found: str | None = find_nvidia_binary_utility("nvdisasm")
    return found


def main() -> int:
    """Assemble, print and write the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; all by default")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--assemblers", nargs="+", choices=NAMES, default=None)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "assembled")
    options = parser.parse_args()
    assemblers = options.assemblers or [name for name in NAMES if not assembler(name).unavailable()]
    lines = [f"| {' | '.join(HEADER)} |", "|" + " --- |" * len(HEADER)]
    faults, missing = [], []
    for row in rows(options.kinds or list(KINDS), options.targets, assemblers, options.folder):
        if isinstance(row, str):
            missing.append(row)
            continue
        lines.append(f"| {' | '.join(row.cells())} |")
        print(lines[-1], flush=True)
        faults += [f"{row.kind} by {row.assembler} for {row.target}: {fault}" for fault in row.faults()]
    (options.folder / "table.md").write_text("\n".join(lines) + "\n")
    for line in missing:
        print(f"no kernel yet: {line}")
    if reason := unavailable():
        print(f"registers and spills are not known: {reason}")
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
