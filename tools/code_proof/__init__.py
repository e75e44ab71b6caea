"""Proof of code: plain Python functions run on symbolic lengths, path by path, and compared with the rules.

No code is imported or executed: functions are read as syntax trees (`source.py`) and interpreted (`interpreter.py`). What the
interpreter does not know ends the path as "not understood". It knows nothing of any inference server: objects of SGLang are
described in `sglang_objects.py` and `sglang_session.py`, where a release keeps what in `sglang_layout.py`, and what its functions
must do in `sglang_claims.py`. `sglang_designs.py` has rules that later releases follow instead and that no profile has yet.

Not part of the package: no command runs it yet. `python -m code_proof FOLDER` checks an unpacked SGLang.
"""
