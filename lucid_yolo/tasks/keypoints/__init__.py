"""Key points: boxes, classes and places on the objects."""
