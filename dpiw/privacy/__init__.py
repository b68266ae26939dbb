"""What a promise is, what it costs, and where noise comes from."""
