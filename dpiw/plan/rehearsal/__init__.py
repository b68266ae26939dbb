"""A plan played on public stand-ins, before any budget is spent."""
