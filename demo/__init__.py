"""The demo: scripted agents, and the small real systems that they act on. Imported by nothing."""
