"""Insights: how often things go wrong, how quickly they are put right, and what is left."""
