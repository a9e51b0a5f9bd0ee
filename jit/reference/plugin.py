"""Entry point of the reference back end: the meaning of every op, evaluated with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.extensions import YES, Backend, Capability, CompileOptions, hookimpl, no
from hlojit.extensions.devices.device import Device
from hlojit.extensions.devices.host_device import HostDevice
from hlojit.extensions.devices.rendezvous import current_participant
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import ComplexType
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.once import Once
from hlojit.ir.switches import CPU_DEVICES

MOST_DEVICES: Final = 1024


def _make() -> tuple[Device, ...]:
    return tuple(HostDevice("reference", number) for number in range(CPU_DEVICES.count(1, most=MOST_DEVICES)))


reference_devices: Final = Once(_make)


class ReferenceBackend(Backend):
    """Evaluates programs op by op through the op records' reference semantics."""

    name = "reference"
    takes_unknown_sizes = True
    computes_with = (ComplexType, BlockFormat)

    def devices(self) -> Sequence[Device]:
        """As many as the CPU has virtual ones."""
        return reference_devices()

    def capability(self, instruction: Instruction) -> Capability:
        """Everything that has reference semantics."""
        op = instruction.op
        if op.reference is None and not op.regions and op.is_pure:
            return no("the op record has no reference semantics")
        return YES

    def compile(self, module: Module, options: CompileOptions) -> Callable[..., Sequence[Any]]:
        """Return a function that interprets the module."""
        from hlojit.ir.interpreter import evaluate

        # Results travel as they lie in memory: int4 is int8 there.
        storages = [value.tensor_type.element_type.storage for value in module.main.body.returned]

        def run(*arrays: Any) -> Sequence[Any]:
            return [
                np.asarray(result).astype(storage, copy=False)
                for result, storage in zip(evaluate(module, *arrays, process=current_participant()), storages)
            ]

        return run


@hookimpl
def hlojit_backends() -> Sequence[Backend]:
    """The reference interpreter."""
    return [ReferenceBackend()]
