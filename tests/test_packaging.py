"""One distribution: wheel, source archive and editable install, each used as by somebody who has only that."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = {"hlojit": "jit", "hlojit.ir": "ir", "hlojit.extensions": "extensions", "hlojit.cuda": "cuda"}
SOURCES = ("jit", "ir", "extensions", "cuda", "plugins_example", "tests", "docs", "examples", "benchmarks", "tools")

COMPILE_SOMETHING = """
import numpy as np, hlojit
text = "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> { %0 = stablehlo.tanh %x : tensor<8xf32> return %0 : tensor<8xf32> }"
x = np.arange(8, dtype="f4")
np.testing.assert_allclose(hlojit.compile(text)(x), np.tanh(x), rtol=1e-6)
np.testing.assert_allclose(hlojit.jit(lambda x: np.exp(x).sum())(x), np.exp(x).sum(), rtol=1e-6)
print(hlojit.__file__)
"""


def run(*command: str | Path, cwd: Path, status: int = 0) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree: setuptools leaves build/ and *.egg-info where it works."""
    folder = tmp_path_factory.mktemp("checkout")
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=leave)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def built(checkout: Path) -> Path:
    """The folder with the wheel and the source archive, the wheel made from the archive."""
    output = checkout / "dist"
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", output, cwd=checkout)
    return output


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., Path]:
    """Make a fresh virtual environment that sees this one's third-party packages, so that nothing is downloaded.

    It sees them through a ``.pth`` file, all but hlojit: an editable install of hlojit works by ``.pth`` files of its
    own, which Python does not read in a folder that was itself added by one.
    """

    def make(*packages: str | Path) -> Path:
        folder = tmp_path / "environment"
        venv.create(folder, symlinks=True, with_pip=False)
        site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        (site / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n")
        python = folder / "bin" / "python"
        command = ("-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed")
        for package in packages:
            run(python, *command, *(("--editable",) if Path(package).is_dir() else ()), package, cwd=tmp_path)
        return python

    return make


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_package_list_equals_the_folders() -> None:
    found = {
        ".".join((package, *path.parent.relative_to(ROOT / folder).parts))
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert sorted(found) == PROJECT["tool"]["setuptools"]["packages"]


def test_every_python_file_is_in_a_package() -> None:
    folders = {path.parent for folder in FOLDERS.values() for path in (ROOT / folder).rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


def test_the_wheel_holds_every_source_file_and_nothing_else(built: Path) -> None:
    expected = {
        f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder)}"
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel_of(built)) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == expected


def test_an_installed_wheel_compiles_from_another_folder(
    built: Path, environment: Callable[..., Path], tmp_path: Path
) -> None:
    python = environment(wheel_of(built))
    assert str(python.parent.parent) in run(python, "-c", COMPILE_SOMETHING, cwd=tmp_path)
    command = python.parent / "hlojit"
    program = ROOT / "examples" / "classifier.mlir"
    assert "valid" in run(command, "verify", program, cwd=tmp_path)
    assert "tensor<64x10xf32>" in run(command, "run", program, "--random-inputs", cwd=tmp_path)
    assert "cpu" in run(python, "-m", "hlojit", "plugins", cwd=tmp_path)
    assert "error" in subprocess.run([command, "verify", "missing"], capture_output=True, text=True, check=False).stderr


def test_an_editable_install_works_beside_nvidias_namespace(
    checkout: Path, environment: Callable[..., Path], tmp_path: Path
) -> None:
    python = environment(checkout)
    assert str(checkout / "jit") in run(python, "-c", COMPILE_SOMETHING, cwd=tmp_path)
    script = "import hlojit.cuda, cuda.bindings; print(hlojit.cuda.__file__, cuda.bindings.__file__)"
    ours, nvidias = run(python, "-c", script, cwd=checkout).split()
    assert ours == str(checkout / "cuda" / "__init__.py")
    assert not nvidias.startswith(str(checkout))


def test_a_new_plugin_passes_as_it_is_written(built: Path, environment: Callable[..., Path], tmp_path: Path) -> None:
    """Every command that its README names, in that order: installed with pip, without the network, and tried by the kit."""
    python = environment(wheel_of(built))
    run(python, "-m", "hlojit", "new-plugin", "nova", cwd=tmp_path)
    vendor = tmp_path / "hlojit-nova"
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed")
    programs = {
        "pip": lambda command, *given: (python, "-m", "pip", command, *offline, *given),
        "hlojit": lambda *given: (python.parent / "hlojit", *given),
        "pytest": lambda *given: (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *given),
    }
    commands = [shlex.split(line) for line in readme_commands(vendor)]
    printed = {shlex.join(command): run(*programs[command[0]](*command[1:]), cwd=vendor) for command in commands}
    install, listing, own, kit = printed
    assert "hlojit-nova" in printed[install] and "editable" in printed[install]
    assert "hlojit-nova" in printed[listing] and "nova.softsign" in printed[listing]
    assert "hlojit.testing" in kit and "--plugin=nova" in kit
    for tests in (own, kit):
        assert " passed" in printed[tests] and "skipped" not in printed[tests]


def readme_commands(vendor: Path) -> list[str]:
    """The block of commands of a package's README."""
    return (vendor / "README.md").read_text(encoding="utf-8").split("```")[1].strip().splitlines()


@pytest.mark.parametrize("name", ["acme", "kernels", "mx", "null", "posit"])
def test_the_example_vendors_install_and_pass_their_own_tests(
    name: str, built: Path, checkout: Path, environment: Callable[..., Path], tmp_path: Path
) -> None:
    vendor = checkout / "plugins_example" / f"hlojit-{name}"
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, vendor, cwd=tmp_path)
    python = environment(wheel_of(built), next(tmp_path.glob(f"hlojit_{name}-*.whl")))
    listing = run(python, "-m", "hlojit", "plugins", cwd=tmp_path)
    assert name in listing and f"hlojit-{name}" in listing
    tests = shutil.copytree(vendor / "tests", tmp_path / "tests")
    summary = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, cwd=tmp_path)
    assert " passed" in summary and "skipped" not in summary
