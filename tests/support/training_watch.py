"""Who watches a training in a test."""


class KilledError(Exception):
    """The process that trains is gone."""


class Recorder:
    """A `TrainingWatch` that keeps every checkpoint, and dies after one if told to."""

    def __init__(self, *, resumed=None, dies_at=None):
        self._resumed, self._dies_at = resumed, dies_at
        self.steps, self.saved = [], {}

    def resumed(self):
        return self._resumed

    def at(self, step, steps, state):
        self.steps.append((step, steps))
        self.saved[step] = state()
        if step == self._dies_at:
            raise KilledError
