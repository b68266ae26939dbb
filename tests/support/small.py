"""Settings that keep the networks of generators small."""

_GAME = {"steps": 3, "lot": 16, "batch": 8, "generator": [4], "discriminator": [4]}
_PATE = {"rounds": 3, "batch": 8, "generator": [4], "student": [4], "teacher": 3}
SMALL = {"dpgan": _GAME, "dpcgan": _GAME, "pategan": _PATE}
