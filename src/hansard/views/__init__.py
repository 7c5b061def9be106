"""Views: what the records of a session add up to. Pure folds, records in and a value out; no I/O."""
