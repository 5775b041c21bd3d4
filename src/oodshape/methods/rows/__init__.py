"""The rows of the table of methods: a recipe and its sentences."""
