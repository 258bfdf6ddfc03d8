"""Facts: what is known of a run, and the words for it. Everything above is made of these."""
