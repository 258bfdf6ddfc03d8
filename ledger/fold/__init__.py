"""The fold: from the events of an action or a run to the row that says what is known of it.

Pure functions. What is known only grows, and the fold is the join of all statements, so neither the
order in which events came nor how often they came makes a difference (docs/architecture.md).
"""
