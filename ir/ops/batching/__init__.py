"""Batching rules of ops: what stands in the field ``batching`` of their records.  ``kinds`` says what a rule may be."""
