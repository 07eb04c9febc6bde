"""One module a data format; each offers ``read(config, split)``."""
