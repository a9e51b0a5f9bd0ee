"""Several back ends as one: what the driver compiles for, when it is given a list of them.

A program for ``["nova", "cpu"]`` goes through the same stages as for one back end, up to the capability check; then it is
taken apart, and each part goes through all stages of the back end that it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from hlojit.extensions import Backend, Capability, CompileOptions, Device, Support
from hlojit.extensions.backends.backend_checks import devices_of, why_unavailable
from hlojit.extensions.binding import reason_against_devices
from hlojit.extensions.kernels.selection import is_offered
from hlojit.extensions.legalization import Legalizer, program_instructions
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.graph import Instruction, Module
from hlojit.partition.candidates import Candidates
from hlojit.placement import find_device


@final
@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A device of the list, and the number of its back end among those of the list; equal to itself only."""

    device: Device
    member: int

    def __str__(self) -> str:
        return str(self.device)


TakeApart = Callable[[Module, "JointBackend", CompileOptions], Any]
"""Makes an executable of a program that the back ends can do together."""


@final
class JointBackend(Backend):
    """The back ends of a list, the preferred one first."""

    def __init__(self, members: Sequence[Backend], places: Sequence[Place], take_apart: TakeApart):
        self.name = "+".join(map(str, places))
        self.members = self.joint_members = tuple(members)
        self.places = tuple(places)
        self.computes_with = tuple(  # type: ignore[misc]  # of an instance: each list has its own
            kind for kind in members[0].computes_with if all(kind in each.computes_with for each in members)
        )
        self._take_apart = take_apart

    def devices(self) -> Sequence[Device]:
        """Those of the list."""
        return [place.device for place in self.places]

    def capability(self, instruction: Instruction) -> Capability:
        """Yes, if one of them says so."""
        answers = [each.capability(instruction) for each in self.members]
        return next((each for each in answers if each.support is Support.YES), answers[-1])

    def compile(self, module: Module, options: CompileOptions) -> Any:
        """Take the program apart; what comes back is an executable."""
        return self._take_apart(module, self, options)


@dataclass(frozen=True, eq=False)
class JointLegalizer(Legalizer):
    """Legalization for a list of back ends: what one of them takes as it is, stays as it is."""

    def members(self) -> list[Legalizer]:
        """Of the back ends."""
        assert isinstance(self.backend, JointBackend)
        return [Legalizer(each, self.options, self.open_sizes) for each in self.backend.members]

    def keeps(self, instruction: Instruction) -> bool:
        """Whether one of them takes it, or has kernels of plugins for it: they are asked when the program is taken apart.

        So is a call that is for some of them only: what it expands into would be for all.
        """
        members = self.members()
        if any(each.keeps(instruction) or is_offered(each.backend, instruction) for each in members):
            return True
        refusals = [reason_against_devices(instruction, each.names) for each in members]
        return any(refusals) and not all(refusals)

    def check(self, module: Module, declined: Callable[[Instruction], str] = lambda _: "") -> None:
        """Raise ``UnsupportedError`` for the first instruction that none of them can do, with the reason of each."""
        found = Candidates(module, self.members(), self.backend.name)
        for instruction in program_instructions(module):
            found.check(instruction, declined)


def joint_backend(names: Sequence[Any], backend_of: Callable[[str], Backend], take_apart: TakeApart) -> JointBackend:
    """The back ends of a list of names: ``"nova"`` is the first device of that back end, ``"nova:1"`` its device 1."""
    if not names:
        raise ArgumentError("backend=[] names no back end")
    members: dict[str, Backend] = {}
    places: dict[str, Place] = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise ArgumentError(
                f"backend=[...] holds names of back ends or devices, such as 'cpu' or 'nova:1', not {name!r}"
            )
        backend = backend_of(name.partition(":")[0])
        if reason := why_unavailable(backend):
            raise HlojitError(f"the back end {backend.name!r} cannot be used here: {reason}")
        members.setdefault(backend.name, backend)
        device = find_device(name) if ":" in name else devices_of(backend)[0]
        if str(device) in places:
            raise ArgumentError(f"backend={list(names)!r} names the device {device} twice")
        places[str(device)] = Place(device, list(members).index(backend.name))
    return JointBackend(list(members.values()), list(places.values()), take_apart)
