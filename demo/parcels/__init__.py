"""Invented runs of an agent at a parcel company's desk, made from a seed in about a second.

`world` has the senders and their parcels, `tools` what the agent can do, `requests` what a sender
asks for, `mistakes` how the agent goes wrong, and `generate` makes two hundred runs of them, in
the format that `demo.recorded` replays.
"""
