"""Invented runs of an agent at a parcel company's desk, made from a seed in about a second.

`tools` has the senders with their parcels and what the agent can do; `generate` has what a sender
asks for and how the agent goes wrong, and makes two hundred runs, in the format that
`demo.corpus` replays.
"""
