"""Devices: their buffers and events, programs that run on them, and where several processes of one program meet."""
