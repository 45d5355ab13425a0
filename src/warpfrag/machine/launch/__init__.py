"""Launch kernels on arrays: load modules, bind arguments, run grids, report results."""
