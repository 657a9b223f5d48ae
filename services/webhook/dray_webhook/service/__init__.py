"""Input and output: facts, HTTPS, certificates, recordings."""
