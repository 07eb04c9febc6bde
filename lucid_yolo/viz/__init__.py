"""Pictures of data, predictions and curves."""
