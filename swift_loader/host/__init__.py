"""The machine: memory, processes, files, limits. It does not know that there are loaders."""
