"""On PYTHONPATH of a test's server: every process of it gets stand-ins for packages that need a GPU."""

from kvproof.conformance.adapters import stand_ins

stand_ins.install()
