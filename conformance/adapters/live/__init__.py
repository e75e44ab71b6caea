"""A trace that a running server writes: what a recorder puts down goes to a process of its own, which makes lines or columns.

Nothing here knows which server it is: the recorders of SGLang and of the reference implementation write through it.
"""
