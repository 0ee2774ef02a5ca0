"""Samples that are kept: on disk or in memory, once per host, and read back instead of asking the dataset.

    kept.py        the dataset with what is kept in front of it; what the loader asks
    store.py       what is kept, and who makes what is missing
    files.py       the files of a store: opened, checked, made anew       index.py   its index, as it lies there
    entry.py       where one sample lies, in 64 bytes                     reader.py  bytes out of the files
    form.py        what a sample looks like: its bytes, told once         room.py    which part of the data file is free
    locks.py       who makes a sample, and who else waits for it

Knows nothing of workers, batches' order or slots: those who ask give arrays to be filled.
"""
