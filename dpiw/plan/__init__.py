"""All that is decided before data is read."""
