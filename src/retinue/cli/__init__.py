"""The command line. It parses, asks the host or the file, and shows; it decides nothing."""
