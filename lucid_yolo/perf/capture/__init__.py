"""Recording of parts of a training step as CUDA graphs."""
