"""The stories that scripted agents play, each a real run against real systems."""
