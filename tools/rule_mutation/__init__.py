"""Every small mistake in every rule of the specification, and which check notices it: `make mutants-spec`."""
