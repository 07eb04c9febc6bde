"""Pure functions on boxes, anchors, pictures and colours."""
