"""Dense, static-shape objectives."""
