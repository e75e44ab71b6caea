"""`python -m kvproof`: the program, also where no script `kvproof` is on the path."""

from kvproof.conformance.cli.program import main

if __name__ == "__main__":
    main()
