"""Mutation test of the proof of code: is every small mistake in a function of a release seen by the claims about it?"""
