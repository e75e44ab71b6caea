"""sglang-jax, recorded: its scheduler and its cache layer in this process, from a checkout that the user names.

`record.py` runs a scenario on the work tree that KVPROOF_SGLANG_JAX names and writes its trace. It needs jax on a CPU; reading
the table of scenarios needs neither. Nothing of sglang-jax is part of this project.
"""
