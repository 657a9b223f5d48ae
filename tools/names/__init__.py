"""Rules for names of classes and modules; ``make check`` applies them."""
