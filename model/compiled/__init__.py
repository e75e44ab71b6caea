"""Traced rules as machine code: terms as LLVM assembly, and the search of small instances that is compiled from them.

It needs llvmlite and numpy (`pip install 'kvproof[scale]'`), which are imported in functions: nothing here needs them to be
imported.
"""
