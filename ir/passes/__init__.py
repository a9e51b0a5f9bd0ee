"""Graph to graph: passes, their pipeline and the rewrite rules.

>>> from hlojit.ir.passes.pipeline_text import parse_pipeline
>>> parse_pipeline("canonicalize,cse,dce").run(module)
"""
