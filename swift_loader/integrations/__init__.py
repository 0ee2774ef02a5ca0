"""How the loader fits what its users already use: one file for each framework, and nothing of it anywhere else."""
