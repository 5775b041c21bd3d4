"""HTML pages: of a benchmark, of a check, of scored images, of a watch."""
