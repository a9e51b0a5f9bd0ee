"""A function that is compiled again and again: which argument keeps changing, said once at 16, 64 and 256 signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from hlojit.ir.errors import RetracingWarning
from hlojit.ir.warn import warn_about

_SAID_AT: Final = (16, 64, 256)
MOST_KEPT: Final = 1024
"""Signatures of one function; of more, the oldest are forgotten."""

Key = tuple[Any, ...]
"""Structure, static arguments, and what of each leaf a compiled form depends on; and more."""


def warn_of_changes(function: Callable[..., Any], name: str, keys: Iterable[Key], leaf_names: Sequence[str]) -> None:
    """Look at the keys of what is compiled for a function, after one was added."""
    made = list(dict.fromkeys(_plain(key) for key in keys))
    if len(made) not in _SAID_AT:
        return
    changing = [*_static_changes(made), *_structure_changes(made), *_leaf_changes(made, leaf_names)]
    if changing:
        warn_about(
            function,
            f"{name} has been compiled {len(made)} times: {'; '.join(changing)}. Each compilation takes time and memory: "
            "bring arrays to a few sizes (np.pad), or pass numbers as arrays",
            RetracingWarning,
        )


def warn_of_renewals(function: Callable[..., Any], name: str, count: int, changed: str) -> None:
    """Look at how often what a function reads of outside of itself was another one than before."""
    if count in _SAID_AT:
        warn_about(
            function,
            f"{name} has been traced again {count} times, since what it reads of outside of itself changed between calls, "
            f"as {changed} did now. Each compilation takes time and memory: pass what changes as an argument",
            RetracingWarning,
        )


def _plain(key: Key) -> Key:
    """Without layouts and plugins."""
    structure, static, signature = key[:3]
    return structure, static, tuple(each[:2] if not isinstance(each[0], type) else each for each in signature)


def _static_changes(keys: Sequence[Key]) -> Iterable[str]:
    values: dict[str, set[Any]] = {}
    for key in keys:
        for name, value in key[1]:
            values.setdefault(name, set()).add(value)
    for name, several in values.items():
        if len(several) > 1:
            yield f"the static argument {name} had {len(several)} values"


def _structure_changes(keys: Sequence[Key]) -> Iterable[str]:
    count = len({key[0] for key in keys})
    if count > 1:
        yield f"its arguments came in {count} different containers (keys of dictionaries, lengths of lists)"


def _leaf_changes(keys: Sequence[Key], names: Sequence[str]) -> Iterable[str]:
    same = [key[2] for key in keys if key[0] == keys[-1][0] and len(key[2]) == len(names)]
    for name, several in zip(names, zip(*same)):
        shapes = {each[1] if isinstance(each[0], type) else each[0] for each in several}
        types = {each[2] if isinstance(each[0], type) else each[1] for each in several}
        if len({len(shape) for shape in shapes}) > 1:
            yield f"{name} had {len({len(shape) for shape in shapes})} numbers of dimensions"
        else:
            for dimension, sizes in enumerate(map(set, zip(*shapes))):
                if len(sizes) > 1:
                    yield f"dimension {dimension} of {name} had {len(sizes)} sizes"
        if len(types) > 1:
            yield f"{name} had {len(types)} element types"
