"""A trace against the rules, event by event and page by page; its verdict, coverage and checkpoints."""
