"""Pages of the record: runs, one run step by step, the ledger, one event with its proof."""
