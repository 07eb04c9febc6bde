"""Runs: build, train, validate, predict, report."""
