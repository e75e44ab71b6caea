"""A violating trace, reduced to a few events that violate the same rule."""
