"""The outside world of the demo: systems that know nothing of Amends and keep journals."""
