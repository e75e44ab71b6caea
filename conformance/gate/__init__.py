"""The gate: what a pull request must pass, step by step. docs/gate.md is the page."""
