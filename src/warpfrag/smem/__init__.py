"""Shared memory: banks, swizzles, descriptors and tensor maps."""
