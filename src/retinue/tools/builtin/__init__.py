"""Tools that come with Retinue."""
