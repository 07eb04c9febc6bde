"""One module a flag. Each carries ``FLAGS``; a new module here is found by itself."""
