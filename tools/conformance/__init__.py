"""What of StableHLO and CHLO works: suites that other people wrote, run program by program.

    make conformance STABLEHLO=<checkout of openxla/stablehlo>      # the checkout's suites
    make conformance-jax                                            # the harnesses of the jax wheel
    python -m tools.conformance --stablehlo <checkout> --suite math --filter acos

``suites.py`` finds the programs, ``tasks.py`` runs one of them in a worker process, ``workers.py`` gives every program its
time and names the one that ends a process, ``report.py`` writes tables and failures.
"""
