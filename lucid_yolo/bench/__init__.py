"""Measurements that the project makes of itself."""
