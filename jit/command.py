"""The command ``hlojit`` (also ``python -m hlojit``)."""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hlojit.ir.errors import HlojitError, PluginWarning


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status (0 good, 1 an error in the input, 2 wrong usage)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough; Python itself must not try to flush again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (HlojitError, OSError, ValueError) as error:
        print(f"hlojit: error: {error}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hlojit", description="Compile, run and inspect StableHLO programs.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="compile a program and run it")
    _file(run)
    run.add_argument("--input", nargs="+", action="extend", default=[], metavar="X.npy", help="arguments, in order")
    run.add_argument("--random-inputs", action="store_true", help="make up arguments (fixed seed)")
    run.add_argument("--output", metavar="Y.npz", help="write the results to a file")
    run.add_argument("--backend", help="names of back ends or devices, such as nova:1,cpu (see: hlojit plugins)")
    run.add_argument("--repeat", type=int, default=1, metavar="N", help="run N times and print the least time")
    run.set_defaults(run=_run)

    opt = commands.add_parser("opt", help="run passes and print the program")
    _file(opt)
    opt.add_argument("-p", "--passes", help="name,name{option=value},... (default: the compiler's own pipeline)")
    opt.add_argument("--backend", default="cpu", help="whose default pipeline")
    opt.add_argument("--list", action="store_true", help="list the passes and stop")
    opt.set_defaults(run=_opt)

    parse = commands.add_parser("parse", help="read a program and print it back")
    _file(parse)
    parse.add_argument("--allow-unregistered", action="store_true", help="keep ops that nobody registered")
    parse.set_defaults(run=_parse)

    verify = commands.add_parser("verify", help="check a program against the specification")
    _file(verify)
    verify.add_argument("--allow-unregistered", action="store_true", help="pass over ops that nobody registered")
    verify.set_defaults(run=_verify)

    plugins = commands.add_parser("plugins", help="list plugins and what they brought")
    plugins.set_defaults(run=_plugins)

    devices = commands.add_parser("devices", help="list what programs can run on, and why what is not there is not")
    devices.set_defaults(run=_devices)

    roofline = commands.add_parser("roofline", help="estimate what the kernels of a program take at least on a GPU")
    _file(roofline)
    roofline.add_argument("--backend", default="cuda", help="a back end for machines with threads")
    roofline.set_defaults(run=_roofline)

    from hlojit.testing.command import add_commands

    add_commands(commands)

    kernels = commands.add_parser("kernels", help="say which kernels of plugins a program takes, and why not others")
    _file(kernels)
    kernels.add_argument("--backend", help="names of back ends or devices, such as nova:1,cpu (see: hlojit plugins)")
    kernels.set_defaults(run=_kernels)

    cache = commands.add_parser("cache", help="show what is kept on disk, or remove it")
    cache.add_argument("--clear", action="store_true", help="remove every entry")
    cache.set_defaults(run=_cache)

    new_plugin = commands.add_parser(
        "new-plugin", help="write a package with formats, an op, calls, a pass, kernels and a device"
    )
    new_plugin.add_argument("name", help="a lower-case word: the package is hlojit-NAME, its dialect NAME")
    new_plugin.add_argument("--path", metavar="FOLDER", help="where to (default: hlojit-NAME)")
    new_plugin.set_defaults(run=_new_plugin)

    machine = commands.add_parser("machine", help="print the machine model that plans are derived from")
    machine.add_argument("--measure", action="store_true", help="measure the bandwidth of memory (for HLOJIT_MACHINE)")
    machine.set_defaults(run=_machine)
    return parser


def _file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="StableHLO text (default, or -: standard input)"
    )


def _read(options: argparse.Namespace) -> tuple[str, str]:
    if options.file == "-":
        return sys.stdin.read(), "<stdin>"
    try:
        return Path(options.file).read_text(encoding="utf-8"), options.file
    except UnicodeDecodeError as error:
        raise HlojitError(f"{options.file} is no text ({error}): this command reads StableHLO text") from None


def _module(options: argparse.Namespace) -> Any:
    from hlojit.compiler import parse

    text, name = _read(options)
    return parse(text, source_name=name, allow_unregistered=getattr(options, "allow_unregistered", False))


def _run(options: argparse.Namespace) -> int:
    from hlojit.compiler import compile as compile_module

    module = _module(options)
    start = time.perf_counter()
    executable = compile_module(module, backend=options.backend)
    print(f"compiled in {time.perf_counter() - start:.3f} s", file=sys.stderr)
    nesting = getattr(executable, "nesting", None)
    # The files and results of a program with tuples are those of their elements.
    underneath = executable if nesting is None else executable.flat
    arrays = _arguments(options, underneath.input_types)
    seconds = []
    for _ in range(max(1, options.repeat)):
        start = time.perf_counter()
        results = underneath(*arrays)
        seconds.append(time.perf_counter() - start)
    print(f"ran in {min(seconds) * 1e3:.3f} ms", file=sys.stderr)
    if executable.dynamic_shapes != "static":
        print(_how_shapes_were_treated(executable), file=sys.stderr)
    results = results if isinstance(results, tuple) else (results,)
    if options.output:
        np.savez(options.output, *[np.asarray(result) for result in results])
        return 0
    names = range(len(results)) if nesting is None else nesting.result_names
    for name, result, kind in zip(names, results, underneath.output_types):
        print(f"result {name}: {kind.refined(np.shape(result))}\n{result}")
    return 0


def _how_shapes_were_treated(executable: Any) -> str:
    """What the program that leaves sizes open was compiled for, and why."""
    what = "all shapes" if executable.dynamic_shapes == "symbolic" else "these shapes"
    why = f", because {executable.why}" if executable.why else ""
    return f"compiled for {what} (dynamic_shapes: {executable.dynamic_shapes}{why})"


def _arguments(options: argparse.Namespace, types: Sequence[Any]) -> list[Any]:
    if options.random_inputs:
        if options.input:
            raise HlojitError("give either --input or --random-inputs")
        for number, kind in enumerate(types):
            if not kind.is_static:
                raise HlojitError(
                    f"argument {number} of type {kind} has no one shape; give --input instead of --random-inputs"
                )
        generator = np.random.default_rng(0)
        return [random_array(generator, kind) for kind in types]
    if len(options.input) != len(types):
        listing = ", ".join(map(str, types))
        raise HlojitError(
            f"the program takes {len(types)} arguments ({listing}), {len(options.input)} files were given; "
            "give one --input X.npy for each, or --random-inputs"
        )
    return [_loaded(path, kind) for path, kind in zip(options.input, types)]


def _loaded(path: str, kind: Any) -> Any:
    """The array of a file; numbers for an argument in blocks are encoded."""
    from hlojit.arrays import Array
    from hlojit.ir.ops.block_arithmetic import block_format

    format, found = block_format(kind), np.load(path)
    return found if format is None else Array.from_values(found, format)


def random_array(generator: np.random.Generator, kind: Any) -> Any:
    """Made-up elements of a tensor type: floats around 0, small integers."""
    from hlojit.arrays import Array

    element = kind.element_type
    storage = element.storage
    if storage.kind in "iub":
        return generator.integers(0, 2 if element.bits < 4 else 8, kind.shape).astype(element.dtype)
    values = generator.standard_normal(kind.shape)
    if element.dtype is None:
        return Array.from_values(values, element.name)
    return values.astype(element.dtype)


def _opt(options: argparse.Namespace) -> int:
    from hlojit.compiler import DEFAULT_BACKEND, default_pipeline
    from hlojit.extensions import CompileOptions, registry
    from hlojit.ir.passes.pipeline_text import parse_pipeline
    from hlojit.ir.passes.registry import known_passes
    from hlojit.placement import named_backend

    backend = options.backend or DEFAULT_BACKEND
    brought = {each.pass_.name: each for each in registry().all_passes()}
    known: dict[str, Any] = {**known_passes(), **{name: each.pass_ for name, each in brought.items()}}
    if options.list:
        for name in sorted({kind.name for kind in known.values()}):
            summary = _summary(known[name])
            elsewhere = _other_targets(brought[name], backend) if name in brought else ""
            print(f"{name:36} {known[name].phase:16} {summary}{f' (for {elsewhere})' if elsewhere else ''}")
        return 0
    module = _module(options)
    if options.passes is None:
        pipeline = default_pipeline(named_backend(options.backend), CompileOptions())
    else:
        packages = {name: each.source for name, each in brought.items()}
        pipeline = replace(parse_pipeline(options.passes, known), packages=packages)
        for name in dict.fromkeys(pass_.name for pass_ in pipeline.passes if pass_.name in brought):
            if elsewhere := _other_targets(brought[name], backend):
                print(
                    f"hlojit: note: the pass {name!r} ({packages[name]}) is for {elsewhere}, and in no pipeline of {backend!r}",
                    file=sys.stderr,
                )
    pipeline.run(module, verify="always")
    print(module)
    return 0


def _summary(pass_: Any) -> str:
    """The first line of what is written about a pass: of hlojit's own in its module, of others in the class."""
    kind = pass_ if isinstance(pass_, type) else type(pass_)
    text = sys.modules[kind.__module__].__doc__ if pass_ is kind else kind.__doc__
    return (text or "").strip().partition("\n")[0]


def _other_targets(found: Any, backend: str) -> str:
    """The back ends that a plugin's pass is for, if this is none of them."""
    targets = found.pass_.targets
    return "" if not targets or backend in targets else f"the back end {' and '.join(map(repr, sorted(targets)))}"


def _parse(options: argparse.Namespace) -> int:
    print(_module(options))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from hlojit.compiler import verify

    module = _module(options)
    verify(module, allow_unregistered=options.allow_unregistered)
    count = sum(1 for _ in module.walk())
    print(f"{options.file}: valid ({len(module.functions)} functions, {count} instructions)")
    return 0


def _plugins(options: argparse.Namespace) -> int:
    from hlojit.extensions import API_VERSION, registry
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    console = Console()
    columns = [Column(each, overflow="fold") for each in ("plugin", "package", "hooks", "brings", "status")]
    table = Table(*columns, title=f"hlojit plugins (hooks {_dotted(API_VERSION)})")
    with warnings.catch_warnings():
        # What could not be loaded is listed below.
        warnings.simplefilter("ignore", PluginWarning)
        records = registry().load().records
    for name, record in sorted(records.items()):
        brings = [
            *(f"back end {backend.name}" for backend in record.backends),
            *(f"format {row.name}" for row in record.formats),
            *(f"op {op.name}" for op in record.ops),
            *(f"pass {pass_.name} ({pass_.phase})" for pass_ in record.passes),
            *(f"custom call {call.target} ({call.level})" for call in record.custom_calls),
            *(f"kernel {kernel.name} ({kernel.backend})" for kernel in record.kernels if not record.built_in),
        ]
        unavailable = [reason for backend in record.backends if (reason := _status(backend))]
        status = "not loaded" if record.error else "; ".join(unavailable) or "ok"
        package = f"{record.package} {record.version}".strip()
        # What plugins say may look like markup: hlojit[cuda].
        table.add_row(*map(escape, (name, package, _dotted(record.api), "\n".join(brings), status)))
    console.print(table)
    for name, record in sorted(registry().records.items()):
        if record.error:
            console.print(f"\n[bold]{name}[/bold] was not loaded:", highlight=False)
            console.print(record.error, markup=False, highlight=False)
    return 0


def _devices(options: argparse.Namespace) -> int:
    from hlojit.extensions import registry
    from hlojit.extensions.backends.backend_checks import devices_of, why_unavailable
    from hlojit.placement import default_backend
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    table = Table(*(Column(each, overflow="fold") for each in ("device", "kind", "memory", "description")))
    lines = []
    for name, backend in sorted(registry().load().backends.items()):
        try:
            reason = why_unavailable(backend)
            found = () if reason else devices_of(backend)
        except HlojitError as error:
            reason, found = str(error), ()
        for device in found:
            spaces = ", ".join(space.kind for space in device.memory_spaces)
            table.add_row(*map(escape, (str(device), device.kind, spaces, device.description)))
        if reason:
            lines.append(f"{name}: {reason}")
        else:
            lines.extend(_notes(backend))
    console = Console()
    console.print(table)
    for line in lines:
        console.print(line, markup=False, highlight=False)
    console.print(f"programs run on {default_backend()} where nothing else is asked for", highlight=False)
    return 0


def _status(backend: Any) -> str:
    """Why a back end cannot be used, or what is wrong with its answer."""
    from hlojit.extensions.backends.backend_checks import why_unavailable

    try:
        return why_unavailable(backend)
    except HlojitError as error:
        return str(error)


def _notes(backend: Any) -> Sequence[str]:
    from hlojit.extensions.origins import backend_text
    from hlojit.ir.vendor_calls import call_named

    try:
        return [str(line) for line in call_named(lambda: f"{backend_text(backend.name)}: notes", backend.notes)]
    except HlojitError as error:
        return [str(error)]


def _roofline(options: argparse.Namespace) -> int:
    from hlojit.compiler import lower
    from hlojit.extensions import CompileOptions
    from hlojit.gpu.backend import GpuBackend
    from hlojit.gpu.roofline import estimates, table
    from hlojit.placement import named_backend

    backend = named_backend(options.backend)
    if not isinstance(backend, GpuBackend):
        raise HlojitError(f"the back end {backend.name!r} is none for machines with threads")
    if reason := backend.unavailable():
        raise HlojitError(f"the back end {backend.name!r} cannot be used here: {reason}")
    module = lower(_module(options), backend, CompileOptions())
    print(table(estimates(backend, module), backend.devices()[0].kind))
    return 0


def _kernels(options: argparse.Namespace) -> int:
    from hlojit.kernel_report import kernel_report

    print(kernel_report(_module(options), backend=options.backend))
    return 0


def _cache(options: argparse.Namespace) -> int:
    from hlojit.disk_cache import KINDS, DiskCache, folder_setting, limit_setting, reason_against

    folder = folder_setting()
    if folder is None:
        print("the cache is off (HLOJIT_CACHE)")
        return 0
    reason = reason_against(folder)
    if reason:
        print(f"the cache is not used: {reason}")
        return 0
    cache = DiskCache(folder, limit_setting())
    entries = list(cache.entries())
    if options.clear:
        print(f"removed {cache.clear()} entries from {folder}")
        return 0
    total = sum(entry.nbytes for entry in entries)
    print(f"{folder}: {total / 1e6:,.1f} of {cache.limit / 1e6:,.0f} MB")
    for kind in KINDS:
        chosen = [entry.nbytes for entry in entries if entry.kind == kind]
        print(f"  {kind:9} {len(chosen):6,} entries {sum(chosen) / 1e6:10,.1f} MB")
    return 0


def _new_plugin(options: argparse.Namespace) -> int:
    from hlojit.new_plugin import write_plugin

    folder = Path(options.path or f"hlojit-{options.name}")
    for path in write_plugin(options.name, folder):
        print(path)
    print(f"next: pip install -e '{folder}[test]' && pytest {folder}")
    return 0


def _machine(options: argparse.Namespace) -> int:
    from hlojit.cpu.bandwidth import with_measured_bandwidth
    from hlojit.cpu.processor import host_target

    machine = host_target().machine
    print(with_measured_bandwidth(machine) if options.measure else machine)
    return 0


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
