"""SGLang's functions as the proof of code sees them.

Where a release keeps what is in `layout.py`, the objects that a function works on in `stand_ins.py` and `session.py`, for a batch
in `batch_stand_ins.py` and `batch_scene.py`, for the allocators themselves in `allocator_scene.py`, for a request that gives back
what it holds in `request_scene.py` and `plain_scene.py`. What each function must do is in `..._claims.py`, how a claim is made in
`claims.py`. `designs.py` has known faults as later releases have them. `functions.py` puts them together.
"""
