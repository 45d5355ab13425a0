"""The virtual GPU, and launches recorded on a real one.

The C files are the libraries that a program loads instead of CUDA's: they imitate the documented interfaces, keep
contexts, memory, streams and graphs, and copy memory. `server` and `launches_served` run in a process of their own,
which loads modules and executes launches; `virtual_gpu` starts programs with the libraries. `record` stores the
launches of a program that runs on a GPU, `recording` is their format on disk, and `replay` runs them without a GPU.
"""
