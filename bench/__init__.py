"""Benchmarks: each module measures one thing on real servers and prints JSON."""
