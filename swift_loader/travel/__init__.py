"""How a dataset gets into a worker, and what else that would have had, had the script started it itself."""
