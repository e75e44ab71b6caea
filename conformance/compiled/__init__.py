"""The compiled checker: the specification's own functions, traced, printed as source and compiled; it judges columns.

`rules.py` runs every rule once on terms and `source.py` prints them. `layout.py` says what stands where in the arrays, `book.py`,
`pages.py` and `loop.py` are the page book and the loop over arrays. `build.py` puts all of it into one source and compiles it.
`columns.py` brings events into arrays, `state.py` hands the state over to the interpreted checker and back, `checker.py` drives.
"""
