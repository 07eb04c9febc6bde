"""Which anchor learns which object."""
