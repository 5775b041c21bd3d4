"""Published archives."""
