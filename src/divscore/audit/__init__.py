"""Estimates to audits: the result, its trust, its JSON document, planning, and the change between two audits."""
