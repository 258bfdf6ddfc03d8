"""Mutants: small, dangerous changes to the code, each of which some test must notice."""
