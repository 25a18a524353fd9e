"""`python -m docs.makers` writes every generated page."""

from docs.makers import pages

for path, text in pages().items():
    path.write_text(text, encoding="utf-8")
