"""kvproof: shows that the paged KV cache of an inference server never loses, shares or corrupts a page."""

from importlib.metadata import version as _version

__version__ = _version("kvproof")
