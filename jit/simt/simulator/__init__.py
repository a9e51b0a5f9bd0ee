"""Kernels of machines with threads on the host's processor: every access checked, races and missing barriers reported.

    code = emit_elementwise(body, simulated_target(machine), SimulatorDialect(), "kernel")
    module = SimulatedModule([assemble(code)], ["kernel"])
    module.launch("kernel", addresses, blocks, threads)

``dialect.py`` gives kernels their form here: a function over ranges of blocks, like the CPU's kernels, around the function of
one thread, which is a coroutine where the thread waits for others.  ``checks.py`` puts a check before every access.
``scheduler.ll`` and ``races.ll`` are what they call.  It is slow, and what it says about speed means nothing.
"""
