"""Measurements, one question per file: ours, torch's own DataLoader and the machine's ceiling in one interleaved run.

Run one with `python -m benchmarks.<question>`, all with `python -m benchmarks.all`. Nothing here is part of the
installed package, and the ceilings never import swift_loader.
"""
