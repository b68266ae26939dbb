"""The synthetic data generating processes (SDGPs), one file each."""
