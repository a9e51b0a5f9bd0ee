"""Fixed programs: what they launch, in order, over places that do not change while they run.

point   cell 7 <- place 3            launch f(place 3)
launch  f(cell 7)              ->    copy   place 3 <- place 4
exchange cells 7, 8                  ...
"""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.gpu.operations import CopyBytes, LaunchKernel, Operation, Place, SetCell, SwapCells


def straightened(code: Sequence[Operation]) -> list[LaunchKernel | CopyBytes]:
    """Launches and copies of a fixed program, with the addresses in cells followed."""
    cells: dict[int, Place] = {}

    def followed(place: Place) -> Place:
        cell = cells.get(place.slot)
        return place if cell is None else Place(cell.slot, cell.offset + place.offset)

    steps: list[LaunchKernel | CopyBytes] = []
    for each in code:
        if isinstance(each, LaunchKernel):
            places = tuple(map(followed, each.places))
            steps.append(LaunchKernel(each.kernel, each.symbol, each.grid, places, each.what, each.library))
        elif isinstance(each, CopyBytes):
            steps.append(CopyBytes(followed(each.target), followed(each.source), each.nbytes))
        elif isinstance(each, SetCell):
            cells[each.slot] = followed(each.target)
        else:
            assert isinstance(each, SwapCells), each
            cells[each.first], cells[each.second] = cells[each.second], cells[each.first]
    return steps
