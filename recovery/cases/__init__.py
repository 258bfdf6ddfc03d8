"""Cases: the row itself, as every room of recovery may take hold of it and end it."""
