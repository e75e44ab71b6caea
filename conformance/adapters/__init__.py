"""Recorders and drivers: the reference implementation, SGLang, sglang-jax, a live server."""
