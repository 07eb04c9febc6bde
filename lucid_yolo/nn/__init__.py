"""The network: blocks, backbone, neck, heads."""
