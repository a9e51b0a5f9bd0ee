"""PTX interpreted with NumPy: what the assemblers' texts mean, without a GPU.

    machine = PtxMachine(ptx)
    machine.run("kernel", blocks=4, threads=256, buffers=[x, y, result], shared_bytes=0)      # results are written in place

One block after the other; the threads of a block are the elements of NumPy arrays.  The thread that is furthest behind goes
on, together with all that are at the same place; at barriers, shuffles and votes all that should be there must be there.
Written after NVIDIA's PTX ISA, and knowing nothing of what made the text.  Unknown instructions are errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .ptx_instructions import Entry, Instruction, Instructions, split_operands
from .ptx_matrices import loaded_matrices, multiplied
from .ptx_numbers import TYPES, UNSIGNED

WARP = 32
GLOBAL, SHARED, CONSTANT = 1 << 40, 1 << 50, 1 << 56
"""Where buffers, shared memory and constants begin."""
REGION = 1 << 32
MODIFIERS = frozenset(
    "rn lo wrap sync aligned cta relaxed sys gpu monotonic nc weak volatile uni global shared to".split()
)


class PtxMachine:
    """A module of PTX."""

    def __init__(self, ptx: str):
        ptx = re.sub(r"//[^\n]*", "", ptx)
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        for bits, name, values in re.findall(r"\.global \.align \d+ \.b(\d+) ([\w$]+)\[\d+\] = \{([^}]*)\}", ptx):
            numbers = [int(value, 0) for value in values.split(",")]
            self.constants[name] = np.array(numbers, UNSIGNED[int(bits)]).view(np.uint8)
        self.shared = set(re.findall(r"\.extern \.shared [^;]*?([\w$]+)\[\]", ptx))
        self.entries: dict[str, Entry] = {}
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        """Of functions that others define, in the order of blocks and threads: their names and arguments."""
        self.accesses: Counter[str] = Counter()
        """Of shared memory, by instruction: how often its banks were asked."""
        self.conflicts: Counter[str] = Counter()
        """How often more, because lanes that are served together wanted different words of one bank."""
        for name, parameters, body in re.findall(r"\.entry ([\w$]+)\(([^)]*)\)[^{]*\{(.*?)\n\}", ptx, re.DOTALL):
            self.entries[name] = self._entry(re.findall(r"([\w$]+)\s*(?:,|$)", parameters.strip()), body)

    def _entry(self, parameters: list[str], body: str) -> Entry:
        widths = {"%p": 1, "%SP": 64, "%SPL": 64}
        for kind, name in re.findall(r"\.reg \.(\w+)\s+(%\w+)[<;]", body):
            widths[name] = 1 if kind == "pred" else int(kind[1:])
        entry = Entry(parameters, widths)
        # Registers of a scope of their own: names are unique nevertheless.
        body = re.sub(r";\s*\}", ";", re.sub(r"\{\s*(?=\.(?:reg|param))", "", body))
        body = re.sub(r"\.(?:reg|param) [^;]*;", "", body)
        for statement in re.split(r"(?<=[;:])", body):
            text = statement.strip()
            if re.fullmatch(r"[$\w]+:", text):
                entry.labels[text[:-1]] = len(entry.code)
            elif text and not text.startswith((".pragma", ".loc")):
                found = re.fullmatch(r"(?:@(!?)(%\w+)\s+)?([\w.]+)\s*(.*?)\s*;", text, re.DOTALL)
                assert found, text
                words = found[3].split(".")
                entry.code.append(Instruction(words, split_operands(found[4]), found[2] or "", found[1] == "!", text))
        return entry

    def run(
        self,
        name: str,
        *,
        blocks: int,
        threads: int,
        buffers: Sequence[np.ndarray[Any, Any] | int],
        shared_bytes: int = 0,
    ) -> None:
        """Run all blocks; ``buffers`` are contiguous arrays, or numbers."""
        memory = [each if isinstance(each, int) else each.reshape(-1).view(np.uint8) for each in buffers]
        for block in range(blocks):
            _Block(self, self.entries[name], block, blocks, threads, memory, shared_bytes).run()


class _Block(Instructions):
    """One block under way."""

    def __init__(
        self, module: PtxMachine, entry: Entry, block: int, blocks: int, threads: int, memory: list[Any], shared: int
    ):
        numbers = np.arange(threads, dtype=np.uint32)
        special = {"tid.x": numbers, "ctaid.x": block, "ntid.x": threads, "nctaid.x": blocks, "laneid": numbers % WARP}
        constants = {name: CONSTANT + number * REGION for number, name in enumerate(module.constants)}
        super().__init__(
            entry,
            threads,
            {f"%{name}": np.broadcast_to(np.uint32(value), threads) for name, value in special.items()},
            dict.fromkeys(module.shared, 0) | constants,
        )
        self.module, self.memory = module, memory
        self.shared = np.full(shared, 0xA5, np.uint8)
        self.place = np.zeros(threads, np.int64)
        self.running = np.ones(threads, bool)
        self.waiting = np.zeros(threads, bool)
        self.passed: dict[str, np.ndarray[Any, Any]] = {}
        """Arguments of the call that is being prepared."""
        self.groups: list[list[list[tuple[int, Any]]]] = [[[]] for _ in range(threads)]
        """Of every thread the copies under way: committed groups, and the open one."""

    def run(self) -> None:
        with np.errstate(all="ignore"):
            while self.running.any():
                ready = self.running & ~self.waiting
                if not ready.any():
                    assert len(set(self.place[self.running])) == 1, "threads wait at different barriers"
                    assert self.running.all(), "threads ended that others wait for"
                    self.waiting[:] = False
                    continue
                place = self.place[ready].min()
                self._step(self.entry.code[place], np.flatnonzero(ready & (self.place == place)))

    def _step(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        name = instruction.words[0]
        self.place[where] += 1
        if instruction.predicate:
            holds = self.bits(instruction.predicate, where) != instruction.negated
            where = where[holds]
            if not len(where):
                return
        if name == "bra":
            self.place[where] = self.entry.labels[instruction.operands[0]]
        elif name in ("ret", "exit"):
            self.running[where] = False
        elif name == "bar" and instruction.words[1] != "warp":
            self.waiting[where] = True
        elif name in ("bar", "membar", "fence"):
            return
        else:
            try:
                getattr(self, f"op_{name}")(instruction, where)
            except (AttributeError, KeyError, ValueError) as error:
                raise NotImplementedError(f"{instruction.text}: {error!r}") from error

    # ------------------------------------------------------------------ memory

    def _count_banks(self, name: str, where: np.ndarray[Any, Any], addresses: np.ndarray[Any, Any], size: int) -> None:
        """128 bytes are served at once: all lanes' words, half of the lanes' 8 bytes, a quarter of the lanes' 16 bytes."""
        if int(addresses[0]) // REGION != SHARED // REGION:
            return
        together = min(WARP, WARP * 4 // size)
        for group in np.unique(where // together):
            chosen = addresses[where // together == group].astype(np.int64)
            words = np.unique((chosen[:, None] + np.arange(0, size, 4)) // 4)
            self.module.accesses[name] += 1
            self.module.conflicts[name] += int(np.bincount(words % WARP).max()) - 1

    def _address(self, operand: str, space: str, where: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        base, _, offset = operand[1:-1].partition("+")
        address = self.value(base, "u64", where) + np.uint64(int(offset or 0) & (1 << 64) - 1)
        return address + np.uint64(SHARED) if space == "shared" and (address < SHARED).all() else address

    def _bytes(self, addresses: np.ndarray[Any, Any], size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The memory that all addresses are in, and indices of their bytes there."""
        first = int(addresses[0])
        if first >= CONSTANT:
            number = (first - CONSTANT) // REGION
            memory, base = list(self.module.constants.values())[number], CONSTANT + number * REGION
        elif first >= SHARED:
            memory, base = self.shared, SHARED
        else:
            number = (first - GLOBAL) // REGION
            memory, base = self.memory[number], GLOBAL + number * REGION
        offsets = addresses.astype(np.int64) - base
        assert offsets.min() >= 0 and offsets.max() + size <= len(memory), "an access out of range"
        assert not (offsets % size).any(), "an access that is not aligned"
        return memory, offsets[:, None] + np.arange(size)

    def _by_memory(self, addresses: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """Indices of the threads whose addresses are in one memory."""
        regions = addresses // REGION
        return [np.flatnonzero(regions == region) for region in np.unique(regions)]

    def _space(self, instruction: Instruction) -> str:
        return next((word for word in instruction.words if word in ("shared", "global", "param", "local")), "")

    def op_ld(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        kind, space = instruction.words[-1], self._space(instruction)
        target, address = instruction.operands
        if space == "param":
            number = self.entry.parameters.index(address[1:-1])
            value = self.memory[number] if isinstance(self.memory[number], int) else GLOBAL + number * REGION
            self.write(target, np.full(len(where), value, np.uint64), where)
            return
        targets, dtype = self.each(target), TYPES[kind]
        size = dtype.itemsize * len(targets)
        addresses = self._address(address, space, where)
        self._count_banks("ld", where, addresses, size)
        values = np.zeros((len(where), size), np.uint8)
        for rows in self._by_memory(addresses):
            memory, places = self._bytes(addresses[rows], size)
            values[rows] = memory[places]
        for number, name in enumerate(targets):
            part = np.ascontiguousarray(values[:, number * dtype.itemsize : (number + 1) * dtype.itemsize])
            self.write(name, part.view(dtype)[:, 0], where)

    def op_st(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        kind = instruction.words[-1]
        address, source = instruction.operands
        if self._space(instruction) == "param":
            self.passed[address[1:-1]] = self.value(source, kind, where)
            return
        parts = [self.value(each, kind, where)[:, None].view(np.uint8) for each in self.each(source)]
        values = np.concatenate(parts, 1)
        addresses = self._address(address, self._space(instruction), where)
        self._count_banks("st", where, addresses, values.shape[1])
        for rows in self._by_memory(addresses):
            memory, places = self._bytes(addresses[rows], values.shape[1])
            memory[places] = values[rows]

    def op_call(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        name, *parameters = (each.strip("()") for each in instruction.operands)
        self.module.calls += [(name, tuple(map(int, values))) for values in zip(*map(self.passed.get, parameters))]

    def op_atom(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        words = [word for word in instruction.words if word not in MODIFIERS]
        target, address, *sources = instruction.operands if words[0] == "atom" else ["_", *instruction.operands]
        kind = words[-1]
        addresses = self._address(address, self._space(instruction), where)
        values = [self.value(source, kind, where) for source in sources]
        functions = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and}
        functions |= {"or": np.bitwise_or, "xor": np.bitwise_xor}
        for thread, each in enumerate(where):
            memory, places = self._bytes(addresses[thread : thread + 1], TYPES[kind].itemsize)
            old = memory[places[0]].view(TYPES[kind])
            here = np.array([each])
            if words[1] == "cas":
                new = values[1][thread : thread + 1] if old[0] == values[0][thread] else old
            elif words[1] == "exch":
                new = values[0][thread : thread + 1]
            else:
                new = functions[words[1]](old, values[0][thread : thread + 1])
            memory[places[0]] = np.asarray(new).view(np.uint8)
            self.write(target, old, here)

    op_red = op_atom

    def op_cp(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        """``cp.async``: the bytes come when a thread waits for their group, until then there is something else."""
        assert instruction.words[1] == "async"
        if instruction.words[2] == "commit_group":
            for thread in where:
                self.groups[thread].append([])
        elif instruction.words[2] == "wait_group":
            left = int(instruction.operands[0])
            for thread in where:
                groups = self.groups[thread]
                # The last one is open: it is committed later.
                while len(groups) - 1 > left:
                    for target, values in groups.pop(0):
                        self.shared[target : target + len(values)] = values
        else:
            self._begin_copies(instruction, where)

    def _begin_copies(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        assert instruction.words[3:] == ["shared", "global"]
        target, source, size, *read = instruction.operands
        nbytes = int(size)
        assert nbytes in ((16,) if instruction.words[2] == "cg" else (4, 8, 16))
        counts = self.value(read[0], "u32", where) if read else np.full(len(where), nbytes, np.uint32)
        targets, sources = self._address(target, "shared", where), self._address(source, "global", where)
        self._count_banks("cp", where, targets, nbytes)
        for number, thread in enumerate(where):
            count = int(counts[number])
            assert count <= nbytes
            values = np.zeros(nbytes, np.uint8)
            if count:
                memory, places = self._bytes(sources[number : number + 1], nbytes)
                values[:count] = memory[places[0, :count]]
            memory, places = self._bytes(targets[number : number + 1], nbytes)
            memory[places[0]] = 0xA5
            self.groups[thread][-1].append((int(places[0, 0]), values))

    def op_cvta(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        value = self.value(instruction.operands[1], "u64", where)
        if "shared" in instruction.words:
            value = value - np.uint64(SHARED) if "to" in instruction.words else value + np.uint64(SHARED)
        self.write(instruction.operands[0], value, where)

    # ------------------------------------------------------------ together

    def op_shfl(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        mode = instruction.words[2]
        assert len(where) % WARP == 0 and set(np.unique(where // WARP, return_counts=True)[1]) == {WARP}
        target, source, lane, clamp, _ = instruction.operands
        # In the destination's and in the source's order at once: all lanes of the warps are here.
        value, other = self.value(source, "b32", where), self.value(lane, "u32", where).astype(np.int64)
        own = where % WARP
        assert (self.value(clamp, "u32", where) == 31).all()
        from_lane = {"bfly": own ^ other, "idx": other & 31, "up": own - other, "down": own + other}[mode]
        valid = (from_lane >= 0) & (from_lane < WARP)
        places = np.searchsorted(where, where - own + np.where(valid, from_lane, own))
        register, _, predicate = target.partition("|")
        self.write(register, value[places], where)
        if predicate:
            self.write(predicate, valid, where)

    def op_vote(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        target, source, _ = instruction.operands
        assert instruction.words[1:3] == ["sync", "ballot"] and len(where) % WARP == 0
        holds = self.bits(source.removeprefix("!"), where) != source.startswith("!")
        bits = holds.reshape(-1, WARP).astype(np.uint32) << np.arange(WARP, dtype=np.uint32)
        self.write(target, np.repeat(bits.sum(1, dtype=np.uint32), WARP), where)

    def _whole_warps(self, where: np.ndarray[Any, Any]) -> int:
        assert len(where) % WARP == 0 and set(np.unique(where // WARP, return_counts=True)[1]) == {WARP}
        return len(where) // WARP

    def op_ldmatrix(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        assert {"sync", "aligned", "m8n8", "x4", "shared", "b16"} <= set(instruction.words)
        warps, (targets, address) = self._whole_warps(where), instruction.operands
        addresses = self._address(address, "shared", where)
        self._count_banks("ldmatrix", where, addresses, 16)
        memory, places = self._bytes(addresses, 16)
        words = loaded_matrices(memory[places].reshape(warps, WARP, 16), transposed="trans" in instruction.words)
        for name, value in zip(self.each(targets), words, strict=True):
            self.write(name, value, where)

    def op_mma(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        assert instruction.words[1:3] == ["sync", "aligned"] and instruction.words[4:6] == ["row", "col"]
        warps, (targets, *sources) = self._whole_warps(where), instruction.operands
        left, right, sums = (
            np.stack([self.value(name, "u32", where).reshape(warps, WARP) for name in self.each(group)])
            for group in sources
        )
        for name, value in zip(self.each(targets), multiplied(instruction.words[3:], left, right, sums), strict=True):
            self.write(name, value.reshape(-1), where)
