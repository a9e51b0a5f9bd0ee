"""What the tests of mistakes share: a vendor's plugin, a program, and what a good message looks like."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

X = np.linspace(-2, 2, 50, dtype="f4")
ABS = "func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {\n%0 = stablehlo.abs %x : tensor<50xf32>\nreturn %0 : tensor<50xf32>\n}"


def nova(**hooks: Any) -> Any:
    """A plugin whose hooks return what is given: ``nova(passes=[...])``."""

    def hook(items: Any) -> Any:
        return ext.hookimpl(lambda: items)

    api = {"hlojit_api": (1, 2)}
    return SimpleNamespace(__name__="nova", **api, **{f"hlojit_{kind}": hook(items) for kind, items in hooks.items()})


def registering(plugin: Any, message: str) -> hlojit.PluginError:
    """The error that the registration of a plugin of the package hlojit-nova ends in; nothing is registered then."""
    before = set(ext.registry().load().records)
    with pytest.raises(hlojit.PluginError, match=message) as caught:
        ext.register(plugin, name="nova", package="hlojit-nova", version="0.1.0")
    assert set(ext.registry().records) == before
    return caught.value


def one_line(error: BaseException) -> str:
    """The message, which is one line that names the vendor's plugin; places in the program may follow."""
    text, *more = str(error).splitlines()
    assert len(text) < 600, text
    assert "hlojit-nova 0.1.0" in text, text
    assert all(line.startswith("  ") for line in more), error
    return text


def clean() -> Any:
    """Take what a test has registered away again; for a fixture."""
    yield
    ext.unregister("nova")
