"""What a pipeline run leaves: records, facts, ledger, receipts, transcript."""
