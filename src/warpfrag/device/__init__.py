"""The virtual GPU, and the recording and replay of launches on a real one.

The C files are the libraries that a program loads instead of CUDA's: they implement the documented interfaces, manage
contexts, memory, streams and graphs, and copy memory. `server` and `launches_served` run in a separate process, which
loads modules and executes launches; `virtual_gpu` starts programs with these libraries. `record` stores the launches of
a program that runs on a GPU, `recording` defines their format on disk, and `replay` runs them without a GPU.
"""
