"""SGLang's functions as the proof of code sees them.

Where a release keeps what is in `layout.py`, the objects that a function works on in `stand_ins.py`, `session.py`,
`request_scene.py` and `plain_scene.py`, what each function must do in `session_claims.py` and `request_claims.py`.
`designs.py` has known faults as later releases have them. `functions.py` puts them together.
"""
