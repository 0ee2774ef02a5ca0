"""Which samples make which batch. Pure: no clock, no files, no state. It knows nothing of who makes a batch."""
