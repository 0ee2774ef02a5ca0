"""One consumer, started: what the training script's own thread does."""
