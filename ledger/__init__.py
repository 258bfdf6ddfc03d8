"""The ledger: what agents say they did, kept for good, folded into what is known."""
