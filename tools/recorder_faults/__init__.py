"""Faults that strike a recorded server: `make test-faults`."""
