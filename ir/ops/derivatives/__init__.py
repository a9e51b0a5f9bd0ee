"""Derivative rules of ops: what stands in the field ``derivative`` of their records.  ``kinds`` says what a rule may be."""
