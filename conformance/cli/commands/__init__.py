"""The commands of the command line, one file each: a typed function whose docstring is its help."""
