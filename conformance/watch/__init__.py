"""A trace that is still being written, judged as it grows."""
