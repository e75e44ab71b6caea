"""Traces on disk: read, written, cut, copied and checked; in lines and in columns."""
