"""Recovery: cases, plans, the engine that compensates, and the corrections people read."""
