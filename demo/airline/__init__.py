"""200 recorded runs of a real agent at an airline's service desk, replayed on a real database."""
