"""Sums for people."""
