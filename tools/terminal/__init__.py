"""The recording of a terminal in the README: a real run as an animated SVG."""
