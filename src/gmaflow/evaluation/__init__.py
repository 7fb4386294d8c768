"""Predictions -> numbers."""
