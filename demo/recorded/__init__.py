"""Recorded runs of a service desk's agent, replayed on a real database.

`desks` describes the businesses, `corpus` reads a recording, `tables` is the business's database
and `agent` does again what was recorded. None of them knows a business: a new one is a description.
"""
