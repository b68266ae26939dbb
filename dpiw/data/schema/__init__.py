"""The public schema: columns, levels, constraints, and numbers for cells."""
