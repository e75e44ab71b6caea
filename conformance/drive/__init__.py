"""An implementation driven along a trace, step by step."""
