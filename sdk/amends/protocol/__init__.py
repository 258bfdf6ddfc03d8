"""What agents and the desk must understand alike: how a value is written, masked, named and proven.

The client works by it, the desk's floors import it, and nothing else of the client.
"""
