"""The specification made provable (Z3) and executable (Python integers)."""
