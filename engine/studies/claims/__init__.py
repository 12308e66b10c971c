"""The ledger of claims, made from tables without a model. No torch."""

import engine.studies.claims.audit_claims  # noqa: F401 - registers the kinds
