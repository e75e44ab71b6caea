"""Kernels of the implementation, each in torch and in Triton."""
