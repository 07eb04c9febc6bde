"""Kernels in Triton, which is not everywhere: a module with kernels imports it at its top, and is imported late."""
