"""The passes that a program goes through for a back end: hlojit's own and those of plugins, in their order.

    pipeline = default_pipeline(backend, options)       # what runs, as data
    lower(module, backend, options)                     # runs it, and asks the back end in the middle

What plugins' passes build is legalized at the end of the phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from hlojit.extensions import Backend, CompileOptions, registry
from hlojit.extensions.backends.fusion_policy import fusion_policy
from hlojit.extensions.backends.registered import RegisteredPass
from hlojit.extensions.binding import refined_call
from hlojit.extensions.kernels.selection import KernelSelection, declined_by, selections
from hlojit.extensions.legalization import Legalization, Legalizer
from hlojit.extensions.registration.pass_places import warn_of_places
from hlojit.ir.environment import tables
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.graph import Module
from hlojit.ir.near_names import unknown
from hlojit.ir.passes.pass_manager import PHASES, Pass, PassCallback, PassEvent, PassPipeline, VerifyMode, order_passes
from hlojit.ir.passes.pass_options import with_options
from hlojit.ir.passes.shape_refinement import ShapeRefinement

_LAST_UNFUSED_PHASE = "before-fusion"
"""At its end the back end is asked whether it can do the program."""


def legalizer_of(backend: Backend, options: CompileOptions, *, open_sizes: bool = False) -> Legalizer:
    """The part of a back end, or of those of a list, in legalization."""
    if not backend.joint_members:
        return Legalizer(backend, options, open_sizes)
    from hlojit.partition.joint import JointLegalizer

    return JointLegalizer(backend, options, open_sizes)


def lower(
    module: Module,
    backend: Backend,
    options: CompileOptions,
    *,
    callback: PassCallback | None = None,
    open_sizes: bool = False,
    is_segment: bool = False,
) -> Module:
    """Run the default pipeline for ``backend`` on ``module`` in place and return it.

    ``open_sizes``: the module is to be compiled once for all sizes of its arguments.  ``is_segment``: it is a part of a program
    that plugins' passes for all back ends have seen.
    Raises ``UnsupportedError`` for what the back end cannot do, of the program and of what late passes have built.
    """
    pipeline = default_pipeline(backend, options, open_sizes=open_sizes, is_segment=is_segment)
    late = PHASES[PHASES.index(_LAST_UNFUSED_PHASE) + 1 :]
    before = replace(pipeline, passes=tuple(pass_ for pass_ in pipeline.passes if pass_.phase not in late))
    after = replace(pipeline, passes=tuple(pass_ for pass_ in pipeline.passes if pass_.phase in late))
    legalizer, mode = legalizer_of(backend, options, open_sizes=open_sizes), cast(VerifyMode, options.verify)
    limit = options.pass_time_limit
    before.run(module, verify=mode, callback=callback, time_limit=limit)
    declined = declined_by(before.passes)
    legalizer.check(module, declined)
    built: list[str] = []

    def note(event: PassEvent) -> None:
        if event.changed and event.pass_.name in after.packages:
            built.append(event.pass_.name)
        if callback is not None:
            callback(event)

    after.run(module, verify=mode, callback=note, time_limit=limit)
    if built:
        legalizer.check(module, declined)
    return module


def default_pipeline(
    backend: Backend, options: CompileOptions, *, open_sizes: bool = False, is_segment: bool = False
) -> PassPipeline:
    """hlojit's passes and those of the plugins, in their order for a back end.

    With ``open_sizes`` those of hlojit's that take programs for all sizes at once; raises ``UnsupportedError`` where a
    plugin's pass does not.
    """
    from hlojit.ir.passes.registry import default_passes
    from hlojit.ir.passes.stochastic_rounding import StochasticRounding

    legalizer = legalizer_of(backend, options, open_sizes=open_sizes)
    again = Legalization(legalizer=legalizer, fold_limit=options.fold_limit)
    brought = brought_passes(backend, is_segment=is_segment)
    legalization: list[Pass] = list(legalizer.passes())
    if open_sizes:
        # Expansions say no more of sizes than they know.
        legalization.append(ShapeRefinement(refine_call=refined_call).in_phase("legalize"))
    choosing = selections(backend, options.pass_time_limit)
    passes = [
        *default_passes(
            options.fold_limit,
            legalization=legalization,
            limits=backend.fusion_limits,
            policy=fusion_policy(backend),
        ),
        *(each.pass_ for each in brought),
        *(pass_ for pass_ in choosing if pass_.phase != _LAST_UNFUSED_PHASE),
    ]
    packages = {each.pass_.name: each.source for each in brought if each.source}
    if options.disable_passes or options.pass_options:
        passes = _chosen_by_name(passes, options, again, packages)
    warn_of_places([*passes, again])
    chosen: Iterable[Pass] = (pass_ for pass_ in passes if backend.fuses or not pass_.needs_fusions)
    if is_segment:
        # Roundings have their numbers from the whole program, and what calls have become since has none.
        chosen = (pass_ for pass_ in chosen if not isinstance(pass_, StochasticRounding))
    if open_sizes:
        chosen = _of_open_sizes(chosen, {each.pass_.name: each.source for each in brought})
    ordered = order_passes(chosen, packages)
    if again.name not in options.disable_passes:
        ordered = replace(ordered, passes=tuple(_legalized_again(ordered, again)))
    if open_sizes or not choosing or KernelSelection.name in options.disable_passes:
        return ordered
    return replace(ordered, passes=tuple(_before_fusion(ordered, choosing)))


def _chosen_by_name(
    passes: Sequence[Pass], options: CompileOptions, again: Legalization, packages: Mapping[str, str]
) -> list[Pass]:
    """The passes without those that the caller leaves out, and with the options that the caller sets.

    Passes of other back ends may be named: one set of options serves for several.
    """
    known = {again.name, KernelSelection.name, *(pass_.name for pass_ in passes), *registry().pass_names()}
    for what, names in (("disable_passes", options.disable_passes), ("pass_options", options.pass_options)):
        for name in names:
            if name not in known:
                raise HlojitError(f"{what}: {unknown('pass', name, known)}{tables().failures()}")

    def with_its_options(pass_: Pass) -> Pass:
        chosen = options.pass_options.get(pass_.name)
        origin = f" ({packages[pass_.name]})" if pass_.name in packages else ""
        return pass_ if not chosen else with_options(pass_, chosen, origin)

    return [with_its_options(pass_) for pass_ in passes if pass_.name not in options.disable_passes]


def brought_passes(backend: Backend, *, is_segment: bool) -> list[RegisteredPass]:
    """The plugins' passes for a back end.

    Of several back ends those that are for all of them, up to the capability check; a segment sees of these what comes behind it.
    """
    late = PHASES[PHASES.index(_LAST_UNFUSED_PHASE) + 1 :]
    found = registry().passes(backend.name)
    if backend.joint_members:
        return [each for each in found if each.pass_.phase not in late]
    if not is_segment:
        return found
    return [each for each in found if each.pass_.targets or each.pass_.phase in late]


def _of_open_sizes(passes: Iterable[Pass], packages: Mapping[str, str]) -> Iterator[Pass]:
    """The passes for a program that is compiled once for all sizes."""
    for pass_ in passes:
        if pass_.open_sizes:
            yield pass_
        elif pass_.name in packages:
            package = packages[pass_.name]
            named = f"the pass {pass_.name!r}{f' ({package})' if package else ''}"
            raise UnsupportedError("the program", "", f"{named} takes no programs whose sizes are open (open_sizes)")


def _legalized_again(pipeline: PassPipeline, again: Legalization) -> Iterator[Pass]:
    """The passes with a legalization behind every phase in which a plugin takes part, and before the check."""
    for phase in PHASES:
        members = [pass_ for pass_ in pipeline.passes if pass_.phase == phase]
        yield from members
        # In the phases before, legalization is still to come.
        if phase == _LAST_UNFUSED_PHASE:
            yield again.in_phase(phase)
        elif phase != "import" and any(pass_.name in pipeline.packages for pass_ in members):
            yield again.of_changes(phase)


def _before_fusion(pipeline: PassPipeline, choosing: Sequence[Pass]) -> Iterator[Pass]:
    """The passes with kernels of plugins chosen as the last thing before what is left has to be the back end's."""
    late = PHASES[PHASES.index(_LAST_UNFUSED_PHASE) + 1 :]
    yield from (pass_ for pass_ in pipeline.passes if pass_.phase not in late)
    yield from (pass_ for pass_ in choosing if pass_.phase == _LAST_UNFUSED_PHASE)
    yield from (pass_ for pass_ in pipeline.passes if pass_.phase in late)
