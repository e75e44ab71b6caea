"""The protocol as a model for SPIN, written by hand."""
