"""Folders are the pipeline, and imports go one way through it; heavy modules load when they are first needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"hlojit": "jit", "hlojit.ir": "ir", "hlojit.extensions": "extensions", "hlojit.cuda": "cuda"}

IR = ("hlojit.ir",)
EXTENSIONS = (*IR, "hlojit.extensions")
# Plans are common to all targets: they know neither a dialect nor a runtime.
LOWERING = (*IR, "hlojit.lowering")
# A dialect turns plans into text.  What makes code of text knows neither of them, only the processor.
DIALECT = (*LOWERING, "hlojit.llvm")
MACHINE_CODE = (*IR, "hlojit.lowering.target", "hlojit.machine_code", "hlojit.disk_cache")
# What back ends share that compile by the common plans: no processor is known.
CODEGEN = (*EXTENSIONS, *LOWERING, "hlojit.codegen", "hlojit.compiled", "hlojit.disk_cache", "hlojit.sized_program")
# The runtime and generated code share a table of offsets.
RUNTIME = (*IR, "hlojit.lowering.abi", "hlojit.machine_code.loading", "hlojit.runtime")
# Devices of any vendor: a plugin's back end stands on it as cuda does.
GPU = (*CODEGEN, *DIALECT, *MACHINE_CODE, "hlojit.runtime.layout", "hlojit.simt", "hlojit.gpu")
MAY_IMPORT = {
    "hlojit.ir": IR,
    "hlojit.extensions": EXTENSIONS,
    "hlojit.lowering": LOWERING,
    "hlojit.llvm": DIALECT,
    "hlojit.simt": (*DIALECT, "hlojit.simt"),
    "hlojit.simt.simulator": (*DIALECT, *MACHINE_CODE, *RUNTIME, "hlojit.simt"),
    "hlojit.machine_code": MACHINE_CODE,
    "hlojit.runtime": RUNTIME,
    "hlojit.codegen": CODEGEN,
    "hlojit.cpu": (
        *(*EXTENSIONS, *DIALECT, *MACHINE_CODE, *RUNTIME, *CODEGEN),
        *("hlojit.cpu", "hlojit.executable"),
    ),
    "hlojit.gpu": GPU,
    "hlojit.cuda": (*GPU, "hlojit.cuda"),
    "hlojit.reference": (*EXTENSIONS, "hlojit.reference"),
    "hlojit.partition": (
        *(*EXTENSIONS, *LOWERING, "hlojit.partition", "hlojit.placement", "hlojit.arrays", "hlojit.foreign_arrays"),
        *("hlojit.device_call", "hlojit.executable", "hlojit.compiled"),
    ),
    # The kit tries what a user sees; of the driver's inside it knows the stages, to say which of them is guilty.
    "hlojit.testing": (
        *EXTENSIONS,
        *(
            "hlojit.testing",
            "hlojit.compiler",
            "hlojit.kernel_report",
            "hlojit.compile_options",
            "hlojit.arrays",
            "hlojit.placement",
            "hlojit.partition.preference",
            "hlojit.tracing",
        ),
    ),
    "hlojit.new_plugin": (*EXTENSIONS, "hlojit.new_plugin"),
    # What rewrites source knows nothing of arrays or graphs: a runtime brings them.
    "hlojit.tracing.rewriting": (*IR, "hlojit.tracing.places", "hlojit.tracing.rewriting"),
    "hlojit.transforms": (*EXTENSIONS, "hlojit.tracing", "hlojit.transforms"),
    "hlojit.random": (*EXTENSIONS, "hlojit.arrays", "hlojit.tracing", "hlojit.transforms", "hlojit.random"),
    "hlojit.numpy": (*IR, "hlojit.tracing", "hlojit.numpy"),
    "hlojit.tracing": (
        *EXTENSIONS,
        "hlojit.tracing",
        "hlojit.compiler",
        "hlojit.arrays",
        "hlojit.plain_arrays",
        "hlojit.executable",
        "hlojit.costs",
        "hlojit.lowered",
        "hlojit.runtime",
    ),
}
"""What the modules of a package may import of hlojit, at module level or inside functions."""

IR_ORDER = (
    ("current_process",),
    (
        "collection",
        "location",
        "presentation",
        "code_reads",
        "known_modules",
        "fork_gate",
        "in_flight",
        "near_names",
        "unwritten",
    ),
    ("once",),
    ("errors", "outside_reads", "code_copies"),
    ("vendor_places", "named_fields"),
    ("vendor_calls", "warn", "time_limit"),
    ("format_fields",),
    ("environment", "fingerprint", "versions", "frozen", "switches", "sizes"),
    ("plugin_names",),
    ("formats", "process_identity", "size_checks"),
    ("block_formats",),
    ("types",),
    ("attributes", "quantized"),
    ("scalar", "blocks", "attribute_values"),
    ("graph",),
    ("compare", "donation", "resolution", "binary", "process_grid", "meshes"),
    ("files", "block_arrays"),
    ("ops",),
    ("builder", "interpreter"),
    ("module_checks",),
    ("verifier",),
    ("text",),
    ("passes",),
    ("transforms",),
)
"""The order inside of ``hlojit.ir``: a file or folder imports only what stands above it here.  Records (``ops``) know the
graph and element types, and neither the builder nor the text."""

EXTENSIONS_ORDER = (
    ("origins",),
    ("devices", "functions"),
    ("backends",),
    ("calls",),
    ("kernels",),
    ("registration", "machines"),
    ("binding",),
    ("legalization",),
)
"""The same for ``hlojit.extensions``: what the others stand on, what plugins write, and what asks them."""

JIT_ORDER = (
    ("progress", "donation", "disk_cache", "lowering", "nesting", "reference", "sized_program", "compile_options"),
    ("compiled", "machine_code", "llvm"),
    ("runtime", "codegen"),
    ("simt",),
    ("gpu",),
    ("block_arrays", "kept_tables"),
    ("plain_arrays", "array_codes"),
    ("arrays",),
    ("foreign_arrays",),
    ("placement",),
    ("device_call",),
    ("executable",),
    ("parallel_executable", "dynamic_executable", "bounded_executable", "refined_program"),
    ("signature_executable",),
    ("nested_executable", "sized_executable", "block_executable", "partition"),
    ("outside", "plugin_shares"),
    ("program_cache", "cpu", "pipeline"),
    ("compiler",),
    ("costs", "kernel_report", "lowered", "new_plugin"),
    ("tracing",),
    ("transforms",),
    ("random", "numpy"),
    ("testing",),
    ("command",),
    ("__main__",),
)
"""The same for the modules and folders of ``jit/``: plain data, arrays, executables, the driver, and what stands above it."""

HEAVY = ("numba", "llvmlite", "jax", "torch", "scipy", "rich")
"""Never imported at module level, except where nothing else imports the module before it is needed."""
LOADED_WHEN_NEEDED = (
    "hlojit.machine_code.foreign_ir",
    "hlojit.machine_code.loading",
    "hlojit.machine_code.object_code",
    "hlojit.machine_code.llvmlite_lock",
    "hlojit.cpu.inspection",
)


def modules() -> Iterator[tuple[str, Path]]:
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join((package, *parts)).removesuffix(".__init__"), path


def imports(path: Path, *, module_level: bool = False) -> Iterator[tuple[str, int]]:
    """Full names that a file imports, without those that only a type checker sees."""
    stack: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            # "from hlojit.ir import passes" is an import of hlojit.ir.passes, or of a name in hlojit.ir.
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            stack.extend(node.orelse)
        elif not (module_level and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))):
            stack.extend(ast.iter_child_nodes(node))


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def innermost_layer(module: str) -> str:
    """The packages in the table that hold a module lie in each other."""
    return max((layer for layer in MAY_IMPORT if within(module, (layer,))), key=len, default="")


def wrong_imports(layer: str, sources: Iterator[tuple[str, Path]]) -> list[str]:
    return [
        f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{line}: {module} imports {name}"
        for module, path in sources
        if innermost_layer(module) == layer
        for name, line in imports(path)
        if within(name, ("hlojit",)) and not within(name, MAY_IMPORT[layer])
    ]


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_imports_go_one_way(layer: str) -> None:
    assert not wrong_imports(layer, modules())


def test_plans_know_no_dialect() -> None:
    """Not in annotations either, and no plan writes text of LLVM."""
    words = ("hlojit.llvm", "getelementptr", "call void")
    faults = [
        f"{path.name}: {word!r}"
        for path in sorted((ROOT / "jit" / "lowering").glob("*.py"))
        for word in words
        if word in path.read_text(encoding="utf-8")
    ]
    assert not faults


def part_of(package: str, module: str) -> str:
    """``ops`` for ``hlojit.ir.ops.slicing`` in ``hlojit.ir``; empty for the package itself and what is outside of it."""
    return module.removeprefix(package).lstrip(".").partition(".")[0] if within(module, (package,)) else ""


def wrong_order(package: str, order: tuple[tuple[str, ...], ...], sources: Iterable[tuple[str, Path]]) -> list[str]:
    """Imports of a part of a package that does not stand above, and parts that stand nowhere."""
    rank = {part: number for number, parts in enumerate(order) for part in parts}
    faults = []
    for module, path in sources:
        part = part_of(package, module)
        if not part:
            continue
        if part not in rank:
            faults.append(f"{module} is not in the order of {package}")
            continue
        for name, line in imports(path):
            other = part_of(package, name)
            if other in rank and other != part and rank[other] >= rank[part]:
                faults.append(f"{path}:{line}: {part} imports {other}")
    return faults


def test_the_inner_folders_of_ir_have_an_order() -> None:
    assert wrong_order("hlojit.ir", IR_ORDER, modules()) == []


def test_the_folders_of_extensions_have_an_order() -> None:
    assert wrong_order("hlojit.extensions", EXTENSIONS_ORDER, modules()) == []


def test_the_modules_of_the_driver_have_an_order() -> None:
    below = {f"hlojit.{name}" for name in ("ir", "extensions", "cuda")}
    sources = [(module, path) for module, path in modules() if not within(module, tuple(below))]
    assert wrong_order("hlojit", JIT_ORDER, sources) == []


def test_the_check_sees_what_is_out_of_order(tmp_path: Path) -> None:
    path = tmp_path / "arrays.py"
    path.write_text("from hlojit.ir.types import tensor\nfrom hlojit import compiler\n")
    (fault,) = wrong_order("hlojit", JIT_ORDER, [("hlojit.arrays", path)])
    assert fault.endswith("arrays.py:2: arrays imports compiler")
    (fault,) = wrong_order("hlojit", JIT_ORDER, [("hlojit.novel", path)])
    assert fault == "hlojit.novel is not in the order of hlojit"


def file_cycles(graph: dict[str, set[str]]) -> list[frozenset[str]]:
    """Sets of modules that import each other, by Tarjan's algorithm with a stack of its own."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found: list[frozenset[str]] = []
    for root, first in graph.items():
        walk = [(root, iter(sorted(first)))] if root not in order else []
        if walk:
            order[root] = low[root] = len(order)
            open_.append(root)
        while walk:
            module, imported = walk[-1]
            following = next(imported, None)
            if following is None:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[module])
                if low[module] == order[module]:
                    members = frozenset(open_[open_.index(module) :])
                    del open_[open_.index(module) :]
                    found += [members] if len(members) > 1 else []
            elif following not in order:
                order[following] = low[following] = len(order)
                open_.append(following)
                walk.append((following, iter(sorted(graph[following]))))
            elif following in open_:
                low[module] = min(low[module], order[following])
    return found


def test_files_import_each_other_in_no_circle() -> None:
    known = dict(modules())
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        graph[module] = set()
        for imported, _ in imports(path):
            name = imported
            while name and name not in known:
                name = name.rpartition(".")[0]
            # Packages list what is public; that is no use of theirs.
            if name and name != module and name not in FOLDERS:
                graph[module].add(name)
    cycles = [sorted(name.removeprefix("hlojit.") for name in cycle) for cycle in file_cycles(graph)]
    assert not cycles, "files import each other in a circle: " + "; ".join(map(", ".join, cycles))


def test_the_check_finds_circles_of_files() -> None:
    assert file_cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert file_cycles({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}}) == [
        frozenset("de"),
        frozenset("abc"),
    ]


def test_the_check_sees_an_import_inside_a_function(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def f():\n    from hlojit import compiler\n")
    (fault,) = wrong_imports("hlojit.ir", iter([("hlojit.ir.module", path)]))
    assert fault.endswith("module.py:2: hlojit.ir.module imports hlojit.compiler")


def test_every_package_below_jit_is_in_the_table() -> None:
    packages = {f"hlojit.{path.parent.name}" for path in (ROOT / "jit").glob("*/__init__.py")}
    assert packages <= set(MAY_IMPORT)


def test_heavy_modules_are_imported_where_they_are_needed() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for module, path in modules()
        if module not in LOADED_WHEN_NEEDED
        for name, line in imports(path, module_level=True)
        if within(name, HEAVY)
    ]
    assert not faults


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    # "types" is what the word means here; it shadows nothing, since the inner folders are never on sys.path themselves.
    paths = [path for folder in FOLDERS.values() for path in (ROOT / folder).rglob("*.py")]
    names = {path.stem for path in paths} - {"__init__", "__main__", "types"}
    assert not names & sys.stdlib_module_names
    top_level = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert not top_level & sys.stdlib_module_names


def test_importing_hlojit_loads_neither_numba_nor_llvm() -> None:
    script = (
        "import sys, hlojit; hlojit.parse, hlojit.jit, hlojit.compile; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'numba', 'llvmlite', 'jax', 'scipy', 'rich'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "name",
    ["ir.tensor", "extensions.API_VERSION", "testing.Case", "cuda.__name__"],
    ids=lambda name: name.partition(".")[0],
)
def test_packages_are_there_when_hlojit_is_imported(name: str) -> None:
    script = f"import sys, hlojit; assert 'hlojit.{name.partition('.')[0]}' not in sys.modules; hlojit.{name}"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_programs_for_the_cpu_load_no_code_for_gpus() -> None:
    script = (
        "import sys, hlojit; "
        "hlojit.compile('func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {return %x : tensor<8xf32>}'); "
        "print(sorted(name for name in sys.modules if name.startswith(('hlojit.simt.', 'hlojit.gpu.', 'hlojit.lowering.grid_'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['hlojit.gpu.backend', 'hlojit.gpu.driver', 'hlojit.lowering.grid_machine']"
