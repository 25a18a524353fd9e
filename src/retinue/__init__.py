"""Retinue gives an LLM agent a staff: children that it can spawn, fork, message, watch, cancel and collect."""

__all__ = ["__version__"]

__version__ = "0.1.0"
