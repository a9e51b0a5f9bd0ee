"""Packages written for earlier versions of the hooks, frozen as they were and found by entry point, go on working."""

from __future__ import annotations

from pathlib import Path

import pytest

from .processes import run

FROZEN = Path(__file__).resolve().parents[1] / "frozen"

ACME = """
import warnings
warnings.simplefilter("error")
import hlojit, numpy as np
import hlojit.extensions as ext

records = ext.registry().load().records
print(records["acme"].api, records["acme"].package, records["acme"].error)
softplus = '''
func.func @main(%x: tensor<4x1000xf32>) -> tensor<4x1000xf32> {
  %c = stablehlo.constant dense<4.0> : tensor<4x1000xf32>
  %0 = stablehlo.divide %x, %c : tensor<4x1000xf32>
  %1 = stablehlo.custom_call @acme.softplus(%0) : (tensor<4x1000xf32>) -> tensor<4x1000xf32>
  %2 = stablehlo.convert %1 : (tensor<4x1000xf32>) -> tensor<4x1000xacme8>
  %3 = stablehlo.convert %2 : (tensor<4x1000xacme8>) -> tensor<4x1000xf32>
  return %1 : tensor<4x1000xf32>
}
'''
x = np.random.default_rng(0).standard_normal((4, 1000)).astype("f4") * 20
for backend in ("cpu", "reference", "acme"):
    np.testing.assert_allclose(hlojit.compile(softplus, backend=backend)(x), np.logaddexp(0, x.astype("f8") / 4), rtol=2e-6, atol=1e-6)
top = "func.func @main(%x: tensor<8xf32>) -> tensor<3xf32> { %0:2 = chlo.top_k(%x, k = 3) : tensor<8xf32> -> (tensor<3xf32>, tensor<3xi32>) return %0#0 : tensor<3xf32> }"
np.testing.assert_array_equal(hlojit.compile(top, backend="acme")(x[0, :8]), np.sort(x[0, :8])[:-4:-1])
f64 = "func.func @main(%x: tensor<2xf64>) -> tensor<2xf64> { %0 = stablehlo.abs %x : tensor<2xf64> return %0 : tensor<2xf64> }"
try:
    hlojit.compile(f64, backend="acme")
except hlojit.UnsupportedError as error:
    print(str(error).splitlines()[0])
print("chlo.top_k" in str(hlojit.lower(top, backend="acme")))
"""

NULL = """
import hlojit, numpy as np
import hlojit.extensions as ext

print(ext.registry().load().records["null"].api)
add = hlojit.compile("func.func @add(%x: tensor<6xf32>, %y: tensor<6xf32>) -> tensor<6xf32> { %0 = stablehlo.add %x, %y : tensor<6xf32> return %0 : tensor<6xf32> }", backend="null")
x = np.arange(6, dtype="f4")
device = hlojit.devices("null")[0]
there = hlojit.put(x, device)
result = add(add(there, there), there)
assert result.device is device
np.testing.assert_array_equal(hlojit.get(result), 3 * x)
np.testing.assert_array_equal(add.execute(x, x), 2 * x)
print(type(add(x, x)).__name__)
"""


def install(folder: Path, name: str) -> None:
    """A frozen package as pip would leave it."""
    package = folder / f"hlojit_{name}"
    package.mkdir()
    (package / "__init__.py").write_text("")
    version = next(each for each in sorted(FROZEN.iterdir()) if each.name == folder.name.replace("-", "_"))
    (package / "plugin.py").write_text((version / "plugin.py").read_text(encoding="utf-8"))
    info = folder / f"hlojit_{name}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hlojit-{name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[hlojit]\n{name} = hlojit_{name}.plugin\n")


@pytest.mark.parametrize(("package", "script", "shown"), [
    ("hlojit_acme_1_0", ACME, [
        "(1, 0) hlojit-acme", "stablehlo.abs is not supported by the back end 'acme': the device has no f64 unit", "False",
    ]),
    ("hlojit_acme_1_1", ACME, [
        "(1, 1) hlojit-acme", "stablehlo.abs is not supported by the back end 'acme': the device has no f64 unit", "True",
    ]),
    ("hlojit_null_1_1", NULL, ["(1, 1)", "ndarray"]),
])  # fmt: skip
def test_frozen_packages_go_on_working(package: str, script: str, shown: list[str], tmp_path: Path) -> None:
    folder = tmp_path / package
    folder.mkdir()
    install(folder, package.split("_")[1])
    assert [line.strip() for line in run(script, folder).splitlines()] == shown


def test_what_is_frozen_stays_as_it_was() -> None:
    """By the hashes of the files: what is changed proves nothing about old packages."""
    import hashlib

    found = {
        path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(FROZEN.glob("*/plugin.py"))
    }
    assert found == FROZEN_HASHES


FROZEN_HASHES = {
    "hlojit_acme_1_0": "eb701b8b9370a1dc",
    "hlojit_acme_1_1": "d8dc9e697c525f34",
    "hlojit_null_1_1": "ebf50f73a5f81847",
}
