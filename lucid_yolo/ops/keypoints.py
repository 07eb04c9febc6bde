"""Key points: what every layer agrees on."""

UNIFORM_SIGMA = 0.072
"""Spread, in Object Keypoint Similarity, of a point of which nothing is known: the median of COCO's."""
