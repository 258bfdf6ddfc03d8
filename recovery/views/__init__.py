"""The operator's pages: the queue, a case, and the previews of what can be done about it."""
