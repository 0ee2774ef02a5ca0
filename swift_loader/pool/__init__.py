"""Who makes the batches: one consumer's workers, what is said to them, and who holds each slot."""
