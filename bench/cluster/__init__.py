"""Several workers on one PostgreSQL, measured beside the engine that may dispatch them."""
