"""The child: one process that makes batches. It knows nothing of the trainer but what it is told."""
