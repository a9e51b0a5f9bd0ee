"""``examples/functions``: functions in plain NumPy, each compiled as it stands and compared with itself."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hlojit
import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "functions"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


def module_of(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(result: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(result, dict):
        for key, each in result.items():
            yield from leaves(each, f"{path}[{key!r}]")
    elif isinstance(result, (tuple, list)):
        for number, each in enumerate(result):
            yield from leaves(each, f"{path}[{number}]")
    else:
        yield path, result


@pytest.mark.parametrize("name", NAMES)
def test_what_is_compiled_computes_what_numpy_does(name: str) -> None:
    module = module_of(name)
    function = getattr(module, name)
    for seed in (0, 1):
        arguments = module.sample(np.random.default_rng(seed))
        own, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
        expected, found = dict(leaves(function(*own))), dict(leaves(hlojit.jit(function)(*theirs)))
        assert list(found) == list(expected)
        for path, value in expected.items():
            assert type(found[path]) is type(value), path
            if isinstance(value, str):
                assert found[path] == value
                continue
            wanted, given = np.asarray(value), np.asarray(found[path])
            assert given.dtype == wanted.dtype and given.shape == wanted.shape, path
            # Thousands of steps one after the other, in another order of additions.
            rtol = 2e-4 if wanted.dtype == np.float32 else 1e-8
            np.testing.assert_allclose(
                given, wanted, rtol=rtol, atol=rtol * float(np.abs(wanted).max(initial=0)) * 1e-2
            )
        for path, value in leaves(list(own)):
            np.testing.assert_array_equal(dict(leaves(list(theirs)))[path], value, err_msg=path)
