"""Publish a release from a terminal: `python -m flows SPEC`, which `dpiw release` runs."""

import sys

from flows import console

sys.exit(console.main(console.release_flow, sys.argv[1:]))
