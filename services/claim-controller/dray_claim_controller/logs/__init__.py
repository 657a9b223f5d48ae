"""Decision logs: ``epochs`` opens them, ``followers`` reads them."""
