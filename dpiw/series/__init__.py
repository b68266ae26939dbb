"""Many releases: the calendar of a spec, what of it is published, what is missing and why."""
