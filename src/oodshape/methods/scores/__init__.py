"""Scores: from logits, features and the head to one number per image."""
