"""The estimators of log p_real/p_synthetic, one file each, and their debiasing."""
