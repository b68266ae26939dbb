"""The signed folder that leaves the confidential zone."""
