"""Score images with a guard, and read and write score files."""
