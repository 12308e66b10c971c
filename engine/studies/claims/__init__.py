"""The ledger of claims, made from tables without a model. No torch."""
