"""Optimizers, schedule, averaging and clipping, without host synchronisation."""
