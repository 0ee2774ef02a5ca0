"""Who makes the batches: one consumer's workers, what is said to them, and what is done about how they end."""
