"""MST and AIM, and the graphical model of noisy marginals that both fit."""
