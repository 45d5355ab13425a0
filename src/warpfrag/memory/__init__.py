"""Memory as layouts see it: strides, swizzles and banks of shared memory, and the descriptors of wgmma."""
