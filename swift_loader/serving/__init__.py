"""A loader as a server: it makes the batches of loaders that are connected to it, on this machine or others."""
