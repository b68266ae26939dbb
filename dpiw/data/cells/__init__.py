"""How cells are written, read and counted, each alone."""
