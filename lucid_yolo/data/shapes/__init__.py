"""The embedded data set: shapes on textured ground, drawn here, so that a bare machine has data to learn from."""
