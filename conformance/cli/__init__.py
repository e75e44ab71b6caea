"""The command line: the program, its table of commands, and one module for each command."""
