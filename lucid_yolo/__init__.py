"""Train YOLO26-style models and measure every performance flag."""
