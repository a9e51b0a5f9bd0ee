"""What back ends share that compile HLO by the common plans: kernels by content, what can be compiled, compiled programs.

Nothing here knows a processor: a back end brings its target, its emitters and an assembler.
"""
