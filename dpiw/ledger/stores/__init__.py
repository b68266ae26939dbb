"""Where a ledger's entries lie: SQLite or PostgreSQL."""
