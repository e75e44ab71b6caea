"""Proof of code: plain Python functions run on symbolic lengths, path by path, and compared with the rules.

No code is imported or executed: functions are read as syntax trees (`source.py`) and interpreted (`interpreter.py`). What the
interpreter does not know ends the path as "not understood". It knows nothing of any inference server: the objects that its
functions work on, and the rules that they must follow, are described beside the recorder of the server
(`conformance/adapters/sglang/code/`).
"""
