"""What holds a vendor's first package together: its metadata, its README, its hooks."""

from __future__ import annotations

from typing import Final

PYPROJECT: Final = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "hlojit-NAME"
version = "0.1.0"
description = "TITLE for hlojit: number formats, an op, custom calls, a pass, kernels and a device"
requires-python = ">=3.11"
dependencies = ["hlojit>=0.1"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points.hlojit]
NAME = "hlojit_NAME.plugin"

[tool.setuptools]
packages = ["hlojit_NAME"]

[tool.setuptools.package-data]
hlojit_NAME = ["py.typed"]

[tool.pytest.ini_options]
testpaths = ["tests"]
addopts = "--tb=short"
"""

README: Final = """\
# hlojit-NAME

What TITLE adds to hlojit. Each thing is a module of `hlojit_NAME/` and a test of its own:

| | |
|---|---|
| `float8.py` | a number format, `NAME8`: 4 exponent bits, 3 mantissa bits, no infinities |
| `blocks.py` | a block format, `NAMEblock`: 5 bits a number, blocks of 8 with a scale in f16 |
| `softsign.py` | an op of the dialect NAME, `NAME.softsign`: x / (1 + abs(x)) |
| `swish.py` | a custom call, `NAME.swish`: x * sigmoid(x), a function of one number that fused loops contain |
| `arrays.py` | custom calls over whole arrays: `NAME.running_sum` by numba, `NAME.ranks` in Python |
| `double_negation.py` | a pass, `NAME-double-negation`: removes pairs of negations; option `limit` |
| `row_norm.py` | kernels of the CPU: `NAME.row_norm` for composites of that name, `NAME.row_norm_ops` for the same in ops |
| `device.py` | a device, `NAME`, with memory of its own and a kernel, `NAME.product`; `backend=["NAME", "cpu"]` |

`plugin.py` gives them to hlojit, by hook. `CASES` tell hlojit's kit what it cannot guess: programs, shapes, what is right.

```
pip install -e '.[test]'
hlojit plugins
pytest
pytest --pyargs hlojit.testing --plugin=NAME
```

The last command is hlojit's kit on all that the package brings, about half a minute; `-k swish` tries what has that name, and
`--hlojit-report=NAME.html` writes a page to publish. What fails comes with a program that shows it.

What is not wanted goes in three steps, here for `swish.py`: delete `hlojit_NAME/swish.py`, delete `tests/test_swish.py`, and
delete the lines of `plugin.py` that name `swish`. No module and no test needs another one.
"""

WORKFLOW: Final = """\
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        python: ["3.11", "3.13"]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: ${{ matrix.python }}
      - run: pip install -e '.[test]'
      - run: pytest -q
      - run: pytest -q --pyargs hlojit.testing --plugin=NAME
"""

INIT: Final = '''\
"""TITLE for hlojit; ``hlojit_NAME.plugin`` is what hlojit loads."""
'''

PLUGIN: Final = '''\
"""Everything that TITLE brings to hlojit, by hook.  What a module brings stands in lines that name the module."""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.extensions import Backend, BlockFormat, CustomCall, FloatFormat, Kernel, OpDefinition, Pass, hookimpl
from hlojit.testing import Case

from . import (
    arrays,
    blocks,
    device,
    double_negation,
    float8,
    row_norm,
    softsign,
    swish,
)

hlojit_api = API_VERSION
"""The version of hlojit's hooks that this package is written for."""
hlojit_cases = "hlojit_NAME.plugin"
"""The module with ``CASES``, which tell hlojit's kit how to try what types alone do not tell."""

CASES: list[Case] = [
    *arrays.CASES,
    *double_negation.CASES,
    *row_norm.CASES,
    *softsign.CASES,
    *swish.CASES,
]


@hookimpl
def hlojit_formats() -> Sequence[FloatFormat | BlockFormat]:
    """Number formats."""
    return [
        float8.FORMAT,
        blocks.ELEMENT,
        blocks.FORMAT,
    ]


@hookimpl
def hlojit_ops() -> Sequence[OpDefinition]:
    """Ops of the dialect NAME."""
    return [
        softsign.SOFTSIGN,
    ]


@hookimpl
def hlojit_custom_calls() -> Sequence[CustomCall]:
    """What targets of custom calls mean."""
    return [
        swish.SWISH,
        arrays.RUNNING_SUM,
        arrays.RANKS,
    ]


@hookimpl
def hlojit_passes() -> Sequence[Pass]:
    """Passes."""
    return [
        double_negation.DoubleNegation(),
    ]


@hookimpl
def hlojit_kernels() -> Sequence[Kernel]:
    """Kernels: code for parts of programs, each for one back end."""
    return [
        row_norm.COMPOSITE,
        row_norm.SPELLED_OUT,
        device.PRODUCT,
    ]


@hookimpl
def hlojit_backends() -> Sequence[Backend]:
    """Back ends."""
    return [
        device.Device(),
    ]
'''

TEST_PLUGIN: Final = '''\
"""hlojit finds the plugin.  What each module brings is tested by a file of its own."""

from __future__ import annotations

from hlojit.extensions import registry


def test_the_plugin_is_found() -> None:
    record = registry().load().records["NAME"]
    assert record.package == "hlojit-NAME" and not record.error
'''
