"""Triage: what went wrong with a run, in words, and what to do about it."""
