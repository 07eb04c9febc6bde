"""Metrics by the evaluators of record."""
