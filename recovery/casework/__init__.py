"""Casework: what people do with a case, from the claim to the closing."""
