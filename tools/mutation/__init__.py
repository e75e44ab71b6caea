"""Mutation of what is under test: is every small mistake in it noticed? `make mutants`, docs/trust.md."""
