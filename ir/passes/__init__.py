"""Graph to graph: passes, their pipeline and the rewrite rules.

>>> from hlojit.ir.passes.pass_manager import parse_pipeline
>>> parse_pipeline("canonicalize,cse,dce").run(module)
"""
