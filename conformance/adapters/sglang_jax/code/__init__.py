"""sglang-jax's functions as the proof of code sees them: the objects in `scene.py`, what must be done in `functions.py`."""
