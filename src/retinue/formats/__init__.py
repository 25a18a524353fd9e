"""Pure parsers and writers of small formats, which any layer may use."""
