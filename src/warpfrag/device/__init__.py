"""The virtual GPU, and launches recorded on a real one.

`record` stores the launches of a program that runs on a GPU, `recording` is their format on disk, and `replay` runs
them without a GPU.
"""
