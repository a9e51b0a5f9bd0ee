"""Random programs over back ends with random answers give the same bits as on one back end."""

from __future__ import annotations

import random
from collections.abc import Callable

import hlojit
import numpy as np
import pytest

from ..random_programs import RandomProgram, random_arguments
from ..random_regions import RandomRegion
from .vendor import OwnMemoryBackend, everything, random_answers

LISTS = (["one", "last"], ["one:0", "one:1", "last"], ["one:1", "other", "one:0", "last"], ["other", "one", "cpu"])


@pytest.mark.parametrize(
    ("kind", "seed"), [(RandomProgram, seed) for seed in range(24)] + [(RandomRegion, seed) for seed in range(88, 96)]
)
def test_random_programs(kind: type[RandomProgram], seed: int, registered: Callable[..., None]) -> None:
    """The latter have regions that read values from outside."""
    source = random.Random(seed)
    text, kinds = kind(source, statements=18).build()
    arguments = random_arguments(kinds, seed)
    right = hlojit.compile(text, backend="reference")(*arguments)
    registered(
        OwnMemoryBackend("one", random_answers(2 * seed), devices=2, transfer=source.choice([0.0, 1e4])),
        OwnMemoryBackend("other", random_answers(2 * seed + 1)),
        OwnMemoryBackend("last", everything(1e7)),
    )
    executable = hlojit.compile(text, backend=LISTS[seed % len(LISTS)])
    somewhere = [hlojit.put(each, source.choice(executable.devices)) for each in arguments]
    for found in (executable(*arguments), executable(*somewhere), executable.execute(*arguments)):
        for one, other in zip(_all(right), _all(found)):
            assert np.asarray(one).tobytes() == np.asarray(hlojit.get(other)).tobytes()


def _all(results: object) -> tuple[object, ...]:
    return results if isinstance(results, tuple) else (results,)
