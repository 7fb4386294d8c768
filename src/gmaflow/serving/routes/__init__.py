"""The addresses of the server."""
