"""One run, drawn once, whatever crashes."""
