"""The table, its public schema, and the files that hold them."""
