"""Segmentation: boxes, classes and masks."""
