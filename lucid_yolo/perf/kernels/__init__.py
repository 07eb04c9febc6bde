"""Kernels in Triton. Every module imports it at its top, so each is imported late: Triton is not everywhere."""
