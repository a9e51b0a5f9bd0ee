"""What a call of a jitted function means: its arguments, which of them are static or donated, what guards a compiled form."""
