"""The explorer against oracles that nobody here wrote: `make explore`."""
