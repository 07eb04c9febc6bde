"""Typed configuration, its guard and its composition; imports no torch."""
