"""The specification: vocabulary, page arithmetic, state, actions, effects, invariants, faults and the trace format.

Plain Python over an abstract number domain; it imports nothing else of the project.
"""

SPEC_VERSION = "1"
