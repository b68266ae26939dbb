"""Generative adversarial networks: DPGAN, DPCGAN and PATE-GAN."""
