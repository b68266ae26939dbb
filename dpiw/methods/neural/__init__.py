"""Networks trained under differential privacy: one DP-SGD core for everything neural."""
