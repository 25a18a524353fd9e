"""The service in the barn."""
