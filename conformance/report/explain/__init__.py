"""Explaining: what broke, where and why, as text and as one page; and what a rule means, with a picture."""
