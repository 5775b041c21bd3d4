"""Every way images come in."""
