"""The checks of `retinue doctor`."""
