"""The compiled checker: the specification's own functions, traced, printed as LLVM assembly and compiled; it judges columns.

`rules.py` and `weighing.py` run every rule once on terms, `assembly.py` prints them. `layout.py` says what stands where in the
arrays, `book.py`, `places.py`, `pages.py` and `loop.py` are the page book and the loop over arrays, which numba compiles;
`rule_calls.py` is how the loop asks the rules. `build.py` compiles both and keeps them. `columns.py` brings events into arrays,
`state.py` hands the state over to the interpreted checker and back, `checker.py` drives, `choose.py` says who judges a trace.
"""
